//! How a pod stops: in phases with deadlines, each logged.
//!
//! 1. *announce*: the store learns that the pod drains, and the manager plans its shards elsewhere;
//! 2. *hand over*: the cores stop the entities of a few shards at a time, and other pods take these, until none is left;
//! 3. *finish*: entities that are left answer what they received;
//! 4. *leave*: the cores end, and the lease is given back.
//!
//! A pod that has nobody to hand over to begins with the third. A deadline that passes leads to the next phase; a second
//! order to stop, "now", leads to the last one at once. The control thread goes on in between: the lease is renewed,
//! questions are answered.

use std::time::Duration;

use super::control_port::Stop;
use super::control_thread::State;
use crate::base::Nanos;
use crate::control::membership::Step;
use crate::engine::Command;

/// Longest time for the announcement: a few answers of the store.
const ANNOUNCE_MAX: Duration = Duration::from_secs(5);
/// After the last shard is owned elsewhere, senders that do not know yet are still told where it went.
const LINGER: Duration = Duration::from_millis(50);
/// Longest time for the last word to the store: other pods wait for the lease if it does not get through.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Pause between looks at cores that finish.
const FINISH_POLL: Duration = Duration::from_millis(5);
/// Turns after which the last answer has left its entity's core, reached the core of its asker, and woken the asker.
const ANSWER_TURNS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Serving,
    Announcing { since: Nanos, until: Nanos, give_up: Nanos },
    HandingOver { since: Nanos, until: Nanos, give_up: Nanos, empty_since: Option<Nanos> },
    Finishing { until: Nanos },
    Leaving { until: Nanos },
}

impl Phase {
    /// When to look again, whatever else happens.
    pub fn next_look(&self, now: Nanos) -> Nanos {
        match self {
            Phase::Serving => Nanos::NEVER,
            Phase::Announcing { until, .. } => *until,
            Phase::HandingOver { until, empty_since, .. } => {
                empty_since.map_or(*until, |since| since + LINGER).min(*until)
            }
            Phase::Finishing { .. } => now + FINISH_POLL,
            Phase::Leaving { .. } => now + FINISH_POLL,
        }
    }
}

impl State {
    pub fn begin_stop(&mut self, how: Stop) {
        let now = self.clock.now();
        match (how, self.phase) {
            (Stop::Now, Phase::Leaving { .. }) => {}
            (Stop::Now, _) => self.leave(),
            (Stop::Drain(timeout), Phase::Serving) => {
                let give_up = now + timeout;
                let hand_over = self.driver.control().hand_over();
                if hand_over.heirs == 0 || hand_over.shards_left == 0 {
                    tracing::info!("stopping: there is nothing to hand over, or nobody to hand it to");
                    return self.finish(give_up);
                }
                tracing::info!(phase = "announce", shards = hand_over.shards_left, "stopping, phase 1 of 4");
                self.phase = Phase::Announcing { since: now, until: (now + ANNOUNCE_MAX).min(give_up), give_up };
                let clock = self.clock;
                let notices = self.driver.drain(&mut || clock.now());
                self.take(notices);
            }
            (Stop::Drain(_), _) => {} // Under way.
        }
    }

    /// Goes on with the stop. True when the pod is stopped.
    pub fn advance_stop(&mut self) -> bool {
        let now = self.clock.now();
        match self.phase {
            Phase::Serving => {}
            Phase::Announcing { since, until, give_up } => self.announcing(since, until, give_up),
            Phase::HandingOver { .. } => self.handing_over(),
            Phase::Finishing { until } => {
                let empty = self.node.is_empty();
                if empty || now >= until {
                    if !empty {
                        tracing::warn!("entities did not stop within `pod.drain_timeout`; stopping at once");
                    }
                    self.node.pass_turns(ANSWER_TURNS);
                    self.leave();
                }
            }
            Phase::Leaving { .. } => {}
        }
        if let Phase::Leaving { until } = self.phase {
            let left = self.driver.control().current_step() == Step::Ended;
            if !left && now >= until {
                tracing::warn!("the store did not take the pod's leave; its registration ends with its lease");
            }
            return left || now >= until;
        }
        false
    }

    fn announcing(&mut self, since: Nanos, until: Nanos, give_up: Nanos) {
        let now = self.clock.now();
        let hand_over = self.driver.control().hand_over();
        if hand_over.announced {
            // A quarter of the time is for what cannot be handed over.
            let until = since + give_up.since(since) / 4 * 3;
            let (shards, pods) = (hand_over.shards_left, hand_over.heirs);
            tracing::info!(phase = "hand over", shards, pods, "stopping, phase 2 of 4");
            self.phase = Phase::HandingOver { since: now, until, give_up, empty_since: None };
            self.handing_over();
        } else if now >= until {
            tracing::warn!("the store does not answer, so nothing can be handed over");
            self.finish(give_up);
        }
    }

    fn handing_over(&mut self) {
        let Phase::HandingOver { since, until, give_up, empty_since } = self.phase else { return };
        let now = self.clock.now();
        let hand_over = self.driver.control().hand_over();
        if hand_over.shards_left == 0 {
            let empty = empty_since.unwrap_or(now);
            self.phase = Phase::HandingOver { since, until, give_up, empty_since: Some(empty) };
            if now >= empty + LINGER {
                let took_ms = empty.since(since).as_millis() as u64;
                tracing::info!(took_ms, "all shards are owned by other pods");
                self.finish(give_up);
            }
        } else if hand_over.heirs == 0 {
            tracing::warn!(shards = hand_over.shards_left, "there is no pod left to hand over to");
            self.finish(give_up);
        } else if now >= until {
            tracing::warn!(shards = hand_over.shards_left, "not all shards were taken in time");
            self.finish(give_up);
        }
    }

    fn finish(&mut self, until: Nanos) {
        tracing::info!(phase = "finish", "stopping, phase 3 of 4");
        self.node.command_all(|| Command::Drain);
        // From then on no entity starts, so the cores can only become emptier.
        self.node.pass_turns(1);
        self.phase = Phase::Finishing { until };
    }

    fn leave(&mut self) {
        tracing::info!(phase = "leave", "stopping, phase 4 of 4");
        self.node.stop();
        self.phase = Phase::Leaving { until: self.clock.now() + LEAVE_MAX };
        let clock = self.clock;
        let notices = self.driver.stop(&mut || clock.now());
        self.take(notices);
    }
}
