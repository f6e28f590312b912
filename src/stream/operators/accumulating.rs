//! Operators with a state that elements change: `scan`, `stateful_map`, `map_with_resource`, `intersperse`, and the
//! gatherings `fold`, `fold_while` and `reduce` as flows.
//!
//! They back-pressure when downstream does, and cancel when downstream cancels.

use std::marker::PhantomData;

use super::gatherers::{Folding, FoldingWhile, Reducing};
use crate::stream::attributes::Supervision;
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::StreamError;
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::elementwise::Step;
use crate::stream::stage::gathering::{Gathered, Gatherer};
use crate::stream::stage::made::stage;
use crate::stream::stage::transform::{self, Ending, Transform};
use crate::stream::stage::{FlowPorts, FlowShape, Logic};

struct Scan<T, A, F> {
    zero: A,
    state: A,
    function: F,
    started: bool,
    element: PhantomData<fn(T)>,
}

impl<T: 'static, A: Clone + 'static, F> Transform for Scan<T, A, F>
where
    F: FnMut(&A, T) -> Result<A, StreamError> + 'static,
{
    type In = T;
    type Out = A;

    #[inline]
    fn element(&mut self, element: T) -> Step<A> {
        match (self.function)(&self.state, element) {
            Ok(state) => self.state = state,
            Err(error) => return Step::Fail(error),
        }
        Step::Emit(self.state.clone())
    }

    #[inline]
    fn left_over(&mut self) -> Step<A> {
        if self.started {
            return Step::Skip;
        }
        self.started = true;
        Step::Emit(self.zero.clone())
    }

    fn has_more(&mut self) -> bool {
        !self.started
    }

    fn restart(&mut self) -> Result<(), StreamError> {
        self.state = self.zero.clone();
        self.started = false;
        Ok(())
    }
}

struct StatefulMap<T, U, S, C, F, D> {
    create: C,
    function: F,
    complete: D,
    /// Gone when it was given to `complete`.
    state: Option<S>,
    /// What `complete` gave.
    last: Option<U>,
    element: PhantomData<fn(T)>,
}

impl<T, U, S, C, F, D> StatefulMap<T, U, S, C, F, D>
where
    D: FnMut(S) -> Result<Option<U>, StreamError>,
{
    fn complete(&mut self) -> Result<(), StreamError> {
        // Out of its place first: it is not completed again if that panics.
        if let Some(state) = self.state.take() {
            self.last = (self.complete)(state)?;
        }
        Ok(())
    }
}

impl<T, U, S, C, F, D> Transform for StatefulMap<T, U, S, C, F, D>
where
    T: 'static,
    U: 'static,
    S: 'static,
    C: FnMut() -> Result<S, StreamError> + 'static,
    F: FnMut(&mut S, T) -> Result<U, StreamError> + 'static,
    D: FnMut(S) -> Result<Option<U>, StreamError> + 'static,
{
    type In = T;
    type Out = U;

    fn start(&mut self) -> Result<(), StreamError> {
        self.state = Some((self.create)()?);
        Ok(())
    }

    #[inline]
    fn element(&mut self, element: T) -> Step<U> {
        let Some(state) = &mut self.state else { return Step::Done };
        match (self.function)(state, element) {
            Ok(element) => Step::Emit(element),
            Err(error) => Step::Fail(error),
        }
    }

    fn left_over(&mut self) -> Step<U> {
        self.last.take().map_or(Step::Skip, Step::Emit)
    }

    fn upstream_finished(&mut self) -> Result<(), StreamError> {
        self.complete()
    }

    fn has_more(&mut self) -> bool {
        self.last.is_some()
    }

    fn restart(&mut self) -> Result<(), StreamError> {
        self.complete()?;
        self.start()
    }

    fn close(&mut self, _: Ending<'_>) -> Result<Option<U>, StreamError> {
        self.complete()?;
        Ok(self.last.take())
    }

    fn stopped(&mut self) -> Result<(), StreamError> {
        self.complete()
    }
}

struct Intersperse<T> {
    start: Option<T>,
    separator: T,
    end: Option<T>,
    is_first: bool,
    /// What waits behind a start or a separator.
    next: Option<T>,
}

