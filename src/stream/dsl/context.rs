//! Streams whose elements carry a context with them: an offset to commit, a span, a request to answer.
//!
//! Thin wrappers around sources and flows of `(element, context)`. Functions see the element; the context goes where its
//! element goes: it is dropped with it, duplicated with it and gathered with it. Enter with
//! [`Source::as_source_with_context`] or [`WithContext::from_tuples`], leave with [`WithContext::as_source`] or
//! [`WithContext::as_flow`].
//!
//! Contexts come out in the order in which they went in. That is what makes it right to commit an offset when it comes
//! out, so there is deliberately nothing here that reorders (`map_async_unordered`), merges, or makes elements of several
//! others without a rule for their contexts. An operator that drops elements drops contexts too; where each of them
//! matters, keep the element and map it to an `Option`.

use std::fmt::Debug;
use std::future::Future;
use std::marker::PhantomData;

use super::flow_ops::{Chain, FlowOps, Plain};
use super::{Flow, Fusable, Identity, Source};
use crate::stream::attributes::Supervision;
use crate::stream::error::StreamError;
use crate::stream::operators::elementwise::{Filter, Fused, Map, Take, TryMap};
use crate::stream::operators::selection::{self, CollectWhile, DropWhile, FilterNot, MapOption, TakeWhile};
use crate::stream::operators::{ElementwiseOps, GroupOps, MapAsyncOps, Rate, RateOps, SelectionOps, WatchingOps};
use crate::stream::stage::elementwise::{Elementwise, Step, Then};

/// A source or flow of elements with contexts. `S` is the source or flow of `(element, context)`.
#[derive(Clone)]
#[must_use = "a blueprint does nothing until it runs"]
pub struct WithContext<S>(S);

/// A source of elements with contexts; see [`WithContext`].
pub type SourceWithContext<T, C, M = (), P = Identity<(T, C)>> = WithContext<Source<(T, C), M, P>>;

/// A flow of elements with contexts; see [`WithContext`].
pub type FlowWithContext<In, CIn, Out, COut, M = (), P = Identity<(Out, COut)>> =
    WithContext<Flow<(In, CIn), (Out, COut), M, P>>;

/// An operator on single elements, with the context of each beside it.
pub struct OnElement<N, C> {
    operator: N,
    context: PhantomData<fn(C) -> C>,
}

impl<N: Clone, C> Clone for OnElement<N, C> {
    fn clone(&self) -> Self {
        OnElement { operator: self.operator.clone(), context: PhantomData }
    }
}

#[inline(always)]
fn beside<T, C>(step: Step<T>, context: C) -> Step<(T, C)> {
    match step {
        Step::Emit(element) => Step::Emit((element, context)),
        Step::Skip => Step::Skip,
        Step::Last(element) => Step::Last((element, context)),
        Step::Done => Step::Done,
        Step::Fail(error) => Step::Fail(error),
    }
}

impl<N: Elementwise, C: 'static> Elementwise for OnElement<N, C> {
    type In = (N::In, C);
    type Out = (N::Out, C);

    #[inline(always)]
    fn step(&mut self, (element, context): Self::In) -> Step<Self::Out> {
        beside(self.operator.step(element), context)
    }

    fn restart(&mut self) {
        self.operator.restart();
    }

    fn takes_nothing(&self) -> bool {
        self.operator.takes_nothing()
    }

    fn step_supervised(&mut self, (element, context): Self::In, supervision: &Supervision) -> Step<Self::Out> {
        beside(self.operator.step_supervised(element, supervision), context)
    }
}

impl<N: Fusable, C: 'static> Fusable for OnElement<N, C> {
    type In = (N::In, C);
    type Out = (N::Out, C);
    type Function = OnElement<N::Function, C>;

    fn create(&self) -> Self::Function {
        OnElement { operator: self.operator.create(), context: PhantomData }
    }
}

/// [`WithContext::map_context`].
pub struct MapContext<T, C, D, F> {
    function: F,
    types: PhantomData<fn(T, C) -> D>,
}

