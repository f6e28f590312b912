//! Operators that shape the rate of a stream: `throttle`, `delay`, `keep_alive`.

use std::collections::VecDeque;
use std::time::Duration;

use super::buffers::OverflowStrategy;
use crate::base::Nanos;
use crate::stream::attributes::{InputBuffer, Supervision};
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{BufferOverflow, IllegalArgument, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet, TimerKey};
use crate::stream::stage::made::stage;
use crate::stream::stage::supervised::{Judged, judge};
use crate::stream::stage::{FlowPorts, FlowShape, Logic};

const TIMER: TimerKey = TimerKey(0);
/// A burst without a number of its own is what comes in this time: timers cannot be relied on for shorter ones.
const AUTOMATIC_BURST: Duration = Duration::from_millis(100);

/// What a throttle does with an element that comes too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleMode {
    /// It waits.
    Shaping,
    /// The stream fails with [`RateExceeded`].
    Enforcing,
}

/// Elements came faster than a throttle with [`ThrottleMode::Enforcing`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("elements come faster than the throttle allows: let it shape, or allow a larger burst")]
pub struct RateExceeded;

/// The rate of a throttle.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    cost: u64,
    per: Duration,
    burst: Option<u64>,
    mode: ThrottleMode,
}

impl Rate {
    /// So many elements (or so much cost) in that time, shaping, with a burst of what comes in 100 ms, at least 1.
    #[must_use]
    pub const fn new(cost: u64, per: Duration) -> Rate {
        Rate { cost, per, burst: None, mode: ThrottleMode::Shaping }
    }

    /// So much may pass at once after a pause.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Rate {
        self.burst = Some(burst);
        self
    }

    /// What becomes of what comes too early.
    #[must_use]
    pub const fn mode(mut self, mode: ThrottleMode) -> Rate {
        self.mode = mode;
        self
    }
}

/// Tokens come one by one at equal distances; each unit of cost takes one.
struct TokenBucket {
    capacity: u64,
    nanos_between: u64,
    tokens: u64,
    /// When the last token came.
    updated: Nanos,
}

impl TokenBucket {
    fn new(rate: &Rate, now: Nanos) -> TokenBucket {
        let per = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX);
        let nanos_between = (per / rate.cost.max(1)).max(1);
        let automatic = (AUTOMATIC_BURST.as_nanos() as u64 / nanos_between).max(1);
        let capacity = rate.burst.unwrap_or(automatic);
        TokenBucket { capacity, nanos_between, tokens: capacity, updated: now }
    }

    /// How long it takes until so many tokens are there, which are taken.
    fn offer(&mut self, cost: u64, now: Nanos) -> Duration {
        let elapsed = now.0.saturating_sub(self.updated.0);
        let arrived = elapsed / self.nanos_between;
        self.updated = Nanos(self.updated.0 + arrived * self.nanos_between);
        self.tokens = self.tokens.saturating_add(arrived).min(self.capacity);
        if cost <= self.tokens {
            self.tokens -= cost;
            return Duration::ZERO;
        }
        let missing = cost - self.tokens;
        self.tokens = 0;
        let since_token = now.0.saturating_sub(self.updated.0);
        let delay = missing.saturating_mul(self.nanos_between) - since_token;
        let delay = Duration::from_nanos(delay);
        self.updated = now + delay;
        delay
    }
}

struct Throttle<T, C> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    cost: C,
    rate: Rate,
    bucket: Option<TokenBucket>,
    supervision: Option<Supervision>,
    /// Waits for its time.
    current: Option<T>,
}

