//! Operators between a fast and a slow side: `buffer`, `batch`, `conflate`, `expand`, `detach`.
//!
//! All of them ask upstream on their own account. They complete when upstream has and what they hold is emitted; a failure
//! drops what they hold. They cancel when downstream cancels.

use std::collections::VecDeque;

use crate::stream::attributes::{Directive, Supervision};
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{BufferOverflow, IllegalArgument, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::stage;
use crate::stream::stage::supervised::{Judged, judge};
use crate::stream::stage::{FlowPorts, FlowShape, Logic};

/// Elements that a buffer has room for from the start; a larger one grows when it has to.
const BUFFER_SIZED_MAX: usize = 1024;

/// What a buffer does with an element for which it has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowStrategy {
    /// It does not ask for one.
    Backpressure,
    /// Drops the oldest element that it holds.
    DropHead,
    /// Drops the youngest element that it holds.
    DropTail,
    /// Drops all elements that it holds.
    DropBuffer,
    /// Fails with [`BufferOverflow`].
    Fail,
}

impl OverflowStrategy {
    /// Drops what is to be dropped of a full buffer. False if that is a failure.
    pub(super) fn make_room<T>(self, held: &mut VecDeque<T>) -> bool {
        match self {
            // Who back-pressures does not ask when it is full.
            OverflowStrategy::Backpressure => {}
            OverflowStrategy::DropHead => drop(held.pop_front()),
            OverflowStrategy::DropTail => drop(held.pop_back()),
            OverflowStrategy::DropBuffer => held.clear(),
            OverflowStrategy::Fail => return false,
        }
        true
    }
}

struct Buffer<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    capacity: usize,
    strategy: OverflowStrategy,
    held: VecDeque<T>,
}

impl<T: 'static> Buffer<T> {
    /// Makes room, or says that there is none for this element. Only full buffers come here.
    #[cold]
    fn overflow(&mut self, context: &mut Context) -> bool {
        if !self.strategy.make_room(&mut self.held) {
            context.fail_and_log(StreamError::new(BufferOverflow { capacity: self.capacity }));
            return false;
        }
        tracing::debug!(strategy = ?self.strategy, capacity = self.capacity, "a buffer was full");
        true
    }

    fn may_ask(&self) -> bool {
        self.strategy != OverflowStrategy::Backpressure || self.held.len() < self.capacity
    }
}