impl<T, C, D, F: Clone> Clone for MapContext<T, C, D, F> {
    fn clone(&self) -> Self {
        MapContext { function: self.function.clone(), types: PhantomData }
    }
}

impl<T: 'static, C: 'static, D: 'static, F: FnMut(C) -> D + 'static> Elementwise for MapContext<T, C, D, F> {
    type In = (T, C);
    type Out = (T, D);

    #[inline(always)]
    fn step(&mut self, (element, context): (T, C)) -> Step<(T, D)> {
        Step::Emit((element, (self.function)(context)))
    }
}

impl<T: 'static, C: 'static, D: 'static, F> Fusable for MapContext<T, C, D, F>
where
    F: FnMut(C) -> D + Clone + Send + Sync + 'static,
{
    type In = (T, C);
    type Out = (T, D);
    type Function = Self;

    fn create(&self) -> Self {
        self.clone()
    }
}

/// A source or flow with one more operator on elements.
pub type Lifted<S, N, C> = WithContext<Fused<S, OnElement<N, C>>>;

/// A source or flow with another end and another materialized value.
pub type Ended<S, T, M> = WithContext<<S as FlowOps>::With<T, M, Identity<T>>>;

/// A source or flow of several elements at a time, with their contexts.
pub type Gathered<S, T, C> = WithContext<Plain<S, (Vec<T>, Vec<C>)>>;

/// What a flow of one operator fuses.
pub type Only<T, N> = Then<Identity<T>, N>;

/// The operators of a flow, each with the context beside it.
fn lift<T: 'static, C: 'static, S: FlowOps<Out = (T, C)>, N: Fusable<In = T>>(
    stream: S,
    flow: Flow<T, N::Out, (), N>,
) -> Lifted<S, N, C> {
    let Chain { tail, names, .. } = flow.into_chain();
    let name = names.first().copied().unwrap_or("identity");
    WithContext(stream.fuse(name, OnElement { operator: tail, context: PhantomData }))
}

impl<T: 'static, C: 'static, M: 'static, P: Fusable<Out = (T, C)>> SourceWithContext<T, C, M, P> {
    /// Leaves: the source of elements and contexts.
    pub fn as_source(self) -> Source<(T, C), M, P> {
        self.0
    }
}

impl<In, CIn, T, C, M, P> FlowWithContext<In, CIn, T, C, M, P>
where
    In: 'static,
    CIn: 'static,
    T: 'static,
    C: 'static,
    M: 'static,
    P: Fusable<Out = (T, C)>,
{
    /// Leaves: the flow of elements and contexts.
    pub fn as_flow(self) -> Flow<(In, CIn), (T, C), M, P> {
        self.0
    }
}

impl<T: 'static, C: 'static> FlowWithContext<T, C, T, C> {
    /// The flow that does nothing: where a flow with contexts begins.
    pub fn new() -> Self {
        WithContext(Flow::new())
    }
}

impl<T: 'static, C: 'static> Default for FlowWithContext<T, C, T, C> {
    fn default() -> Self {
        FlowWithContext::new()
    }
}

impl<T: 'static, M: 'static, P: Fusable<Out = T>> Source<T, M, P> {
    /// Enters: each element with the context that the function makes of it. See [`WithContext`].
    ///
    /// ```
    /// use atoll::stream::dsl::{Sink, Source};
    ///
    /// let lines = Source::from_iterator(|| [(7, "ten"), (8, "10")]);
    /// let numbers = lines.as_source_with_context(|(offset, _)| *offset).map_option(|(_, line)| line.parse::<u32>().ok());
    /// let graph = numbers.as_source().to_right(Sink::<(u32, i32), _>::seq());
    /// ```
    pub fn as_source_with_context<C: 'static>(
        self,
        mut context: impl FnMut(&T) -> C + Clone + Send + Sync + 'static,
    ) -> SourceWithContext<T, C, M> {
        let tuples = self.map(move |element| {
            let context = context(&element);
            (element, context)
        });
        WithContext(tuples.seal())
    }
}

