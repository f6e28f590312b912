//! Operators that pass elements on and do something at the end, or about it: `log`, `map_error`, `recover`,
//! `on_error_complete`, `do_on_first`, `do_on_cancel`.
//!
//! They emit when upstream does, back-pressure when downstream does, complete when upstream completes and cancel when
//! downstream cancels, except where the text says something else.

use std::marker::PhantomData;

use crate::stream::attributes::{Attributes, LogLevels};
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::{FlowPorts, FlowShape, GraphStage, Logic, Setup};

/// What becomes of a failure of upstream.
enum Ending<T> {
    /// The stage fails.
    Fail(StreamError),
    /// The stage completes.
    Complete,
    /// The stage emits this and completes.
    Last(T),
}

/// What a stage that passes elements on does beside.
trait Watch: 'static {
    type Element: 'static;

    fn element(&mut self, context: &Context, element: &Self::Element) {
        let _ = (context, element);
    }

    fn finished(&mut self, context: &Context) {
        let _ = context;
    }

    fn failed(&mut self, context: &Context, error: StreamError) -> Ending<Self::Element> {
        let _ = context;
        Ending::Fail(error)
    }

    fn cancelled(&mut self, context: &Context, cause: &Cancellation) {
        let _ = (context, cause);
    }
}

struct WatchStage<W, F> {
    name: &'static str,
    factory: F,
    made: PhantomData<fn() -> W>,
}

struct WatchLogic<W: Watch> {
    inlet: Inlet<W::Element>,
    outlet: Outlet<W::Element>,
    watch: W,
}

impl<W: Watch, F: Fn() -> W + Clone + Send + Sync + 'static> GraphStage for WatchStage<W, F> {
    type Shape = FlowShape<W::Element, W::Element>;
    type Seed = F;
    type Mat = ();
    type Logic = WatchLogic<W>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (F, ()) {
        (self.factory.clone(), ())
    }

    fn create(factory: F, ports: FlowPorts<W::Element, W::Element>, _: &Setup<'_>) -> Self::Logic {
        WatchLogic { inlet: ports.inlet, outlet: ports.outlet, watch: factory() }
    }
}

impl<W: Watch> Logic for WatchLogic<W> {
    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.watch.element(context, &element);
        self.outlet.push(context, element);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.watch.finished(context);
        context.complete_stage();
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        match self.watch.failed(context, error) {
            Ending::Fail(error) => context.fail_stage(error),
            Ending::Complete => context.complete_stage(),
            Ending::Last(element) => {
                context.emit(&self.outlet, element);
                self.outlet.complete(context);
            }
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        self.watch.cancelled(context, &cause);
        context.cancel_stage(cause);
    }
}