impl<T: 'static, C: FnMut(&T) -> u64 + 'static> Logic for Throttle<T, C> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.rate.cost == 0 || self.rate.per.is_zero() {
            let what = "the rate must be more than nothing, in more than no time";
            return context.fail_stage(StreamError::new(IllegalArgument { operator: "throttle", what }));
        }
        self.bucket = Some(TokenBucket::new(&self.rate, context.now()));
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let cost = &mut self.cost;
        let cost = match judge(self.supervision.as_ref(), || Ok(cost(&element))) {
            Judged::Value(cost) => cost,
            Judged::Dropped(_) => return self.inlet.try_pull(context),
            Judged::Failed(error) => return context.fail_stage(error),
        };
        let now = context.now();
        let delay = self.bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.offer(cost, now));
        if delay.is_zero() {
            self.outlet.push(context, element);
        } else if self.rate.mode == ThrottleMode::Enforcing {
            context.fail_stage(StreamError::new(RateExceeded));
        } else {
            self.current = Some(element);
            context.schedule_once(TIMER, delay);
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        if let Some(element) = self.current.take() {
            self.outlet.push(context, element);
        }
        if self.inlet.is_closed(context) {
            context.complete_stage();
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.current.is_none() {
            context.complete_stage();
        }
    }
}

/// What `delay` does with an element for which it has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayStrategy {
    /// Emits the oldest element before its time.
    EmitEarly,
    /// As `buffer` does.
    Overflow(OverflowStrategy),
}

struct Delay<T, D> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    delay_of: D,
    strategy: DelayStrategy,
    capacity: usize,
    /// Elements with the time when they are due.
    held: VecDeque<(Nanos, T)>,
    /// For when the timer was last set.
    armed: Nanos,
}

impl<T: 'static, D: FnMut(&T) -> Duration + 'static> Delay<T, D> {
    /// Asks for an element if it would have a place, or something else happens when it has none.
    fn ask(&mut self, context: &mut Context) {
        let waits =
            matches!(self.strategy, DelayStrategy::Overflow(OverflowStrategy::Backpressure) | DelayStrategy::EmitEarly);
        // Early emission needs demand for what comes first.
        let early = self.strategy == DelayStrategy::EmitEarly && self.outlet.is_available(context);
        if self.held.len() < self.capacity || !waits || early {
            self.inlet.try_pull(context);
        }
    }

    fn is_full(&self) -> bool {
        self.held.len() >= self.capacity
    }

    /// Makes room. False if the stage has failed or the new element is the one that gives way.
    fn make_room(&mut self, context: &mut Context) -> bool {
        match self.strategy {
            DelayStrategy::EmitEarly => {
                if self.outlet.is_available(context)
                    && let Some((_, oldest)) = self.held.pop_front()
                {
                    self.outlet.push(context, oldest);
                }
                true
            }
            DelayStrategy::Overflow(strategy) => {
                let has_room = strategy.make_room(&mut self.held);
                if !has_room {
                    context.fail_stage(StreamError::new(BufferOverflow { capacity: self.capacity }));
                }
                has_room
            }
        }
    }

    /// Emits what is due and asked for; otherwise waits for its time.
    fn go_on(&mut self, context: &mut Context) {
        if self.outlet.is_available(context)
            && let Some((due, _)) = self.held.front()
        {
            let due = *due;
            if due <= context.now() {
                if let Some((_, element)) = self.held.pop_front() {
                    self.outlet.push(context, element);
                }
            } else if due != self.armed || !context.is_timer_active(TIMER) {
                self.armed = due;
                let wait = due.since(context.now());
                context.schedule_once(TIMER, wait);
            }
        }
        if self.inlet.is_closed(context) {
            if self.held.is_empty() {
                context.complete_stage();
            }
        } else {
            self.ask(context);
        }
    }
}

impl<T: 'static, D: FnMut(&T) -> Duration + 'static> Logic for Delay<T, D> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if self.is_full() && !self.make_room(context) {
            return;
        }
        let due = context.now() + (self.delay_of)(&element);
        self.held.push_back((due, element));
        self.go_on(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.go_on(context);
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        self.go_on(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.held.is_empty() {
            context.complete_stage();
        }
    }
}

struct KeepAlive<T, F> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    inject: F,
    idle: Duration,
    deadline: Nanos,
}

