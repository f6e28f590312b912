//! Operators that let time decide which elements pass and how they are grouped: `take_within`, `drop_within`,
//! `grouped_within`, `initial_delay`, and the source `tick`.
//!
//! All times begin when the stage starts. The time is that of the core, read at the beginning of each turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use super::passing::{Watch, pass};
use crate::base::Nanos;
use crate::stream::attributes::Supervision;
use crate::stream::dsl::{FlowOps, Plain, Source};
use crate::stream::error::{IllegalArgument, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet, TimerKey};
use crate::stream::stage::made::{stage, stage_with};
use crate::stream::stage::supervised::{Judged, judge};
use crate::stream::stage::{FlowPorts, FlowShape, Logic, Setup, SourceShape};

const TIMER: TimerKey = TimerKey(0);

struct TakeWithin {
    window: Duration,
}

impl<T: 'static> Watch<T> for TakeWithin {
    fn start(&mut self, context: &mut Context) {
        context.schedule_once(TIMER, self.window);
    }

    fn timer(&mut self, context: &mut Context) {
        context.complete_stage();
    }
}

struct DropWithin<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    window: Duration,
    until: Nanos,
}

impl<T: 'static> Logic for DropWithin<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.until = context.now() + self.window;
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if context.now() < self.until {
            self.inlet.try_pull(context);
        } else {
            self.outlet.push(context, element);
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

struct InitialDelay<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    delay: Duration,
    is_over: bool,
}

impl<T: 'static> Logic for InitialDelay<T> {
    fn pre_start(&mut self, context: &mut Context) {
        context.schedule_once(TIMER, self.delay);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.is_over {
            self.inlet.pull(context);
        }
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        self.is_over = true;
        if self.outlet.is_available(context) {
            self.inlet.try_pull(context);
        }
    }
}

struct GroupedWithin<T, C> {
    inlet: Inlet<T>,
    outlet: Outlet<Vec<T>>,
    cost: C,
    supervision: Option<Supervision>,
    weight_max: u64,
    number_max: usize,
    window: Duration,
    group: Vec<T>,
    weight: u64,
    /// An element that did not fit, with its weight.
    next: Option<(T, u64)>,
    /// The group is to be emitted as soon as downstream asks.
    is_due: bool,
}

impl<T: 'static, C: FnMut(&T) -> u64 + 'static> GroupedWithin<T, C> {
    fn add(&mut self, context: &mut Context, element: T) {
        let cost = &mut self.cost;
        let weight = match judge(self.supervision.as_ref(), || Ok(cost(&element))) {
            Judged::Value(weight) => weight,
            Judged::Dropped(_) => return self.ask(context),
            Judged::Failed(error) => return context.fail_stage(error),
        };
        let fits = self.weight.saturating_add(weight) <= self.weight_max && self.group.len() < self.number_max;
        if fits || self.group.is_empty() {
            // An element that is too heavy for any group is one by itself.
            self.weight = self.weight.saturating_add(weight);
            self.group.push(element);
        } else {
            self.next = Some((element, weight));
        }
        let is_full = self.weight >= self.weight_max || self.group.len() >= self.number_max || self.next.is_some();
        if is_full {
            self.is_due = true;
            if self.outlet.is_available(context) {
                return self.emit_early(context);
            }
        }
        self.ask(context);
    }

    /// Asks for one element ahead.
    fn ask(&mut self, context: &mut Context) {
        if self.next.is_none() {
            self.inlet.try_pull(context);
        }
    }

    /// Emits the group before its time is over: the time of the next one begins.
    fn emit_early(&mut self, context: &mut Context) {
        context.schedule_with_fixed_delay(TIMER, self.window, self.window);
        self.emit(context);
    }

    /// Emits the group; there is demand.
    fn emit(&mut self, context: &mut Context) {
        self.is_due = false;
        self.weight = 0;
        if !self.group.is_empty() {
            let group = std::mem::take(&mut self.group);
            self.outlet.push(context, group);
        }
        if let Some((element, weight)) = self.next.take() {
            self.weight = weight;
            self.group.push(element);
            self.is_due = weight >= self.weight_max || self.number_max == 1;
        }
        if !self.inlet.is_closed(context) {
            self.ask(context);
        } else if self.group.is_empty() {
            context.complete_stage();
        } else {
            self.is_due = true;
        }
    }
}

