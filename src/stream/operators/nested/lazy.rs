//! Sources and sinks that are made when they are needed, or when a future gives them.
//!
//! What is made runs as an island of its own on the core of the stage that makes it. Its materialized value comes later,
//! as a [`Completion`], which fails with [`NeverMaterialized`] if the stream ends before.

use std::future::{Future, Ready, ready};
use std::rc::Rc;
use std::task::Poll;

use super::substream::{SubInlet, SubOutlet, Substreams, bridge, run_here};
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::{Fusable, NoHost, Sink, Source, keep};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::host::{StreamHost, current};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::materializer::MaterializationError;
use crate::stream::operators::flights::Flight;
use crate::stream::stage::made::stage_with;
use crate::stream::stage::{Logic, Setup, SinkShape, SourceShape};

/// The stream ended before what was to be made later was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended before this part of it was needed, so it has no materialized value")]
pub struct NeverMaterialized;

/// Result of a function that may fail.
type Fallible<U> = Result<U, StreamError>;

/// What the output of a future means.
type Judge<Fut, S> = fn(<Fut as Future>::Output) -> Fallible<S>;

/// What becomes of the materialized value, if nothing has, when the stage stops.
fn close<M>(promise: &Promise<M>, context: &Context) {
    if promise.is_done() {
        return;
    }
    match context.panic_of_stage() {
        Some(error) => promise.fail(error.clone()),
        None => promise.fail(StreamError::new(NeverMaterialized)),
    }
}

struct Later<T, M, P, F, Fut: Future> {
    outlet: Outlet<T>,
    is_eager: bool,
    factory: Option<F>,
    flight: Flight<Fut>,
    outcome: Judge<Fut, Source<T, M, P>>,
    inner: Option<SubInlet<T>>,
    promise: Promise<M>,
    substreams: Substreams,
}

impl<T, M, P, F, Fut> Later<T, M, P, F, Fut>
where
    T: Send + 'static,
    M: 'static,
    P: Fusable<Out = T>,
    F: FnOnce() -> Fut + 'static,
    Fut: Future + 'static,
{
    fn advance(&mut self, context: &mut Context) {
        if self.outlet.is_closed(context) {
            return;
        }
        if self.inner.is_none() {
            if let Some(factory) = self.factory.take() {
                self.flight.launch(factory());
            }
            let Poll::Ready(output) = self.flight.poll() else { return };
            match (self.outcome)(output).and_then(|source| self.substreams.run_mat(source)) {
                Ok((inner, value)) => {
                    self.inner = Some(inner);
                    self.promise.succeed(value);
                }
                Err(error) => {
                    self.promise.fail(error.clone());
                    return context.fail_and_log(error);
                }
            }
        }
        if let Some(inner) = &mut self.inner {
            inner.relay(context, &self.outlet);
        }
    }
}

impl<T, M, P, F, Fut> Logic for Later<T, M, P, F, Fut>
where
    T: Send + 'static,
    M: 'static,
    P: Fusable<Out = T>,
    F: FnOnce() -> Fut + 'static,
    Fut: Future + 'static,
{
    fn pre_start(&mut self, context: &mut Context) {
        if self.is_eager {
            self.advance(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.advance(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        if self.factory.is_none() {
            self.advance(context);
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        if let Some(inner) = &mut self.inner {
            inner.cancel(cause.clone());
        }
        context.cancel_stage(cause);
    }

    fn post_stop(&mut self, context: &mut Context) {
        self.flight.discard();
        close(&self.promise, context);
    }
}

fn later<T, M, P, F, Fut>(
    name: &'static str,
    is_eager: bool,
    factory: F,
    outcome: Judge<Fut, Source<T, M, P>>,
) -> Source<T, Completion<M>>
where
    T: Send + 'static,
    M: Send + 'static,
    P: Fusable<Out = T>,
    F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
    Fut: Future + 'static,
{
    Source::from_stage(stage_with(name, SourceShape::new(), move |_| {
        let (promise, value) = completion();
        let factory = Some(factory.clone());
        let create = move |outlet, setup: &Setup<'_>| Later {
            outlet,
            is_eager,
            factory,
            flight: Flight::new(setup.waker()),
            outcome,
            inner: None,
            promise,
            substreams: Substreams::new(setup),
        };
        (create, value)
    }))
}

impl<T: Send + 'static> Source<T> {
    /// A source that is made, and runs, when downstream asks for the first time.
    ///
    /// Emits, completes and fails as the source that the factory makes. Cancels it when downstream cancels. If that is
    /// before the first demand the factory is not called and the materialized value fails with [`NeverMaterialized`].
    ///
    /// ```
    /// use atoll::stream::dsl::{FlowOps, Sink, Source};
    ///
    /// let graph = Source::lazy_source(|| Source::from_iterator(|| 0..3).seal()).to_right(Sink::<i32, _>::seq());
    /// ```
    pub fn lazy_source<M: Send + 'static, P: Fusable<Out = T>>(
        factory: impl FnOnce() -> Source<T, M, P> + Clone + Send + Sync + 'static,
    ) -> Source<T, Completion<M>> {
        later::<T, M, P, _, Ready<Source<T, M, P>>>("lazy_source", false, move || ready(factory()), Ok)
    }

    /// The source that a future gives; the future is made when downstream asks for the first time.
    ///
    /// Emits, completes and fails as that source. If downstream cancels before the future is done, the future is dropped
    /// and the materialized value fails with [`NeverMaterialized`].
    pub fn lazy_future_source<M: Send + 'static, P: Fusable<Out = T>, Fut>(
        factory: impl FnOnce() -> Fut + Clone + Send + Sync + 'static,
    ) -> Source<T, Completion<M>>
    where
        Fut: Future<Output = Source<T, M, P>> + 'static,
    {
        later("lazy_future_source", false, factory, Ok)
    }

    /// As [`Source::lazy_future_source`], but the future is made, and its source runs, also without demand.
    pub fn future_source<M: Send + 'static, P: Fusable<Out = T>, Fut>(
        factory: impl FnOnce() -> Fut + Clone + Send + Sync + 'static,
    ) -> Source<T, Completion<M>>
    where
        Fut: Future<Output = Source<T, M, P>> + 'static,
    {
        later("future_source", true, factory, Ok)
    }

    /// As [`Source::future_source`]; an `Err` fails the stream and the materialized value.
    pub fn try_future_source<M: Send + 'static, P: Fusable<Out = T>, Fut>(
        factory: impl FnOnce() -> Fut + Clone + Send + Sync + 'static,
    ) -> Source<T, Completion<M>>
    where
        Fut: Future<Output = Fallible<Source<T, M, P>>> + 'static,
    {
        later("future_source", true, factory, std::convert::identity)
    }
}