impl<T: 'static, F: FnMut() -> T + 'static> KeepAlive<T, F> {
    fn pass(&mut self, context: &mut Context) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
        if self.inlet.is_closed(context) {
            context.complete_stage();
        } else {
            self.inlet.pull(context);
        }
    }

    /// There is demand and no element.
    fn wait(&mut self, context: &mut Context) {
        let now = context.now();
        if self.deadline <= now {
            self.deadline = now + self.idle;
            let element = (self.inject)();
            self.outlet.push(context, element);
        } else {
            context.schedule_once(TIMER, self.deadline.since(now));
        }
    }
}

impl<T: 'static, F: FnMut() -> T + 'static> Logic for KeepAlive<T, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.deadline = context.now() + self.idle;
        // One element ahead, so that real elements go first.
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.deadline = context.now() + self.idle;
        context.cancel_timer(TIMER);
        if self.outlet.is_available(context) {
            self.pass(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.inlet.is_available(context) {
            self.pass(context);
        } else {
            self.wait(context);
        }
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        if self.outlet.is_available(context) && !self.inlet.is_available(context) {
            self.wait(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if !self.inlet.is_available(context) {
            context.complete_stage();
        }
    }
}

/// Operators that shape the rate.
pub trait RateOps: FlowOps {
    /// Lets elements pass at this rate.
    ///
    /// Emits when upstream does and the rate allows it. Back-pressures when downstream does, or when the rate is reached
    /// and the throttle shapes. Completes when upstream has and the last element has passed. Fails with
    /// [`IllegalArgument`] if the rate is zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use atoll::stream::dsl::{Sink, Source};
    /// use atoll::stream::operators::{Rate, RateOps};
    ///
    /// let hundred_a_second = Rate::new(100, Duration::from_secs(1)).burst(10);
    /// let graph = Source::from_iterator(|| 0..1000).throttle(hundred_a_second).to_right(Sink::<i32, _>::seq());
    /// ```
    fn throttle(self, rate: Rate) -> Plain<Self, Self::Out> {
        self.throttle_by(rate, |_| 1)
    }

    /// As [`RateOps::throttle`], with elements that cost as much as the function says. A panic of it is what the
    /// supervision decider says.
    fn throttle_by<C>(self, rate: Rate, cost: C) -> Plain<Self, Self::Out>
    where
        C: FnMut(&Self::Out) -> u64 + Clone + Send + Sync + 'static,
    {
        self.via_stage(stage("throttle", FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
            let supervision = setup.supervision();
            Throttle { inlet, outlet, cost, rate, bucket: None, supervision, current: None }
        }))
    }

    /// Holds each element for so long. See [`RateOps::delay_by`].
    fn delay(self, delay: Duration, strategy: DelayStrategy) -> Plain<Self, Self::Out> {
        self.delay_by(strategy, move |_| delay)
    }

    /// Holds each element for as long as the function says; they keep their order.
    ///
    /// Emits when the oldest element is due and downstream asks. Back-pressures, or does what the strategy says, when as
    /// many elements are held as the attribute [`InputBuffer`] allows. Completes when upstream has and all are emitted.
    fn delay_by<D>(self, strategy: DelayStrategy, delay_of: D) -> Plain<Self, Self::Out>
    where
        D: FnMut(&Self::Out) -> Duration + Clone + Send + Sync + 'static,
    {
        self.via_stage(stage("delay", FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
            let capacity = setup.attributes().mandatory::<InputBuffer>().max();
            let held = VecDeque::with_capacity(capacity);
            Delay { inlet, outlet, delay_of, strategy, capacity, held, armed: Nanos::NEVER }
        }))
    }

    /// Emits what the function makes when upstream has been idle for so long and downstream asks.
    ///
    /// Emits when upstream does, or so long after its last element. One element is asked for ahead, so what comes from
    /// upstream goes first.
    fn keep_alive<F>(self, idle: Duration, inject: F) -> Plain<Self, Self::Out>
    where
        F: FnMut() -> Self::Out + Clone + Send + Sync + 'static,
    {
        self.via_stage(stage("keep_alive", FlowShape::new(), move |FlowPorts { inlet, outlet }, _| KeepAlive {
            inlet,
            outlet,
            inject,
            idle,
            deadline: Nanos::ZERO,
        }))
    }
}

impl<S: FlowOps> RateOps for S {}
