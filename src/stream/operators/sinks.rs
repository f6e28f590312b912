//! Sinks: what gathers elements, what ignores them, and what is told of the end.
//!
//! All of them ask for elements as fast as they come, complete with upstream, and give a
//! [`Completion`] that fails with the stream: with [`AbruptTermination`] if it
//! was stopped from outside. The same gatherings end a stream by a method of the source ([`super::closing`]), which runs
//! in one loop where that is possible.

use super::gatherings::{self, Collected, Folded, Outcome};
use crate::stream::attributes::Supervision;
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::{Flow, FlowOps, Sink};
use crate::stream::error::{AbruptTermination, StreamError};
use crate::stream::interpreter::{Context, Inlet};
use crate::stream::operators::ElementwiseOps;
use crate::stream::stage::gathering::{Gathered, Gatherer, Gathering};
use crate::stream::stage::made::{stage, stage_with};
use crate::stream::stage::{Logic, Setup, SinkShape};

/// The sink of a [`Gathering`].
struct GatherSink<G: Gatherer> {
    inlet: Inlet<G::In>,
    gatherer: G,
    supervision: Option<Supervision>,
    promise: Promise<G::Out>,
    /// What `end` has to handle. Not an argument: the fast way must not need room on the stack.
    gathered: Gathered<G::Out>,
}

