//! Operators that fail a stream that is too slow. All times begin when the stage starts.

use std::time::Duration;

use super::passing::{Watch, pass};
use crate::base::Nanos;
use crate::stream::dsl::{BidiFlow, FlowOps, Plain};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, TimerKey};
use crate::stream::stage::made::stage;
use crate::stream::stage::{BidiPorts, BidiShape, Logic};

const TIMER: TimerKey = TimerKey(0);
/// Most time between two looks at a stream that has seconds.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(100);

/// A stream was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamTimeout {
    /// The first element did not come in time.
    #[error("the first element did not come within {0:?}")]
    Initial(Duration),
    /// The stream did not end in time.
    #[error("the stream did not complete within {0:?}")]
    Completion(Duration),
    /// No element came for too long.
    #[error("no element came within {0:?}")]
    Idle(Duration),
    /// Downstream did not ask for too long.
    #[error("no element was asked for within {0:?}")]
    Backpressure(Duration),
}

impl StreamTimeout {
    fn fail(self, context: &mut Context) {
        context.fail_stage(StreamError::new(self));
    }
}

/// How often a stream is looked at whose timeout moves: seldom enough to cost nothing, often enough to be right by an
/// eighth.
fn look_interval(timeout: Duration) -> Duration {
    if timeout > LOOK_MAX {
        LOOK_MAX
    } else {
        (timeout / 8).max(LOOK_MIN).min(timeout / 2).max(Duration::from_nanos(1))
    }
}

struct Timeout {
    kind: StreamTimeout,
    deadline: Nanos,
    /// The first element has come.
    has_begun: bool,
    /// Downstream has asked for what has not come.
    is_asked: bool,
}

impl Timeout {
    fn timeout(&self) -> Duration {
        match self.kind {
            StreamTimeout::Initial(timeout)
            | StreamTimeout::Completion(timeout)
            | StreamTimeout::Idle(timeout)
            | StreamTimeout::Backpressure(timeout) => timeout,
        }
    }
}

impl<T: 'static> Watch<T> for Timeout {
    fn start(&mut self, context: &mut Context) {
        let timeout = self.timeout();
        self.deadline = context.now() + timeout;
        match self.kind {
            StreamTimeout::Initial(_) | StreamTimeout::Completion(_) => context.schedule_once(TIMER, timeout),
            StreamTimeout::Idle(_) | StreamTimeout::Backpressure(_) => {
                let interval = look_interval(timeout);
                context.schedule_with_fixed_delay(TIMER, interval, interval);
            }
        }
    }

    #[inline]
    fn element(&mut self, context: &mut Context, _: &T) {
        self.has_begun = true;
        self.is_asked = false;
        self.deadline = context.now() + self.timeout();
    }

    #[inline]
    fn asked(&mut self) {
        self.is_asked = true;
    }

    fn timer(&mut self, context: &mut Context) {
        let is_late = self.deadline <= context.now();
        let fails = match self.kind {
            StreamTimeout::Initial(_) => !self.has_begun,
            StreamTimeout::Completion(_) => true,
            StreamTimeout::Idle(_) => is_late,
            StreamTimeout::Backpressure(_) => is_late && !self.is_asked,
        };
        if fails {
            self.kind.fail(context);
        }
    }
}

struct BidiIdle<A, B> {
    ports: BidiPorts<A, A, B, B>,
    timeout: Duration,
    deadline: Nanos,
}

impl<A: 'static, B: 'static> Logic for BidiIdle<A, B> {
    fn pre_start(&mut self, context: &mut Context) {
        self.deadline = context.now() + self.timeout;
        let interval = look_interval(self.timeout);
        context.schedule_with_fixed_delay(TIMER, interval, interval);
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        self.deadline = context.now() + self.timeout;
        self.ports.pass_element(context, inlet);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        self.ports.pass_demand(context, outlet);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        self.ports.pass_completion(context, inlet);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        self.ports.pass_cancellation(context, outlet, cause);
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        if self.deadline <= context.now() {
            StreamTimeout::Idle(self.timeout).fail(context);
        }
    }
}

impl<A: 'static, B: 'static> BidiFlow<A, A, B, B> {
    /// Passes elements on in both directions, and fails with [`StreamTimeout::Idle`] when none came in either for so long.
    #[must_use]
    pub fn bidirectional_idle_timeout(timeout: Duration) -> Self {
        BidiFlow::from_stage(stage("idle_timeout", BidiShape::new(), move |ports, _| BidiIdle {
            ports,
            timeout,
            deadline: Nanos::ZERO,
        }))
    }
}

fn with_timeout<S: FlowOps>(flow: S, name: &'static str, kind: StreamTimeout) -> Plain<S, S::Out> {
    pass(flow, name, move || Timeout { kind, deadline: Nanos::ZERO, has_begun: false, is_asked: false })
}

/// Operators that fail a stream that is too slow, with [`StreamTimeout`]. Otherwise they pass elements on.
pub trait TimeoutOps: FlowOps {
    /// Fails if the first element has not come so long after the start.
    fn initial_timeout(self, timeout: Duration) -> Plain<Self, Self::Out> {
        with_timeout(self, "initial_timeout", StreamTimeout::Initial(timeout))
    }

    /// Fails if the stream has not ended so long after its start.
    fn completion_timeout(self, timeout: Duration) -> Plain<Self, Self::Out> {
        with_timeout(self, "completion_timeout", StreamTimeout::Completion(timeout))
    }

    /// Fails if no element has come for so long, or a little longer: an eighth of it, a second at most.
    fn idle_timeout(self, timeout: Duration) -> Plain<Self, Self::Out> {
        with_timeout(self, "idle_timeout", StreamTimeout::Idle(timeout))
    }

    /// Fails if downstream has not asked for so long after an element (or the start), or a little longer: an eighth of it,
    /// a second at most.
    fn backpressure_timeout(self, timeout: Duration) -> Plain<Self, Self::Out> {
        with_timeout(self, "backpressure_timeout", StreamTimeout::Backpressure(timeout))
    }
}

impl<S: FlowOps> TimeoutOps for S {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_looked_at_eight_times_in_their_timeout_but_not_too_often_or_seldom() {
        for (timeout_ms, look_ms) in
            [(100, 50), (150, 75), (400, 100), (800, 100), (1000, 125), (2000, 1000), (60_000, 1000)]
        {
            assert_eq!(
                look_interval(Duration::from_millis(timeout_ms)),
                Duration::from_millis(look_ms),
                "{timeout_ms}"
            );
        }
    }
}