impl<T: Send + 'static, M: 'static, P: Fusable<Out = T>> Source<T, M, P> {
    /// Runs everything up to here now, on the core that this thread is. Gives its materialized value and a source of what
    /// comes out, which runs once, anywhere. Dropping that source cancels what runs; as long as it is kept and not run,
    /// one element waits.
    ///
    /// # Errors
    /// As [`RunnableGraph::run`](crate::stream::dsl::RunnableGraph::run).
    pub fn pre_materialize(self) -> Result<(M, Source<T>), MaterializationError> {
        let host = current::host()
            .ok_or_else(|| MaterializationError::Phase { phase: "fused".to_owned(), cause: Box::new(NoHost) })?;
        self.pre_materialize_on(&host)
    }

    /// As [`Source::pre_materialize`], on this core.
    ///
    /// # Errors
    /// As [`RunnableGraph::run_on`](crate::stream::dsl::RunnableGraph::run_on).
    pub fn pre_materialize_on(self, host: &Rc<StreamHost>) -> Result<(M, Source<T>), MaterializationError> {
        let (sink, source) = bridge();
        Ok((self.to(sink).run_on(host)?, source))
    }
}

struct LazySink<T, M, F> {
    inlet: Inlet<T>,
    factory: Option<F>,
    inner: Option<SubOutlet<T>>,
    promise: Promise<M>,
    substreams: Substreams,
}

impl<T: Send + 'static, M: 'static, F: FnOnce() -> Sink<T, M> + 'static> LazySink<T, M, F> {
    fn start(&mut self) -> Fallible<()> {
        let Some(factory) = self.factory.take() else { return Ok(()) };
        let (inner, source) = self.substreams.begin();
        let value = run_here(source.to_mat(factory(), keep::right))?;
        self.inner = Some(inner);
        self.promise.succeed(value);
        Ok(())
    }

    fn go_on(&mut self, context: &mut Context) {
        let Some(inner) = &mut self.inner else { return };
        if inner.has_room() {
            self.inlet.try_pull(context);
        } else if let Some(cause) = inner.cancellation() {
            context.cancel_stage(cause);
        }
    }
}

impl<T: Send + 'static, M: 'static, F: FnOnce() -> Sink<T, M> + 'static> Logic for LazySink<T, M, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if let Err(error) = self.start() {
            self.promise.fail(error.clone());
            return context.fail_and_log(error);
        }
        if let Some(inner) = &mut self.inner {
            // There is room: there was when the inlet was pulled, and there is in a new one.
            inner.push(element);
        }
        self.go_on(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        if !self.inlet.is_closed(context) {
            self.go_on(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if let Some(inner) = &mut self.inner {
            inner.complete();
        }
        context.complete_stage();
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        if let Some(inner) = &mut self.inner {
            inner.fail(error.clone());
        }
        self.promise.fail(error.clone());
        context.fail_stage(error);
    }

    fn post_stop(&mut self, context: &mut Context) {
        close(&self.promise, context);
    }
}

impl<T: Send + 'static, M: Send + 'static> Sink<T, Completion<M>> {
    /// A sink that is made, and runs, when the first element comes.
    ///
    /// Back-pressures and cancels as that sink does. If upstream completes before, the factory is not called and the
    /// materialized value fails with [`NeverMaterialized`]; if upstream fails before, with that failure.
    pub fn lazy_sink(factory: impl FnOnce() -> Sink<T, M> + Clone + Send + Sync + 'static) -> Self {
        Sink::from_stage(stage_with("lazy_sink", SinkShape::new(), move |_| {
            let (promise, value) = completion();
            let factory = Some(factory.clone());
            let create = |inlet, setup: &Setup<'_>| LazySink {
                inlet,
                factory,
                inner: None,
                promise,
                substreams: Substreams::new(setup),
            };
            (create, value)
        }))
    }
}