impl<T: 'static, C: 'static, S: FlowOps<Out = (T, C)>> WithContext<S> {
    /// Enters: a source or flow of elements and contexts.
    pub fn from_tuples(tuples: S) -> Self {
        WithContext(tuples)
    }

    /// As [`FlowOps::seal`]: makes the type short again.
    pub fn seal(self) -> WithContext<Plain<S, (T, C)>> {
        WithContext(self.0.seal())
    }

    /// Appends a flow with contexts. Its materialized value is dropped.
    pub fn via<U: 'static, D: 'static, M: 'static, P: Fusable<Out = (U, D)>>(
        self,
        flow: FlowWithContext<T, C, U, D, M, P>,
    ) -> WithContext<Plain<S, (U, D)>> {
        WithContext(self.0.via(flow.0))
    }

    /// Appends a flow with contexts and combines the materialized values. See [`super::keep`].
    pub fn via_mat<U: 'static, D: 'static, M: 'static, R: 'static, P: Fusable<Out = (U, D)>>(
        self,
        flow: FlowWithContext<T, C, U, D, M, P>,
        combine: impl Fn(S::Mat, M) -> R + Send + Sync + 'static,
    ) -> Ended<S, (U, D), R> {
        WithContext(self.0.via_mat(flow.0, combine))
    }

    /// Computes on the materialized value.
    pub fn map_materialized_value<M: 'static>(
        self,
        transform: impl Fn(S::Mat) -> M + Send + Sync + 'static,
    ) -> Ended<S, (T, C), M> {
        WithContext(self.0.map_materialized_value(transform))
    }

    /// See [`ElementwiseOps::map`].
    pub fn map<U: 'static, F>(self, function: F) -> Lifted<S, Only<T, Map<T, U, F>>, C>
    where
        F: FnMut(T) -> U + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().map(function))
    }

    /// See [`ElementwiseOps::try_map`].
    pub fn try_map<U: 'static, F>(self, function: F) -> Lifted<S, Only<T, TryMap<T, U, F>>, C>
    where
        F: FnMut(T) -> Result<U, StreamError> + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().try_map(function))
    }

    /// See [`SelectionOps::map_option`].
    pub fn map_option<U: 'static, F>(self, function: F) -> Lifted<S, Only<T, MapOption<T, U, F>>, C>
    where
        F: FnMut(T) -> Option<U> + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().map_option(function))
    }

    /// See [`SelectionOps::collect_while`].
    pub fn collect_while<U: 'static, F>(self, function: F) -> Lifted<S, Only<T, CollectWhile<T, U, F>>, C>
    where
        F: FnMut(T) -> Option<U> + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().collect_while(function))
    }

    /// See [`ElementwiseOps::filter`].
    pub fn filter<F>(self, predicate: F) -> Lifted<S, Only<T, Filter<T, T, F>>, C>
    where
        F: FnMut(&T) -> bool + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().filter(predicate))
    }

    /// See [`SelectionOps::filter_not`].
    pub fn filter_not<F>(self, predicate: F) -> Lifted<S, Only<T, FilterNot<T, F>>, C>
    where
        F: FnMut(&T) -> bool + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().filter_not(predicate))
    }

    /// See [`ElementwiseOps::take`].
    pub fn take(self, elements: u64) -> Lifted<S, Only<T, Take<T>>, C> {
        lift(self.0, Flow::new().take(elements))
    }

    /// See [`SelectionOps::take_while`].
    pub fn take_while<F>(self, predicate: F) -> Lifted<S, Only<T, TakeWhile<T, F>>, C>
    where
        F: FnMut(&T) -> bool + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().take_while(predicate))
    }

    /// See [`SelectionOps::drop`].
    pub fn drop(self, elements: u64) -> Lifted<S, Only<T, selection::Drop<T>>, C> {
        lift(self.0, Flow::new().drop(elements))
    }

    /// See [`SelectionOps::drop_while`].
    pub fn drop_while<F>(self, predicate: F) -> Lifted<S, Only<T, DropWhile<T, F>>, C>
    where
        F: FnMut(&T) -> bool + Clone + Send + Sync + 'static,
    {
        lift(self.0, Flow::new().drop_while(predicate))
    }

    /// Emits each element with what the function makes of its context.
    pub fn map_context<D: 'static, F>(self, function: F) -> WithContext<Fused<S, MapContext<T, C, D, F>>>
    where
        F: FnMut(C) -> D + Clone + Send + Sync + 'static,
    {
        WithContext(self.0.fuse("map_context", MapContext { function, types: PhantomData }))
    }

    /// See [`MapAsyncOps::map_async`], which keeps the order.
    pub fn map_async<U: 'static, Fut>(
        self,
        parallelism: usize,
        mut function: impl FnMut(T) -> Fut + Clone + Send + Sync + 'static,
    ) -> WithContext<Plain<S, (U, C)>>
    where
        Fut: Future<Output = U> + 'static,
    {
        WithContext(self.0.map_async(parallelism, move |(element, context)| {
            let future = function(element);
            async move { (future.await, context) }
        }))
    }

    /// See [`MapAsyncOps::try_map_async`], which keeps the order.
    pub fn try_map_async<U: 'static, Fut>(
        self,
        parallelism: usize,
        mut function: impl FnMut(T) -> Fut + Clone + Send + Sync + 'static,
    ) -> WithContext<Plain<S, (U, C)>>
    where
        Fut: Future<Output = Result<U, StreamError>> + 'static,
    {
        WithContext(self.0.try_map_async(parallelism, move |(element, context)| {
            let future = function(element);
            async move { Ok((future.await?, context)) }
        }))
    }

    /// See [`GroupOps::map_concat`]. Each element that the function makes has a clone of the context.
    pub fn map_concat<I>(
        self,
        mut function: impl FnMut(T) -> I + Clone + Send + Sync + 'static,
    ) -> WithContext<Plain<S, (I::Item, C)>>
    where
        C: Clone,
        I: IntoIterator + 'static,
        I::IntoIter: 'static,
        I::Item: 'static,
    {
        WithContext(self.0.map_concat(move |(element, context): (T, C)| {
            function(element).into_iter().map(move |element| (element, context.clone()))
        }))
    }

    /// See [`GroupOps::grouped`]. The context of a group is the contexts of its elements.
    pub fn grouped(self, size: usize) -> Gathered<S, T, C> {
        let groups = self.0.grouped(size).map(|group| group.into_iter().unzip());
        WithContext(S::from_chain(groups.seal().into_chain()))
    }

    /// See [`GroupOps::sliding`]. The context of a window is the contexts of its elements.
    pub fn sliding(self, size: usize, step: usize) -> Gathered<S, T, C>
    where
        T: Clone,
        C: Clone,
    {
        let windows = self.0.sliding(size, step).map(|window| window.into_iter().unzip());
        WithContext(S::from_chain(windows.seal().into_chain()))
    }

    /// See [`RateOps::throttle`].
    pub fn throttle(self, rate: Rate) -> WithContext<Plain<S, (T, C)>> {
        WithContext(self.0.throttle(rate))
    }

    /// See [`WatchingOps::log`]. The text of an element is without its context.
    pub fn log(self, name: &'static str) -> WithContext<Plain<S, (T, C)>>
    where
        T: Debug,
    {
        WithContext(self.0.log_with(name, |(element, _)| format!("{element:?}")))
    }

    /// See [`WatchingOps::map_error`].
    pub fn map_error(
        self,
        function: impl FnMut(StreamError) -> StreamError + Clone + Send + Sync + 'static,
    ) -> WithContext<Plain<S, (T, C)>> {
        WithContext(self.0.map_error(function))
    }

    /// See [`FlowOps::supervised`]. What is dropped is dropped with its context.
    pub fn supervised(self, supervision: Supervision) -> WithContext<Plain<S, (T, C)>> {
        WithContext(self.0.supervised(supervision))
    }
}