impl<T: Clone + 'static> Transform for Intersperse<T> {
    type In = T;
    type Out = T;

    #[inline]
    fn element(&mut self, element: T) -> Step<T> {
        let before = if std::mem::replace(&mut self.is_first, false) {
            match self.start.take() {
                None => return Step::Emit(element),
                Some(start) => start,
            }
        } else {
            self.separator.clone()
        };
        self.next = Some(element);
        Step::Emit(before)
    }

    fn left_over(&mut self) -> Step<T> {
        self.next.take().map_or(Step::Skip, Step::Emit)
    }

    fn has_more(&mut self) -> bool {
        self.next.is_some() || self.start.is_some() || self.end.is_some()
    }

    fn end(&mut self) -> Step<T> {
        if let Some(start) = self.start.take() {
            return Step::Emit(start);
        }
        self.end.take().map_or(Step::Done, Step::Last)
    }
}

/// A gathering whose outcome is emitted.
struct GatherFlow<G: Gatherer> {
    inlet: Inlet<G::In>,
    outlet: Outlet<G::Out>,
    gatherer: G,
    supervision: Option<Supervision>,
    outcome: Option<G::Out>,
}

impl<G: Gatherer> GatherFlow<G> {
    fn emit(&mut self, context: &mut Context, outcome: Result<G::Out, StreamError>) {
        match outcome {
            Ok(outcome) if self.outlet.is_available(context) => {
                self.outlet.push(context, outcome);
                context.complete_stage();
            }
            Ok(outcome) => self.outcome = Some(outcome),
            Err(error) => context.fail_stage(error),
        }
    }
}