fn watch<S: FlowOps, W, F>(flow: S, name: &'static str, factory: F) -> Plain<S, S::Out>
where
    W: Watch<Element = S::Out>,
    F: Fn() -> W + Clone + Send + Sync + 'static,
{
    flow.via_stage(WatchStage { name, factory, made: PhantomData })
}

struct OnFailure<T, F>(F, PhantomData<fn(T)>);

impl<T: 'static, F: FnMut(StreamError) -> Ending<T> + 'static> Watch for OnFailure<T, F> {
    type Element = T;

    fn failed(&mut self, _: &Context, error: StreamError) -> Ending<T> {
        (self.0)(error)
    }
}

struct OnFirst<T, F> {
    function: Option<F>,
    element: PhantomData<fn(T)>,
}

impl<T: 'static, F: FnOnce(&T) + 'static> Watch for OnFirst<T, F> {
    type Element = T;

    #[inline]
    fn element(&mut self, _: &Context, element: &T) {
        if let Some(function) = self.function.take() {
            function(element);
        }
    }
}

struct OnCancel<T, F> {
    function: Option<F>,
    element: PhantomData<fn(T)>,
}

impl<T: 'static, F: FnOnce(&Cancellation) + 'static> Watch for OnCancel<T, F> {
    type Element = T;

    fn cancelled(&mut self, _: &Context, cause: &Cancellation) {
        if let Some(function) = self.function.take() {
            function(cause);
        }
    }
}

struct Log<T, F> {
    name: &'static str,
    text: F,
    element: PhantomData<fn(T)>,
}

/// The levels of `log` if no attribute says others.
const LOG_LEVELS: LogLevels = LogLevels {
    on_element: Some(tracing::Level::DEBUG),
    on_finish: Some(tracing::Level::DEBUG),
    on_failure: Some(tracing::Level::ERROR),
};

fn levels(context: &Context) -> LogLevels {
    context.attributes().get::<LogLevels>().copied().unwrap_or(LOG_LEVELS)
}

macro_rules! log_at {
    ($level:expr, $($what:tt)+) => {
        match $level {
            None => {}
            Some(tracing::Level::ERROR) => tracing::error!($($what)+),
            Some(tracing::Level::WARN) => tracing::warn!($($what)+),
            Some(tracing::Level::INFO) => tracing::info!($($what)+),
            Some(tracing::Level::DEBUG) => tracing::debug!($($what)+),
            Some(tracing::Level::TRACE) => tracing::trace!($($what)+),
        }
    };
}

impl<T: 'static, F: FnMut(&T) -> String + 'static> Watch for Log<T, F> {
    type Element = T;

    fn element(&mut self, context: &Context, element: &T) {
        let Log { name, text, .. } = self;
        log_at!(levels(context).on_element, name, element = text(element), "element");
    }

    fn finished(&mut self, context: &Context) {
        log_at!(levels(context).on_finish, name = self.name, "upstream finished");
    }

    fn failed(&mut self, context: &Context, error: StreamError) -> Ending<T> {
        log_at!(levels(context).on_failure, name = self.name, %error, "upstream failed");
        Ending::Fail(error)
    }

    fn cancelled(&mut self, context: &Context, cause: &Cancellation) {
        match cause.error() {
            None => log_at!(levels(context).on_finish, name = self.name, ?cause, "downstream cancelled"),
            Some(error) => log_at!(levels(context).on_failure, name = self.name, %error, "downstream cancelled"),
        }
    }
}

/// Operators that pass elements on and do something at the end, or about it.
pub trait WatchingOps: FlowOps {
    /// Fails with what the function makes of a failure of upstream.
    fn map_error<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(StreamError) -> StreamError + Clone + Send + Sync + 'static,
    {
        watch(self, "map_error", move || {
            let mut function = function.clone();
            OnFailure(move |error| Ending::Fail(function(error)), PhantomData)
        })
    }

    /// Emits what the function makes of a failure of upstream as the last element, and completes; fails if it makes
    /// nothing.
    fn recover<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(&StreamError) -> Option<Self::Out> + Clone + Send + Sync + 'static,
    {
        watch(self, "recover", move || {
            let mut function = function.clone();
            OnFailure(
                move |error| match function(&error) {
                    Some(element) => Ending::Last(element),
                    None => Ending::Fail(error),
                },
                PhantomData,
            )
        })
    }

    /// Completes when upstream fails.
    fn on_error_complete(self) -> Plain<Self, Self::Out> {
        self.on_error_complete_if(|_| true)
    }

    /// Completes when upstream fails with something for which the predicate holds.
    fn on_error_complete_if<F>(self, predicate: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(&StreamError) -> bool + Clone + Send + Sync + 'static,
    {
        watch(self, "on_error_complete", move || {
            let mut predicate = predicate.clone();
            OnFailure(move |error| if predicate(&error) { Ending::Complete } else { Ending::Fail(error) }, PhantomData)
        })
    }

    /// Calls the function with the first element.
    fn do_on_first<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnOnce(&Self::Out) + Clone + Send + Sync + 'static,
    {
        let factory = move || OnFirst { function: Some(function.clone()), element: PhantomData };
        watch(self, "do_on_first", factory)
    }

    /// Calls the function if downstream cancels, with the reason.
    fn do_on_cancel<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnOnce(&Cancellation) + Clone + Send + Sync + 'static,
    {
        let factory = move || OnCancel { function: Some(function.clone()), element: PhantomData };
        watch(self, "do_on_cancel", factory)
    }

    /// Logs elements, completion and cancellation at level debug, and failures as errors; the attribute [`LogLevels`]
    /// gives other levels. `name` is a field of each line.
    fn log(self, name: &'static str) -> Plain<Self, Self::Out>
    where
        Self::Out: std::fmt::Debug,
    {
        self.log_with(name, |element| format!("{element:?}"))
    }

    /// As [`WatchingOps::log`], with what the function gives as text of an element.
    fn log_with<F>(self, name: &'static str, text: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(&Self::Out) -> String + Clone + Send + Sync + 'static,
    {
        watch(self, "log", move || Log { name, text: text.clone(), element: PhantomData })
    }
}

impl<S: FlowOps> WatchingOps for S {}