impl<G: Gatherer> GatherSink<G> {
    /// Apart from the fast way, which ends in a jump only if nothing before it took room on the stack.
    #[cold]
    #[inline(never)]
    fn take_supervised(&mut self, context: &mut Context) {
        let element = self.inlet.grab(context);
        let Some(supervision) = &self.supervision else { return };
        match self.gatherer.take_supervised(element, supervision) {
            Gathered::More => self.inlet.pull(context),
            end => {
                self.gathered = end;
                self.end(context);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn end(&mut self, context: &mut Context) {
        match std::mem::replace(&mut self.gathered, Gathered::More) {
            Gathered::More => self.inlet.try_pull(context),
            Gathered::Done(outcome) => {
                self.promise.finish(outcome);
                self.inlet.cancel(context);
            }
            Gathered::Fail(error) => {
                self.promise.fail(error.clone());
                context.fail_and_log(error);
            }
        }
    }
}

impl<G: Gatherer> Logic for GatherSink<G> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        if self.supervision.is_some() {
            return self.take_supervised(context);
        }
        let element = self.inlet.grab(context);
        match self.gatherer.take(element) {
            Gathered::More => self.inlet.pull(context),
            end => {
                self.gathered = end;
                self.end(context);
            }
        }
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.promise.finish(self.gatherer.finish());
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.promise.fail(error);
    }

    fn post_stop(&mut self, context: &mut Context) {
        if let Some(error) = context.panic_of_stage() {
            self.promise.fail(error.clone());
        }
    }
}

impl<T: 'static> Sink<T> {
    /// A sink that gathers as it is told. Cancels when the outcome is known.
    pub fn gather<G: Gathering<In = T>>(gathering: G) -> Sink<T, Completion<G::Out>> {
        Sink::from_stage(stage_with(gathering.name(), SinkShape::new(), move |_| {
            let (promise, outcome) = completion();
            let gathering = gathering.clone();
            let create = move |inlet, setup: &Setup<'_>| {
                let supervision = setup.supervision();
                GatherSink { inlet, gatherer: gathering.create(), supervision, promise, gathered: Gathered::More }
            };
            (create, outcome)
        }))
    }

    /// Takes all elements and drops them.
    #[must_use]
    pub fn ignore() -> Sink<T, Completion<()>> {
        Sink::gather(gatherings::ignore())
    }

    /// Calls a function with each element. What the function fails with is what the supervision decider says.
    pub fn for_each(function: impl FnMut(T) + Clone + Send + Sync + 'static) -> Sink<T, Completion<()>> {
        Sink::gather(gatherings::for_each(function))
    }

    /// As [`Sink::for_each`], for a function that can fail.
    pub fn try_for_each<F>(function: F) -> Sink<T, Completion<()>>
    where
        F: FnMut(T) -> Result<(), StreamError> + Clone + Send + Sync + 'static,
    {
        Sink::gather(gatherings::try_for_each(function))
    }

    /// Gathers all elements into one value, which is there when the stream completes. A failure of the stream fails it; a
    /// panic of the function is what the supervision decider says (the state is cloned for each element if there is one).
    pub fn fold<A: Folded, F>(zero: A, function: F) -> Sink<T, Completion<A>>
    where
        F: FnMut(A, T) -> A + Clone + Send + Sync + 'static,
    {
        Sink::gather(gatherings::fold(zero, function))
    }

    /// As [`Sink::fold`], for a function that can fail.
    pub fn try_fold<A: Folded, F>(zero: A, function: F) -> Sink<T, Completion<A>>
    where
        F: FnMut(A, T) -> Result<A, StreamError> + Clone + Send + Sync + 'static,
    {
        Sink::gather(gatherings::try_fold(zero, function))
    }

    /// As [`Sink::fold`], until the predicate does not hold of the value: then it cancels, and gives that value.
    pub fn fold_while<A: Folded, P, F>(zero: A, predicate: P, function: F) -> Sink<T, Completion<A>>
    where
        P: FnMut(&A) -> bool + Clone + Send + Sync + 'static,
        F: FnMut(A, T) -> A + Clone + Send + Sync + 'static,
    {
        Sink::gather(gatherings::fold_while(zero, predicate, function))
    }

    /// As [`Sink::fold`], with the first element as zero. Fails with
    /// [`NoSuchElement`](crate::stream::error::NoSuchElement) if there is none.
    pub fn reduce<F>(function: F) -> Sink<T, Completion<T>>
    where
        T: Clone + Send,
        F: FnMut(T, T) -> T + Clone + Send + Sync + 'static,
    {
        Sink::gather(gatherings::reduce(function))
    }

    /// The first element; then it cancels. Fails with [`NoSuchElement`](crate::stream::error::NoSuchElement) if there is
    /// none.
    #[must_use]
    pub fn head() -> Sink<T, Completion<T>>
    where
        T: Outcome,
    {
        Sink::gather(gatherings::head())
    }

    /// The first element, if there is one; then it cancels.
    #[must_use]
    pub fn head_option() -> Sink<T, Completion<Option<T>>>
    where
        T: Outcome,
    {
        Sink::gather(gatherings::head_option())
    }

    /// The last element. Fails with [`NoSuchElement`](crate::stream::error::NoSuchElement) if there is none.
    #[must_use]
    pub fn last() -> Sink<T, Completion<T>>
    where
        T: Outcome,
    {
        Sink::gather(gatherings::last())
    }

    /// The last element, if there is one.
    #[must_use]
    pub fn last_option() -> Sink<T, Completion<Option<T>>>
    where
        T: Outcome,
    {
        Sink::gather(gatherings::last_option())
    }

    /// The last elements, as many as wanted or as there are.
    #[must_use]
    pub fn take_last(wanted: usize) -> Sink<T, Completion<Vec<T>>>
    where
        T: Outcome,
    {
        Sink::gather(gatherings::take_last(wanted))
    }

    /// All elements in order. Takes as much memory as they do.
    #[must_use]
    pub fn seq() -> Sink<T, Completion<Vec<T>>>
    where
        T: Outcome,
    {
        Sink::gather(gatherings::collect())
    }

    /// All elements in a collection. Takes as much memory as they do.
    #[must_use]
    pub fn collect<C: Collected<T>>() -> Sink<T, Completion<C>> {
        Sink::gather(gatherings::collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count() -> Sink<T, Completion<u64>> {
        Sink::gather(gatherings::count())
    }

    /// Whether the predicate holds of all elements (true if there are none). Cancels at the first of which it does not.
    pub fn forall(predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static) -> Sink<T, Completion<bool>> {
        Sink::gather(gatherings::forall(predicate))
    }

    /// Whether the predicate holds of an element (false if there are none). Cancels at the first.
    pub fn exists(predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static) -> Sink<T, Completion<bool>> {
        Sink::gather(gatherings::exists(predicate))
    }

    /// Whether the predicate holds of no element (true if there are none). Cancels at the first of which it does.
    pub fn none(predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static) -> Sink<T, Completion<bool>> {
        Sink::gather(gatherings::none(predicate))
    }

    /// Cancels at once.
    #[must_use]
    pub fn cancelled() -> Sink<T> {
        Sink::from_stage(stage("cancelled", SinkShape::new(), |inlet, _| Cancelled(inlet)))
    }

    /// Never asks for an element. Completes when upstream does without being asked.
    #[must_use]
    pub fn never() -> Sink<T, Completion<()>> {
        Sink::from_stage(stage_with("never", SinkShape::new(), |_| {
            let (promise, outcome) = completion();
            (|_, _: &Setup<'_>| Never { promise }, outcome)
        }))
    }

    /// Drops all elements and calls the function once with the end of the stream, also if the stream was stopped.
    pub fn on_complete<F>(function: F) -> Sink<T>
    where
        F: FnOnce(Result<(), StreamError>) + Clone + Send + Sync + 'static,
    {
        Sink::from_stage(stage("on_complete", SinkShape::new(), |inlet, _| OnComplete {
            inlet,
            function: Some(function),
        }))
    }
}

impl<In: 'static, Mat: 'static> Sink<In, Mat> {
    /// A sink that makes its elements of others.
    pub fn contramap<T: 'static, F>(self, function: F) -> Sink<T, Mat>
    where
        F: FnMut(T) -> In + Clone + Send + Sync + 'static,
    {
        Flow::<T, T>::new().map(function).to_mat(self, crate::stream::dsl::keep::right)
    }
}

impl<T: 'static, Out: 'static, Mat: 'static, P: crate::stream::dsl::Fusable<Out = Out>> Flow<T, Out, Mat, P> {
    /// A flow that makes its elements of others.
    pub fn contramap<U: 'static, F>(self, function: F) -> Flow<U, Out, Mat>
    where
        F: FnMut(U) -> T + Clone + Send + Sync + 'static,
    {
        Flow::<U, U>::new().map(function).via_mat(self, crate::stream::dsl::keep::right)
    }
}

struct Cancelled<T>(Inlet<T>);

impl<T: 'static> Logic for Cancelled<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.0.cancel(context);
    }
}

struct Never {
    promise: Promise<()>,
}

impl Logic for Never {
    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.promise.succeed(());
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.promise.fail(error);
    }
}

struct OnComplete<T, F: FnOnce(Result<(), StreamError>)> {
    inlet: Inlet<T>,
    function: Option<F>,
}

impl<T, F: FnOnce(Result<(), StreamError>)> OnComplete<T, F> {
    fn tell(&mut self, outcome: Result<(), StreamError>) {
        if let Some(function) = self.function.take() {
            function(outcome);
        }
    }
}

impl<T: 'static, F: FnOnce(Result<(), StreamError>) + 'static> Logic for OnComplete<T, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        drop(self.inlet.grab(context));
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.tell(Ok(()));
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.tell(Err(error));
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.tell(Err(StreamError::new(AbruptTermination)));
    }
}
