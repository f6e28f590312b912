//! Elements of any input as they come, or by their order.

use std::collections::VecDeque;
use std::marker::PhantomData;

use super::ask_all;
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::{FanInShape, Logic, Setup, ZipPorts, ZipShape};

blueprint!(
    /// Emits what comes first, from any input.
    ///
    /// Emits when an input has an element, the one that waits for longest first. Completes when all inputs have, or with
    /// [`Merge::eager_complete`] when one has.
    Merge<T> { inputs: u16, eager: bool }
);

impl<T> Merge<T> {
    /// A junction with so many inputs.
    #[must_use]
    pub fn new(inputs: u16) -> Merge<T> {
        Merge { inputs, eager: false, elements: PhantomData }
    }

    /// Completes when the first input does.
    #[must_use]
    pub fn eager_complete(mut self) -> Merge<T> {
        self.eager = true;
        self
    }
}

/// The running stage of [`Merge`].
pub struct MergeLogic<T> {
    inlets: Vec<Inlet<T>>,
    outlet: Outlet<T>,
    /// Inputs with an element, in the order of its arrival; each at most once.
    waiting: VecDeque<usize>,
    open: usize,
    eager: bool,
}

impl<T: 'static> Blueprint for Merge<T> {
    type Shape = FanInShape<T, T>;
    type Logic = MergeLogic<T>;
    const NAME: &'static str = "merge";

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn logic(self, (inlets, outlet): (Vec<Inlet<T>>, Outlet<T>), _: &Setup<'_>) -> Self::Logic {
        let Merge { eager, .. } = self;
        let open = inlets.len();
        MergeLogic { waiting: VecDeque::with_capacity(open), inlets, outlet, open, eager }
    }
}

impl<T: 'static> MergeLogic<T> {
    fn give(&mut self, context: &mut Context, inlet: usize) {
        let inlet = &self.inlets[inlet];
        if let Some(element) = inlet.try_grab(context) {
            self.outlet.push(context, element);
            inlet.try_pull(context);
        }
        if self.open == 0 && self.waiting.is_empty() {
            context.complete_stage();
        }
    }
}

impl<T: 'static> Logic for MergeLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        ask_all(context, &self.inlets);
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        if self.outlet.is_available(context) {
            self.give(context, inlet);
        } else {
            self.waiting.push_back(inlet);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        while let Some(inlet) = self.waiting.pop_front() {
            if self.inlets[inlet].is_available(context) {
                self.give(context, inlet);
                return;
            }
        }
        if self.open == 0 {
            context.complete_stage();
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.eager {
            for inlet in &self.inlets {
                inlet.cancel(context);
            }
            self.open = 0;
            self.waiting.retain(|inlet| self.inlets[*inlet].is_available(context));
        } else {
            self.open -= 1;
        }
        if self.open == 0 && self.waiting.is_empty() {
            context.complete_stage();
        }
    }
}

blueprint!(
    /// As [`Merge`], but elements of the first input go before all others.
    MergePreferred<T> { merge: Merge<T> }
);

impl<T> MergePreferred<T> {
    /// A junction with a preferred input (inlet 0) and so many others.
    #[must_use]
    pub fn new(others: u16) -> MergePreferred<T> {
        MergePreferred { merge: Merge::new(others + 1), elements: PhantomData }
    }
}

/// The running stage of [`MergePreferred`].
pub struct MergePreferredLogic<T> {
    merge: MergeLogic<T>,
}

impl<T: 'static> Blueprint for MergePreferred<T> {
    type Shape = FanInShape<T, T>;
    type Logic = MergePreferredLogic<T>;
    const NAME: &'static str = "merge_preferred";

    fn shape(&self) -> Self::Shape {
        self.merge.shape()
    }

    fn logic(self, ports: (Vec<Inlet<T>>, Outlet<T>), setup: &Setup<'_>) -> Self::Logic {
        MergePreferredLogic { merge: self.merge.logic(ports, setup) }
    }
}

impl<T: 'static> Logic for MergePreferredLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.merge.pre_start(context);
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        self.merge.on_push(context, inlet);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        if let Some(at) = self.merge.waiting.iter().position(|inlet| *inlet == 0) {
            self.merge.waiting.remove(at);
            self.merge.waiting.push_front(0);
        }
        self.merge.on_pull(context, outlet);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        self.merge.on_upstream_finish(context, inlet);
    }
}

blueprint!(
    /// Two sorted streams become one sorted stream.
    ///
    /// Emits when both inputs have an element, or one has and the other is complete. Completes when both have.
    MergeSorted<T; F> { before: F }
);

impl<T: Ord> MergeSorted<T, fn(&T, &T) -> bool> {
    /// By the order of the elements.
    #[must_use]
    pub fn new() -> Self {
        MergeSorted { before: |left, right| left <= right, elements: PhantomData }
    }
}

impl<T: Ord> Default for MergeSorted<T, fn(&T, &T) -> bool> {
    fn default() -> Self {
        MergeSorted::new()
    }
}

impl<T, F: Fn(&T, &T) -> bool> MergeSorted<T, F> {
    /// By a function that says whether the first may go before the second.
    pub fn by(before: F) -> Self {
        MergeSorted { before, elements: PhantomData }
    }
}

/// The running stage of [`MergeSorted`].
pub struct MergeSortedLogic<T, F> {
    ports: ZipPorts<T, T, T>,
    before: F,
    left: Option<T>,
    right: Option<T>,
}

impl<T: 'static, F: Fn(&T, &T) -> bool + Clone + Send + Sync + 'static> Blueprint for MergeSorted<T, F> {
    type Shape = ZipShape<T, T, T>;
    type Logic = MergeSortedLogic<T, F>;
    const NAME: &'static str = "merge_sorted";

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn logic(self, ports: ZipPorts<T, T, T>, _: &Setup<'_>) -> Self::Logic {
        let MergeSorted { before, .. } = self;
        MergeSortedLogic { ports, before, left: None, right: None }
    }
}

impl<T: 'static, F: Fn(&T, &T) -> bool + 'static> MergeSortedLogic<T, F> {
    fn step(&mut self, context: &mut Context) {
        let ports = &self.ports;
        if self.left.is_none() {
            self.left = ports.first.try_grab(context);
        }
        if self.right.is_none() {
            self.right = ports.second.try_grab(context);
        }
        let left_ended = self.left.is_none() && ports.first.is_closed(context);
        let right_ended = self.right.is_none() && ports.second.is_closed(context);
        if left_ended && right_ended {
            context.complete_stage();
            return;
        }
        if !ports.outlet.is_available(context) {
            return;
        }
        let take_left = match (&self.left, &self.right) {
            (Some(left), Some(right)) => (self.before)(left, right),
            (Some(_), None) if right_ended => true,
            (None, Some(_)) if left_ended => false,
            _ => return,
        };
        let (element, inlet) =
            if take_left { (self.left.take(), &ports.first) } else { (self.right.take(), &ports.second) };
        if let Some(element) = element {
            ports.outlet.push(context, element);
            inlet.try_pull(context);
        }
        let ended = |element: &Option<T>, inlet: &Inlet<T>, context: &Context| {
            element.is_none() && inlet.is_closed(context) && !inlet.is_available(context)
        };
        if ended(&self.left, &ports.first, context) && ended(&self.right, &ports.second, context) {
            context.complete_stage();
        }
    }
}

impl<T: 'static, F: Fn(&T, &T) -> bool + 'static> Logic for MergeSortedLogic<T, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.ports.first.pull(context);
        self.ports.second.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }
}