impl<G: Gatherer> Logic for GatherFlow<G> {
    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let gathered = match &self.supervision {
            None => self.gatherer.take(element),
            Some(supervision) => self.gatherer.take_supervised(element, supervision),
        };
        match gathered {
            Gathered::More => self.inlet.pull(context),
            Gathered::Done(outcome) => self.emit(context, outcome),
            Gathered::Fail(error) => context.fail_and_log(error),
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        match self.outcome.take() {
            Some(outcome) => self.emit(context, Ok(outcome)),
            None => self.inlet.try_pull(context),
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        let outcome = self.gatherer.finish();
        self.emit(context, outcome);
    }
}

fn gather_flow<S, G, F>(flow: S, name: &'static str, factory: F) -> Plain<S, G::Out>
where
    S: FlowOps,
    G: Gatherer<In = S::Out>,
    F: FnOnce() -> G + Clone + Send + Sync + 'static,
{
    flow.via_stage(stage(name, FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
        let supervision = setup.supervision();
        GatherFlow { inlet, outlet, gatherer: factory(), supervision, outcome: None }
    }))
}

/// Operators with a state that elements change.
pub trait AccumulatingOps: FlowOps {
    /// Emits `zero`, and then each state that an element leads to. After a failure with the directive `Restart` it emits
    /// `zero` again and goes on from there.
    ///
    /// Emits when downstream first asks, and for each element. Completes when upstream does and `zero` is emitted.
    fn scan<A, F>(self, zero: A, mut function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(&A, Self::Out) -> A + Clone + Send + Sync + 'static,
    {
        self.try_scan(zero, move |state, element| Ok(function(state, element)))
    }

    /// As [`AccumulatingOps::scan`], for a function that can fail.
    fn try_scan<A, F>(self, zero: A, function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(&A, Self::Out) -> Result<A, StreamError> + Clone + Send + Sync + 'static,
    {
        self.via_stage(transform::stage_of("scan", move || Scan {
            state: zero.clone(),
            zero,
            function,
            started: false,
            element: PhantomData,
        }))
    }

    /// Emits what the function makes of each element and of a state, which it may change. `complete` gets the state
    /// exactly once: when upstream completes or fails, downstream cancels, the function fails, the stream is stopped, or
    /// the directive is `Restart`, after which there is a new state. What it gives is emitted, if there still is somebody
    /// to take it.
    fn stateful_map<U, S, C, F, D>(self, mut create: C, mut function: F, mut complete: D) -> Plain<Self, U>
    where
        U: 'static,
        S: 'static,
        C: FnMut() -> S + Clone + Send + Sync + 'static,
        F: FnMut(&mut S, Self::Out) -> U + Clone + Send + Sync + 'static,
        D: FnMut(S) -> Option<U> + Clone + Send + Sync + 'static,
    {
        stateful_map(
            self,
            "stateful_map",
            move || Ok(create()),
            move |state: &mut S, element| Ok(function(state, element)),
            move |state| Ok(complete(state)),
        )
    }

    /// As [`AccumulatingOps::stateful_map`] with a resource as state, which is opened when the stream starts and closed
    /// exactly once. Opening and closing fail the stream.
    fn map_with_resource<U, R, C, F, D>(self, create: C, function: F, close: D) -> Plain<Self, U>
    where
        U: 'static,
        R: 'static,
        C: FnMut() -> Result<R, StreamError> + Clone + Send + Sync + 'static,
        F: FnMut(&mut R, Self::Out) -> Result<U, StreamError> + Clone + Send + Sync + 'static,
        D: FnMut(R) -> Result<Option<U>, StreamError> + Clone + Send + Sync + 'static,
    {
        stateful_map(self, "map_with_resource", create, function, close)
    }

    /// Emits the separator between elements.
    fn intersperse(self, separator: Self::Out) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone + Send + Sync,
    {
        intersperse(self, None, separator, None)
    }

    /// Emits `start` before the first element, the separator between elements, and `end` behind the last one. `start` and
    /// `end` are emitted even if there are no elements.
    fn intersperse_within(self, start: Self::Out, separator: Self::Out, end: Self::Out) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone + Send + Sync,
    {
        intersperse(self, Some(start), separator, Some(end))
    }

    /// Emits one value, into which all elements are gathered, when upstream completes. As the sink of this name.
    fn fold<A, F>(self, zero: A, mut function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, Self::Out) -> A + Clone + Send + Sync + 'static,
    {
        gather_flow(self, "fold", move || Folding::new(zero, move |state, element| Ok(function(state, element))))
    }

    /// As [`AccumulatingOps::fold`], until the predicate does not hold of the value, which it then emits, and completes.
    fn fold_while<A, P, F>(self, zero: A, predicate: P, mut function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        P: FnMut(&A) -> bool + Clone + Send + Sync + 'static,
        F: FnMut(A, Self::Out) -> A + Clone + Send + Sync + 'static,
    {
        gather_flow(self, "fold_while", move || {
            FoldingWhile::new(zero, predicate, move |state, element| Ok(function(state, element)))
        })
    }

    /// As [`AccumulatingOps::fold`], with the first element as zero. Fails with
    /// [`NoSuchElement`](crate::stream::error::NoSuchElement) if there is none.
    fn reduce<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone,
        F: FnMut(Self::Out, Self::Out) -> Self::Out + Clone + Send + Sync + 'static,
    {
        gather_flow(self, "reduce", move || Reducing::new(function))
    }
}

fn stateful_map<W, U, S, C, F, D>(flow: W, name: &'static str, create: C, function: F, complete: D) -> Plain<W, U>
where
    W: FlowOps,
    U: 'static,
    S: 'static,
    C: FnMut() -> Result<S, StreamError> + Clone + Send + Sync + 'static,
    F: FnMut(&mut S, W::Out) -> Result<U, StreamError> + Clone + Send + Sync + 'static,
    D: FnMut(S) -> Result<Option<U>, StreamError> + Clone + Send + Sync + 'static,
{
    flow.via_stage(transform::stage_of(name, move || StatefulMap {
        create,
        function,
        complete,
        state: None,
        last: None,
        element: PhantomData,
    }))
}

fn intersperse<S: FlowOps>(flow: S, start: Option<S::Out>, separator: S::Out, end: Option<S::Out>) -> Plain<S, S::Out>
where
    S::Out: Clone + Send + Sync,
{
    flow.via_stage(transform::stage_of("intersperse", move || Intersperse {
        start,
        separator,
        end,
        is_first: true,
        next: None,
    }))
}

impl<S: FlowOps> AccumulatingOps for S {}
