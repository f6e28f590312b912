//! The stages that the tables need, written as users write theirs and as the reference behaves.

use std::collections::VecDeque;

use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{FanInShape, FanOutShape, Logic, ZipPorts, ZipShape};
use atoll::stream::testkit::{InterpreterBench, StageHandle};
use atoll::stream::{Cancellation, StreamError};

use super::bench_support::*;

macro_rules! flow_stage {
    ($(#[$about:meta])* $function:ident($($field:ident: $kind:ty),*) -> $logic:ident [$($bounds:tt)*] [$($names:tt)*]
        $in:ty => $out:ty { $($state:ident: $state_type:ty = $initial:expr),* $(,)? }) => {
        struct $logic<$($bounds)*> {
            inlet: Inlet<$in>,
            outlet: Outlet<$out>,
            $($field: $kind,)*
            $($state: $state_type,)*
        }
        $(#[$about])*
        pub fn $function<$($bounds)*>(bench: &mut InterpreterBench, $($field: $kind),*) -> StageHandle {
            flow::<$in, $out, $logic<$($names)*>>(bench, stringify!($function), move |ports| $logic {
                inlet: ports.inlet,
                outlet: ports.outlet,
                $($field,)*
                $($state: $initial,)*
            })
        }
    };
}

flow_stage!(
    /// Asks for an element before it is asked, and keeps one.
    detacher() -> Detacher [T: 'static] [T] T => T {}
);

impl<T: 'static> Logic for Detacher<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.try_pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        if self.outlet.is_available(context) {
            let element = self.inlet.grab(context);
            self.outlet.push(context, element);
            self.inlet.try_pull(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(element) = self.inlet.try_grab(context) {
            self.outlet.push(context, element);
            if self.inlet.is_closed(context) {
                context.complete_stage();
            } else {
                self.inlet.pull(context);
            }
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if !self.inlet.is_available(context) {
            context.complete_stage();
        }
    }
}

flow_stage!(
    /// Each element twice.
    doubler() -> Doubler [T: Clone + 'static] [T] T => T { kept: Option<T> = None }
);

impl<T: Clone + 'static> Logic for Doubler<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.kept = Some(element.clone());
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        match self.kept.take() {
            Some(element) => {
                self.outlet.push(context, element);
                if self.inlet.is_closed(context) {
                    context.complete_stage();
                }
            }
            None => self.inlet.pull(context),
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.kept.is_none() {
            context.complete_stage();
        }
    }
}

flow_stage!(
    /// Passes what fits, and asks for the next one ahead, as the filter of the reference does.
    filter(fits: fn(&T) -> bool) -> Filter [T: 'static] [T] T => T { kept: Option<T> = None }
);

impl<T: 'static> Logic for Filter<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if !(self.fits)(&element) {
            self.inlet.pull(context);
        } else if self.outlet.is_available(context) {
            self.outlet.push(context, element);
            self.inlet.pull(context);
        } else {
            self.kept = Some(element);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(element) = self.kept.take() {
            self.outlet.push(context, element);
            if self.inlet.is_closed(context) {
                context.complete_stage();
            } else {
                self.inlet.pull(context);
            }
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.kept.is_none() {
            context.complete_stage();
        }
    }
}

flow_stage!(
    /// The sum of all elements, when they end.
    fold_sum() -> FoldSum [] [] i64 => i64 { sum: i64 = 0 }
);

impl Logic for FoldSum {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.sum += self.inlet.grab(context);
        self.inlet.try_pull(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.inlet.is_closed(context) {
            self.outlet.push(context, self.sum);
            context.complete_stage();
        } else {
            self.inlet.pull(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.outlet.is_available(context) {
            self.outlet.push(context, self.sum);
            context.complete_stage();
        }
    }
}

flow_stage!(
    /// Groups of so many; the last one may be smaller.
    grouped(size: usize) -> Grouped [T: 'static] [T] T => Vec<T> { group: Vec<T> = Vec::new() }
);

impl<T: 'static> Logic for Grouped<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.group.push(self.inlet.grab(context));
        if self.group.len() == self.size {
            let group = std::mem::take(&mut self.group);
            self.outlet.push(context, group);
        } else {
            self.inlet.pull(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if !self.group.is_empty() {
            let group = std::mem::take(&mut self.group);
            self.outlet.push(context, group);
        }
        context.complete_stage();
    }
}

flow_stage!(
    /// Adds up while downstream does not ask.
    batch() -> Batch [] [] i64 => i64 { sum: Option<i64> = None }
);

impl Logic for Batch {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.sum = Some(self.sum.unwrap_or(0) + element);
        if self.outlet.is_available(context)
            && let Some(sum) = self.sum.take()
        {
            self.outlet.push(context, sum);
        }
        self.inlet.pull(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        match self.sum.take() {
            None if self.inlet.is_closed(context) => context.complete_stage(),
            None => self.inlet.try_pull(context),
            Some(sum) => {
                self.outlet.push(context, sum);
                if self.inlet.is_closed(context) {
                    context.complete_stage();
                } else {
                    self.inlet.try_pull(context);
                }
            }
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.sum.is_none() {
            context.complete_stage();
        }
    }
}

pub type Numbers = Box<dyn Iterator<Item = i64>>;

flow_stage!(
    /// Makes elements of the last one while no new one comes.
    expand(extrapolate: fn(i64) -> Numbers) -> Expand [] [] i64 => i64 {
        numbers: std::iter::Peekable<Numbers> = (Box::new(std::iter::empty()) as Numbers).peekable(),
        expanded: bool = false,
    }
);

impl Expand {
    fn push_next(&mut self, context: &mut Context) {
        if let Some(next) = self.numbers.next() {
            self.outlet.push(context, next);
        }
    }
}

impl Logic for Expand {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.numbers = (self.extrapolate)(self.inlet.grab(context)).peekable();
        if self.numbers.peek().is_none() {
            self.inlet.pull(context);
        } else if self.outlet.is_available(context) {
            self.expanded = true;
            self.inlet.pull(context);
            self.push_next(context);
        } else {
            self.expanded = false;
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.numbers.peek().is_none() {
            return;
        }
        if self.expanded {
            self.push_next(context);
            return;
        }
        self.expanded = true;
        if self.inlet.is_closed(context) {
            self.push_next(context);
            context.complete_stage();
        } else {
            self.inlet.pull(context);
            self.push_next(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.numbers.peek().is_none() || self.expanded {
            context.complete_stage();
        }
    }
}

flow_stage!(
    /// Goes on with the last element when upstream has completed.
    keep_going() -> KeepGoing [T: Clone + 'static] [T] T => T { last: Option<T> = None }
);

impl<T: Clone + 'static> Logic for KeepGoing<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.last = Some(element.clone());
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if !self.inlet.is_closed(context) {
            self.inlet.pull(context);
        } else if let Some(last) = self.last.clone() {
            self.outlet.push(context, last);
        }
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {}
}

flow_stage!(
    /// Pushes one element and completes; says when it has stopped. It must not see the end of upstream.
    push_and_finish(log: Log) -> PushAndFinish [T: 'static] [T] T => T {}
);

impl<T: 'static> Logic for PushAndFinish<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
        context.complete_stage();
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        context.fail_stage(StreamError::new(TestError("must not be seen")));
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add("stop");
    }
}

// ---- junctions ----

struct Zip<A, B>(ZipPorts<A, B, (A, B)>);

impl<A: 'static, B: 'static> Zip<A, B> {
    fn push_pair(&mut self, context: &mut Context) {
        let ports = &self.0;
        let ready = ports.first.is_available(context) && ports.second.is_available(context);
        if !ready || !ports.outlet.is_available(context) {
            return;
        }
        let pair = (ports.first.grab(context), ports.second.grab(context));
        ports.outlet.push(context, pair);
        if ports.first.is_closed(context) || ports.second.is_closed(context) {
            context.complete_stage();
        } else {
            ports.first.pull(context);
            ports.second.pull(context);
        }
    }
}

impl<A: 'static, B: 'static> Logic for Zip<A, B> {
    fn pre_start(&mut self, context: &mut Context) {
        self.0.first.pull(context);
        self.0.second.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.push_pair(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.push_pair(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        let available =
            if inlet == 0 { self.0.first.is_available(context) } else { self.0.second.is_available(context) };
        if !available {
            context.complete_stage();
        }
    }
}

/// Pairs.
pub fn zip<A: 'static, B: 'static>(bench: &mut InterpreterBench) -> StageHandle {
    bench.stage("zip", ZipShape::<A, B, (A, B)>::new(), |ports, _| Zip(ports))
}

struct Broadcast<T> {
    inlet: Inlet<T>,
    outlets: Vec<Outlet<T>>,
    pending: Vec<bool>,
}

impl<T: Clone + 'static> Broadcast<T> {
    fn pull_if_all_want(&mut self, context: &mut Context) {
        let all = self.outlets.iter().zip(&self.pending).all(|(outlet, wants)| *wants || outlet.is_closed(context));
        if all {
            self.inlet.try_pull(context);
        }
    }
}

impl<T: Clone + 'static> Logic for Broadcast<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        for (outlet, wants) in self.outlets.iter().zip(&mut self.pending) {
            if !outlet.is_closed(context) {
                *wants = false;
                outlet.push(context, element.clone());
            }
        }
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        self.pending[outlet] = true;
        self.pull_if_all_want(context);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        if self.outlets.iter().all(|outlet| outlet.is_closed(context)) {
            context.cancel_stage(cause);
        } else {
            self.pull_if_all_want(context);
        }
    }
}

/// Each element to each outlet.
pub fn broadcast<T: Clone + 'static>(bench: &mut InterpreterBench, outlets: u16) -> StageHandle {
    bench.stage("broadcast", FanOutShape::<T, T>::new(outlets), move |(inlet, outlets), _| Broadcast {
        inlet,
        pending: vec![false; outlets.len()],
        outlets,
    })
}

struct Merge<T> {
    inlets: Vec<Inlet<T>>,
    outlet: Outlet<T>,
    waiting: VecDeque<usize>,
    running: usize,
}

impl<T: 'static> Logic for Merge<T> {
    fn pre_start(&mut self, context: &mut Context) {
        for inlet in &self.inlets {
            inlet.try_pull(context);
        }
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        if self.outlet.is_available(context) && self.waiting.is_empty() {
            let element = self.inlets[inlet].grab(context);
            self.outlet.push(context, element);
            self.inlets[inlet].try_pull(context);
        } else {
            self.waiting.push_back(inlet);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(inlet) = self.waiting.pop_front() {
            let element = self.inlets[inlet].grab(context);
            self.outlet.push(context, element);
            if self.running == 0 && self.waiting.is_empty() {
                context.complete_stage();
            } else {
                self.inlets[inlet].try_pull(context);
            }
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.running -= 1;
        if self.running == 0 && self.waiting.is_empty() {
            context.complete_stage();
        }
    }
}

/// Whatever comes first.
pub fn merge<T: 'static>(bench: &mut InterpreterBench, inlets: u16) -> StageHandle {
    bench.stage("merge", FanInShape::<T, T>::new(inlets), move |(inlets, outlet), _| Merge {
        running: inlets.len(),
        inlets,
        outlet,
        waiting: VecDeque::new(),
    })
}

struct Balance<T> {
    inlet: Inlet<T>,
    outlets: Vec<Outlet<T>>,
    waiting: VecDeque<usize>,
}

impl<T: 'static> Logic for Balance<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        while let Some(outlet) = self.waiting.pop_front() {
            if !self.outlets[outlet].is_closed(context) {
                let element = self.inlet.grab(context);
                self.outlets[outlet].push(context, element);
                if !self.waiting.is_empty() {
                    self.inlet.pull(context);
                }
                return;
            }
        }
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        if let Some(element) = self.inlet.try_grab(context) {
            self.outlets[outlet].push(context, element);
        } else {
            self.waiting.push_back(outlet);
            self.inlet.try_pull(context);
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        if self.outlets.iter().all(|outlet| outlet.is_closed(context)) {
            context.cancel_stage(cause);
        }
    }
}

/// Each element to whoever asks.
pub fn balance<T: 'static>(bench: &mut InterpreterBench, outlets: u16) -> StageHandle {
    bench.stage("balance", FanOutShape::<T, T>::new(outlets), move |(inlet, outlets), _| Balance {
        inlet,
        outlets,
        waiting: VecDeque::new(),
    })
}