impl<T: 'static, C: FnMut(&T) -> u64 + 'static> Logic for GroupedWithin<T, C> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.weight_max == 0 || self.number_max == 0 || self.window.is_zero() {
            let what = "a group must be allowed at least one element, and some time";
            context.fail_stage(StreamError::new(IllegalArgument { operator: "grouped_within", what }));
            return;
        }
        context.schedule_with_fixed_delay(TIMER, self.window, self.window);
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.add(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.is_due {
            self.emit_early(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.group.is_empty() {
            context.complete_stage();
            return;
        }
        self.is_due = true;
        if self.outlet.is_available(context) {
            self.emit(context);
        }
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        if self.group.is_empty() {
            return;
        }
        self.is_due = true;
        if self.outlet.is_available(context) {
            self.emit(context);
        }
    }
}

/// Operators that time decides.
pub trait WithinOps: FlowOps {
    /// Passes elements on for so long and then completes.
    fn take_within(self, window: Duration) -> Plain<Self, Self::Out> {
        pass(self, "take_within", move || TakeWithin { window })
    }

    /// Drops what comes within this time, and passes on what comes later.
    fn drop_within(self, window: Duration) -> Plain<Self, Self::Out> {
        self.via_stage(stage("drop_within", FlowShape::new(), move |FlowPorts { inlet, outlet }, _| DropWithin {
            inlet,
            outlet,
            window,
            until: Nanos::ZERO,
        }))
    }

    /// Asks for the first element after this time.
    fn initial_delay(self, delay: Duration) -> Plain<Self, Self::Out> {
        self.via_stage(stage("initial_delay", FlowShape::new(), move |FlowPorts { inlet, outlet }, _| InitialDelay {
            inlet,
            outlet,
            delay,
            is_over: false,
        }))
    }

    /// Gathers elements into vectors of `number` elements, or what came within the time.
    ///
    /// Emits when a group is full, or so long after the last one if there is any element. Back-pressures when a group
    /// waits for demand and one element more has come. Completes when upstream has and the rest is emitted. Fails with
    /// [`IllegalArgument`] if `number` or the time is 0.
    fn grouped_within(self, number: usize, window: Duration) -> Plain<Self, Vec<Self::Out>> {
        self.grouped_weighted_within(number as u64, number, window, |_| 1)
    }

    /// As [`WithinOps::grouped_within`], with groups that weigh `weight_max` and have `number_max` elements at most. An
    /// element that weighs more is a group by itself. A panic of the function is what the supervision decider says.
    fn grouped_weighted_within<C>(
        self,
        weight_max: u64,
        number_max: usize,
        window: Duration,
        weight: C,
    ) -> Plain<Self, Vec<Self::Out>>
    where
        C: FnMut(&Self::Out) -> u64 + Clone + Send + Sync + 'static,
    {
        self.via_stage(stage("grouped_within", FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
            GroupedWithin {
                inlet,
                outlet,
                cost: weight,
                supervision: setup.supervision(),
                weight_max,
                number_max,
                window,
                group: Vec::new(),
                weight: 0,
                next: None,
                is_due: false,
            }
        }))
    }
}

impl<S: FlowOps> WithinOps for S {}

#[derive(Default)]
struct TickState {
    is_cancelled: AtomicBool,
    waker: OnceLock<Waker>,
}

/// Ends a [`Source::tick`], from any thread.
#[derive(Clone)]
pub struct TickHandle(Arc<TickState>);

impl TickHandle {
    /// The source completes. False if it was cancelled, or had ended, before.
    pub fn cancel(&self) -> bool {
        let is_first = !self.0.is_cancelled.swap(true, Ordering::AcqRel);
        if is_first && let Some(waker) = self.0.waker.get() {
            waker.wake_by_ref();
        }
        is_first
    }

    /// Whether it was cancelled or has ended.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }
}

struct Tick<T> {
    outlet: Outlet<T>,
    initial: Duration,
    interval: Duration,
    element: T,
    state: Arc<TickState>,
}

impl<T: Clone + 'static> Logic for Tick<T> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.interval.is_zero() {
            let what = "the interval must not be zero";
            return context.fail_stage(StreamError::new(IllegalArgument { operator: "tick", what }));
        }
        context.schedule_with_fixed_delay(TIMER, self.initial, self.interval);
        self.on_wake(context);
    }

    /// The demand is looked at when the timer fires.
    fn on_pull(&mut self, _: &mut Context, _: usize) {}

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        if self.outlet.is_available(context) {
            self.outlet.push(context, self.element.clone());
        }
    }

    fn on_wake(&mut self, context: &mut Context) {
        if self.state.is_cancelled.load(Ordering::Acquire) {
            context.complete_stage();
        }
    }
}

impl<T> Drop for Tick<T> {
    fn drop(&mut self) {
        self.state.is_cancelled.store(true, Ordering::Release);
    }
}

impl<T: Clone + Send + Sync + 'static> Source<T, TickHandle> {
    /// Emits the element after `initial`, and then each time `interval` after the last one.
    ///
    /// Emits when the time has come and downstream has asked; without demand the tick is dropped. Completes when the
    /// materialized handle is cancelled. Fails with [`IllegalArgument`] if `interval` is zero.
    pub fn tick(initial: Duration, interval: Duration, element: T) -> Source<T, TickHandle> {
        Source::from_stage(stage_with("tick", SourceShape::new(), move |_| {
            let state = Arc::new(TickState::default());
            let handle = TickHandle(Arc::clone(&state));
            let element = element.clone();
            let create = move |outlet, setup: &Setup<'_>| {
                let _ = state.waker.set(setup.waker());
                Tick { outlet, initial, interval, element, state }
            };
            (create, handle)
        }))
    }
}
