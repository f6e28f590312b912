//! A running island: fused stages that one core executes, to a budget.
//!
//! Owned by the host of the core's streams. [`Island::start`] once, then [`Island::run`] whenever it is woken, until
//! [`Island::is_completed`]. Dropping it stops every stage exactly once.

use std::sync::Arc;

use super::context::{Context, IslandId};
use super::inbox::IslandWake;
use crate::base::Nanos;

/// Events of one run if nobody says otherwise: 16 × the default buffer of a boundary, as in the reference.
pub const EVENTS_PER_RUN: u32 = 1024;

/// Looks of a stage in one run of an island that is alone: some hundred nanoseconds, which is about what the way from one
/// run to the next costs, so that half of the time is spent looking.
const LOOKS_PER_RUN: u32 = 64;

/// Fused stages and their connections.
pub struct Island {
    context: Context<'static>,
    started: bool,
}

/// What a run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Everything that could be done is done; it waits for a wake-up or a timer.
    Waiting,
    /// Its budget is spent and there is more to do.
    Suspended,
    /// All stages have stopped.
    Completed,
}

impl Island {
    pub(crate) fn new(context: Context<'static>) -> Island {
        Island { context, started: false }
    }

    /// The name of the island.
    #[must_use]
    pub fn id(&self) -> IslandId {
        self.context.island
    }

    /// Whom asynchronous callbacks wake.
    pub fn attach(&mut self, wake: Arc<dyn IslandWake>) {
        self.context.inbox.attach(wake);
    }

    /// Starts the stages, in the order in which they were added.
    pub fn start(&mut self, now: Nanos) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.context.now = now;
        for stage in 0..self.context.stages.len() as u32 {
            self.context.call_guarded(stage, |logic, context| logic.pre_start(context));
            let entry = &self.context.stages[stage as usize];
            if entry.open == 0 && entry.logic.is_some() {
                // No ports and nothing that keeps it.
                self.context.stop_stage(stage);
            }
        }
    }

    /// Runs callbacks, timers and events, `limit` events of the queue at most.
    pub fn run(&mut self, now: Nanos, limit: u32) -> RunState {
        self.context.now = now;
        self.context.run_callbacks(limit);
        if !self.context.looking.is_empty() {
            self.context.look();
        }
        if self.context.timers.next_deadline() <= now {
            self.context.fire_timers();
        }
        self.context.execute(limit);
        self.context.end_run();
        self.state()
    }

    /// Goes on looking (see [`Context::look_again`]) while that is all there is to do and the core has nothing else.
    pub(crate) fn look_while(&mut self, limit: u32, is_alone: impl Fn() -> bool) -> RunState {
        let mut left = limit;
        for _ in 0..LOOKS_PER_RUN {
            if left == 0 || !self.only_looks() || !is_alone() {
                break;
            }
            self.context.look();
            if self.context.is_suspended() {
                left = self.context.execute(left);
                self.context.end_run();
            }
        }
        self.state()
    }

    fn only_looks(&self) -> bool {
        !self.context.looking.is_empty() && !self.context.is_suspended() && self.context.inbox.is_empty()
    }

    /// Processes so many events of the queue at most, and nothing else: for tests of single steps.
    pub fn execute(&mut self, limit: u32) -> RunState {
        self.context.execute(limit);
        self.state()
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> RunState {
        if self.context.is_suspended() || !self.context.inbox.is_empty() {
            RunState::Suspended
        } else if self.context.running == 0 {
            RunState::Completed
        } else if !self.context.looking.is_empty() {
            RunState::Suspended
        } else {
            RunState::Waiting
        }
    }

    /// Whether all stages have stopped.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.context.running == 0
    }

    /// When it must run at the latest, because a timer is due.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        self.context.timers.next_deadline()
    }

    /// Stops all stages now.
    pub fn abort(&mut self) {
        self.context.abort();
    }

    /// Stages that are not stopped.
    #[must_use]
    pub fn running_stages(&self) -> usize {
        self.context.running as usize
    }

    pub(super) fn context_ref(&self) -> &Context<'static> {
        &self.context
    }

    /// For stages that are driven from outside of an event, such as probes in tests.
    pub(crate) fn context(&mut self) -> &mut Context<'static> {
        &mut self.context
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        self.context.abort();
        self.context.inbox.close();
    }
}