impl<T: 'static> Logic for Buffer<T> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.capacity == 0 {
            let error = IllegalArgument { operator: "buffer", what: "it needs room for at least one element" };
            return context.fail_and_log(StreamError::new(error));
        }
        self.inlet.pull(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if self.outlet.is_available(context) {
            // It was asked and had nothing, so it is empty.
            self.outlet.push(context, element);
        } else {
            if self.held.len() >= self.capacity && !self.overflow(context) {
                return;
            }
            self.held.push_back(element);
        }
        if self.may_ask() {
            self.inlet.pull(context);
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(element) = self.held.pop_front() {
            self.outlet.push(context, element);
        }
        if !self.inlet.is_closed(context) {
            self.inlet.try_pull(context);
        } else if self.held.is_empty() {
            context.complete_stage();
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.held.is_empty() {
            context.complete_stage();
        }
    }
}

#[derive(Clone)]
struct BatchFunctions<C, S, F> {
    max: u64,
    cost: C,
    seed: S,
    aggregate: F,
}

struct Batch<T, A, C, S, F> {
    inlet: Inlet<T>,
    outlet: Outlet<A>,
    functions: BatchFunctions<C, S, F>,
    supervision: Option<Supervision>,
    batch: Option<A>,
    /// What the batch may still cost.
    left: u64,
    /// An element that the batch had no room for, and what it costs.
    next: Option<(T, u64)>,
}

impl<T, A, C, S, F> Batch<T, A, C, S, F>
where
    T: 'static,
    A: 'static,
    C: FnMut(&T) -> u64,
    S: FnMut(T) -> A,
    F: FnMut(&mut A, T),
{
    /// Runs a user function. False if it failed and the stage with it.
    fn guarded(&mut self, context: &mut Context, run: impl FnOnce(&mut Self)) -> bool {
        let supervision = self.supervision.clone();
        let judged = judge(supervision.as_ref(), || {
            run(self);
            Ok(())
        });
        match judged {
            Judged::Failed(error) => {
                context.fail_and_log(error);
                return false;
            }
            Judged::Dropped(Directive::Restart) => {
                (self.batch, self.next) = (None, None);
                self.left = self.functions.max;
            }
            Judged::Value(()) | Judged::Dropped(_) => {}
        }
        true
    }

    fn begin(&mut self, element: T, cost: u64) {
        self.batch = Some((self.functions.seed)(element));
        self.left = self.functions.max.saturating_sub(cost);
    }

    fn add(&mut self, element: T) {
        let cost = (self.functions.cost)(&element);
        match &mut self.batch {
            None => self.begin(element, cost),
            Some(_) if self.left < cost => self.next = Some((element, cost)),
            Some(batch) => {
                (self.functions.aggregate)(batch, element);
                self.left -= cost;
            }
        }
    }

    /// Emits the batch; the element that waited begins the next one. False if the stage failed.
    fn flush(&mut self, context: &mut Context) -> bool {
        if let Some(batch) = self.batch.take() {
            self.outlet.push(context, batch);
            self.left = self.functions.max;
        }
        match self.next.take() {
            None => true,
            Some((element, cost)) => self.guarded(context, |stage| stage.begin(element, cost)),
        }
    }
}

impl<T, A, C, S, F> Logic for Batch<T, A, C, S, F>
where
    T: 'static,
    A: 'static,
    C: FnMut(&T) -> u64 + 'static,
    S: FnMut(T) -> A + 'static,
    F: FnMut(&mut A, T) + 'static,
{
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if !self.guarded(context, |stage| stage.add(element)) {
            return;
        }
        if self.outlet.is_available(context) && !self.flush(context) {
            return;
        }
        if self.next.is_none() {
            self.inlet.try_pull(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.batch.is_some() && !self.flush(context) {
            return;
        }
        if !self.inlet.is_closed(context) {
            self.inlet.try_pull(context);
        } else if self.batch.is_none() {
            context.complete_stage();
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.batch.is_none() {
            context.complete_stage();
        }
    }
}

struct Expand<T, I: IntoIterator, F> {
    inlet: Inlet<T>,
    outlet: Outlet<I::Item>,
    function: F,
    supervision: Option<Supervision>,
    /// What the last element expands to, its next one apart.
    rest: Option<I::IntoIter>,
    next: Option<I::Item>,
    /// Something of the last element was emitted.
    is_expanded: bool,
}

impl<T, I: IntoIterator, F: FnMut(T) -> I> Expand<T, I, F> {
    fn take_next(&mut self) -> Option<I::Item> {
        let next = self.next.take()?;
        self.next = self.rest.as_mut().and_then(Iterator::next);
        Some(next)
    }
}

impl<T, I, F> Logic for Expand<T, I, F>
where
    T: 'static,
    I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
    F: FnMut(T) -> I + 'static,
{
    fn pre_start(&mut self, context: &mut Context) {
        if !self.inlet.has_been_pulled(context) {
            self.inlet.pull(context);
        }
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let expand = |function: &mut F| {
            let mut rest = function(element).into_iter();
            let next = rest.next();
            (rest, next)
        };
        let function = &mut self.function;
        match judge(self.supervision.as_ref(), || Ok(expand(function))) {
            Judged::Value((rest, next)) => (self.rest, self.next) = (Some(rest), next),
            Judged::Failed(error) => return context.fail_and_log(error),
            Judged::Dropped(_) => return self.inlet.pull(context),
        }
        self.is_expanded = false;
        if self.next.is_none() {
            self.inlet.pull(context);
        } else if self.outlet.is_available(context) {
            self.on_pull(context, 0);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        let Some(next) = self.take_next() else { return };
        let is_first = !std::mem::replace(&mut self.is_expanded, true);
        // It asks for the next element before it repeats this one, so that a fast upstream is not thinned out.
        if is_first {
            self.inlet.try_pull(context);
        }
        self.outlet.push(context, next);
        if self.inlet.is_closed(context) {
            context.complete_stage();
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        // The last element is emitted once at least.
        if self.next.is_none() || self.is_expanded {
            context.complete_stage();
        }
    }
}

struct Detach<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
}

impl<T: 'static> Logic for Detach<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.try_pull(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        if self.outlet.is_available(context) {
            let element = self.inlet.grab(context);
            self.outlet.push(context, element);
            self.inlet.try_pull(context);
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(element) = self.inlet.try_grab(context) {
            self.outlet.push(context, element);
            if self.inlet.is_closed(context) {
                context.complete_stage();
            } else {
                self.inlet.try_pull(context);
            }
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if !self.inlet.is_available(context) {
            context.complete_stage();
        }
    }
}

/// Operators between a fast and a slow side.
pub trait BufferOps: FlowOps {
    /// Holds up to so many elements. Fails with [`IllegalArgument`] if there is to be no room.
    ///
    /// Emits when it holds something. Back-pressures, with [`OverflowStrategy::Backpressure`], when it is full; never with
    /// the others. Completes when upstream completed and it is empty. Cancels when downstream cancels.
    fn buffer(self, capacity: usize, strategy: OverflowStrategy) -> Plain<Self, Self::Out> {
        self.via_stage(stage("buffer", FlowShape::new(), move |FlowPorts { inlet, outlet }, _| {
            let held = VecDeque::with_capacity(capacity.min(BUFFER_SIZED_MAX));
            Buffer { inlet, outlet, capacity, strategy, held }
        }))
    }

    /// Gathers elements into a batch while downstream does not ask: the first one by `seed`, further ones by `aggregate`, up
    /// to `max` elements in one batch.
    ///
    /// Emits when it holds a batch. Back-pressures when the batch is full and another element waits. Completes when upstream
    /// completed and nothing waits. Cancels when downstream cancels.
    fn batch<A, S, F>(self, max: u64, seed: S, aggregate: F) -> Plain<Self, A>
    where
        A: 'static,
        S: FnMut(Self::Out) -> A + Clone + Send + Sync + 'static,
        F: FnMut(&mut A, Self::Out) + Clone + Send + Sync + 'static,
    {
        batch(self, "batch", max, |_: &Self::Out| 1, seed, aggregate)
    }

    /// As [`BufferOps::batch`], with a limit of the cost of a batch. An element that costs more by itself is a batch.
    fn batch_weighted<A, C, S, F>(self, max: u64, cost: C, seed: S, aggregate: F) -> Plain<Self, A>
    where
        A: 'static,
        C: FnMut(&Self::Out) -> u64 + Clone + Send + Sync + 'static,
        S: FnMut(Self::Out) -> A + Clone + Send + Sync + 'static,
        F: FnMut(&mut A, Self::Out) + Clone + Send + Sync + 'static,
    {
        batch(self, "batch_weighted", max, cost, seed, aggregate)
    }

    /// As [`BufferOps::batch`] without a limit: it never back-pressures.
    fn conflate_with_seed<A, S, F>(self, seed: S, aggregate: F) -> Plain<Self, A>
    where
        A: 'static,
        S: FnMut(Self::Out) -> A + Clone + Send + Sync + 'static,
        F: FnMut(&mut A, Self::Out) + Clone + Send + Sync + 'static,
    {
        batch(self, "conflate", 1, |_: &Self::Out| 0, seed, aggregate)
    }

    /// Adds further elements to the one that waits while downstream does not ask. It never back-pressures.
    fn conflate<F>(self, aggregate: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(&mut Self::Out, Self::Out) + Clone + Send + Sync + 'static,
    {
        self.conflate_with_seed(|element| element, aggregate)
    }

    /// Emits what the function makes of the last element, as long as there is no newer one. An element of which it makes
    /// nothing is passed over.
    ///
    /// Emits when downstream asks and the iterator has something. Back-pressures while an element waits of which nothing was
    /// emitted. Completes when upstream completed and something of the last element was emitted. Cancels when downstream
    /// cancels.
    fn expand<I, F>(self, function: F) -> Plain<Self, I::Item>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
        F: FnMut(Self::Out) -> I + Clone + Send + Sync + 'static,
    {
        expand(self, function, None::<fn() -> I>)
    }

    /// Emits each element, and then what the function makes of it, as long as there is no newer one.
    fn extrapolate<I, F>(self, mut function: F) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone,
        I: IntoIterator<Item = Self::Out, IntoIter: 'static> + 'static,
        F: FnMut(Self::Out) -> I + Clone + Send + Sync + 'static,
    {
        let function = move |element: Self::Out| std::iter::once(element.clone()).chain(function(element));
        expand(self, function, None::<fn() -> _>)
    }

    /// As [`BufferOps::extrapolate`], with an element before the first of upstream.
    fn extrapolate_from<I, F>(self, initial: Self::Out, mut function: F) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone + Send + Sync,
        I: IntoIterator<Item = Self::Out, IntoIter: 'static> + 'static,
        F: FnMut(Self::Out) -> I + Clone + Send + Sync + 'static,
    {
        let extrapolate = move |element: Self::Out| std::iter::once(element.clone()).chain(function(element));
        let mut first = extrapolate.clone();
        expand(self, extrapolate, Some(move || first(initial)))
    }

    /// Asks for one element ahead of downstream. In a cycle it is what makes elements go round.
    fn detach(self) -> Plain<Self, Self::Out> {
        self.via_stage(stage("detach", FlowShape::new(), |FlowPorts { inlet, outlet }, _| Detach { inlet, outlet }))
    }
}

fn batch<W, A, C, S, F>(flow: W, name: &'static str, max: u64, cost: C, seed: S, aggregate: F) -> Plain<W, A>
where
    W: FlowOps,
    A: 'static,
    C: FnMut(&W::Out) -> u64 + Clone + Send + Sync + 'static,
    S: FnMut(W::Out) -> A + Clone + Send + Sync + 'static,
    F: FnMut(&mut A, W::Out) + Clone + Send + Sync + 'static,
{
    let functions = BatchFunctions { max, cost, seed, aggregate };
    flow.via_stage(stage(name, FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
        let supervision = setup.supervision();
        Batch { inlet, outlet, left: max, functions, supervision, batch: None, next: None }
    }))
}

fn expand<W, I, F, G>(flow: W, function: F, first: Option<G>) -> Plain<W, I::Item>
where
    W: FlowOps,
    I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
    F: FnMut(W::Out) -> I + Clone + Send + Sync + 'static,
    G: FnOnce() -> I + Clone + Send + Sync + 'static,
{
    flow.via_stage(stage("expand", FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
        let mut rest = first.map(|first| first().into_iter());
        let next = rest.as_mut().and_then(Iterator::next);
        let supervision = setup.supervision();
        Expand::<W::Out, I, F> { inlet, outlet, function, supervision, rest, next, is_expanded: false }
    }))
}

impl<S: FlowOps> BufferOps for S {}
