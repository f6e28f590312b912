//! Timers of the stages of one island.
//!
//! The host of the island asks for [`StageTimers::next_deadline`] and fires what is due. A key names one timer of a
//! stage: a new one with the same key replaces it, and a cancelled one never fires.

use core::time::Duration;
use std::collections::BTreeMap;

use super::context::Context;
use crate::base::Nanos;
use crate::stream::attributes::CancellationStrategy;
use crate::stream::error::Cancellation;

/// Names a timer within its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey(pub u64);

enum Due {
    Timer { key: TimerKey, repeat: Repeat },
    Cancel { strategy: CancellationStrategy, cause: Cancellation },
}

#[derive(Clone, Copy)]
enum Repeat {
    Once,
    /// So long after the handler ran.
    After(Duration),
    /// So long after the last time it was due.
    Every(Duration),
}

#[derive(Default)]
pub(crate) struct StageTimers {
    due: BTreeMap<(Nanos, u64), (u32, Due)>,
    by_key: BTreeMap<(u32, TimerKey), (Nanos, u64)>,
    next: u64,
}

impl StageTimers {
    pub fn next_deadline(&self) -> Nanos {
        self.due.keys().next().map_or(Nanos::NEVER, |(at, _)| *at)
    }

    fn arm(&mut self, stage: u32, key: TimerKey, at: Nanos, repeat: Repeat) {
        self.cancel(stage, key);
        self.next += 1;
        self.due.insert((at, self.next), (stage, Due::Timer { key, repeat }));
        self.by_key.insert((stage, key), (at, self.next));
    }

    fn cancel(&mut self, stage: u32, key: TimerKey) {
        if let Some(due) = self.by_key.remove(&(stage, key)) {
            self.due.remove(&due);
        }
    }

    pub fn cancel_later(&mut self, stage: u32, at: Nanos, strategy: CancellationStrategy, cause: Cancellation) {
        self.next += 1;
        self.due.insert((at, self.next), (stage, Due::Cancel { strategy, cause }));
    }

    pub fn forget_stage(&mut self, stage: u32) {
        if !self.due.is_empty() {
            self.due.retain(|_, (owner, _)| *owner != stage);
            self.by_key.retain(|(owner, _), _| *owner != stage);
        }
    }
}

impl Context {
    /// Calls `on_timer` with the key once, after the delay.
    pub fn schedule_once(&mut self, key: TimerKey, delay: Duration) {
        self.timers.arm(self.current, key, self.now + delay, Repeat::Once);
    }

    /// Calls `on_timer` after `initial`, and then again each time `delay` after it ran.
    pub fn schedule_with_fixed_delay(&mut self, key: TimerKey, initial: Duration, delay: Duration) {
        self.timers.arm(self.current, key, self.now + initial, Repeat::After(delay));
    }

    /// Calls `on_timer` after `initial`, and then at each multiple of `interval`; what was missed is made up for.
    pub fn schedule_at_fixed_rate(&mut self, key: TimerKey, initial: Duration, interval: Duration) {
        self.timers.arm(self.current, key, self.now + initial, Repeat::Every(interval));
    }

    /// Stops a timer: it does not fire any more, even if it is due.
    pub fn cancel_timer(&mut self, key: TimerKey) {
        self.timers.cancel(self.current, key);
    }

    /// Whether a timer of this key will fire.
    #[must_use]
    pub fn is_timer_active(&self, key: TimerKey) -> bool {
        self.timers.by_key.contains_key(&(self.current, key))
    }

    /// Fires what is due, each timer at most once. True if there was anything.
    pub(crate) fn fire_timers(&mut self) -> bool {
        let now = self.now;
        let last = self.timers.next;
        let mut fired = false;
        // Timers that are armed meanwhile have larger numbers and wait for the next turn, so this ends.
        while let Some((&(at, number), _)) =
            self.timers.due.iter().find(|((at, number), _)| *at <= now && *number <= last)
        {
            let Some((stage, due)) = self.timers.due.remove(&(at, number)) else { break };
            fired = true;
            match due {
                Due::Timer { key, repeat } => {
                    self.timers.by_key.remove(&(stage, key));
                    match repeat {
                        Repeat::Once => {}
                        Repeat::After(delay) => self.timers.arm(stage, key, now + delay, repeat),
                        Repeat::Every(interval) => self.timers.arm(stage, key, at + interval, repeat),
                    }
                    self.call_guarded(stage, |logic, context| logic.on_timer(context, key));
                }
                Due::Cancel { strategy, cause } => {
                    self.call_guarded(stage, |_, context| context.cancel_stage_by(&strategy, cause));
                }
            }
        }
        fired
    }
}
