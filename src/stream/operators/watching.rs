//! Operators that pass elements on and do something at the end, or about it: `log`, `map_error`, `recover`,
//! `on_error_complete`, `do_on_first`, `do_on_cancel`.
//!
//! They emit when upstream does, back-pressure when downstream does, complete when upstream completes and cancel when
//! downstream cancels, except where the text says something else.

use std::marker::PhantomData;

use super::passing::{Ending, Watch, pass};
use crate::stream::attributes::LogLevels;
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::Context;

struct OnFailure<T, F>(F, PhantomData<fn(T)>);

impl<T: 'static, F: FnMut(StreamError) -> Ending<T> + 'static> Watch for OnFailure<T, F> {
    type Element = T;

    fn failed(&mut self, _: &mut Context, error: StreamError) -> Ending<T> {
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
    fn element(&mut self, _: &mut Context, element: &T) {
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

    fn cancelled(&mut self, _: &mut Context, cause: &Cancellation) {
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

    fn element(&mut self, context: &mut Context, element: &T) {
        let Log { name, text, .. } = self;
        log_at!(levels(context).on_element, name, element = text(element), "element");
    }

    fn finished(&mut self, context: &mut Context) {
        log_at!(levels(context).on_finish, name = self.name, "upstream finished");
    }

    fn failed(&mut self, context: &mut Context, error: StreamError) -> Ending<T> {
        log_at!(levels(context).on_failure, name = self.name, %error, "upstream failed");
        Ending::Fail(error)
    }

    fn cancelled(&mut self, context: &mut Context, cause: &Cancellation) {
        match cause.error() {
            None => log_at!(levels(context).on_finish, name = self.name, ?cause, "downstream cancelled"),
            Some(error) => log_at!(levels(context).on_failure, name = self.name, %error, "downstream cancelled"),
        }
    }
}

/// Operators that pass elements on and do something at the end, or about it.
pub trait WatchingOps: FlowOps {
    /// Fails with what the function makes of a failure of upstream.
    fn map_error<F>(self, mut function: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(StreamError) -> StreamError + Clone + Send + Sync + 'static,
    {
        pass(self, "map_error", move || OnFailure(move |error| Ending::Fail(function(error)), PhantomData))
    }

    /// Emits what the function makes of a failure of upstream as the last element, and completes; fails if it makes
    /// nothing.
    fn recover<F>(self, mut function: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(&StreamError) -> Option<Self::Out> + Clone + Send + Sync + 'static,
    {
        let recover = move |error| match function(&error) {
            Some(element) => Ending::Last(element),
            None => Ending::Fail(error),
        };
        pass(self, "recover", move || OnFailure(recover, PhantomData))
    }

    /// Completes when upstream fails.
    fn on_error_complete(self) -> Plain<Self, Self::Out> {
        self.on_error_complete_if(|_| true)
    }

    /// Completes when upstream fails with something for which the predicate holds.
    fn on_error_complete_if<F>(self, mut predicate: F) -> Plain<Self, Self::Out>
    where
        F: FnMut(&StreamError) -> bool + Clone + Send + Sync + 'static,
    {
        let complete = move |error| if predicate(&error) { Ending::Complete } else { Ending::Fail(error) };
        pass(self, "on_error_complete", move || OnFailure(complete, PhantomData))
    }

    /// Calls the function with the first element.
    fn do_on_first<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnOnce(&Self::Out) + Clone + Send + Sync + 'static,
    {
        pass(self, "do_on_first", move || OnFirst { function: Some(function), element: PhantomData })
    }

    /// Calls the function if downstream cancels, with the reason.
    fn do_on_cancel<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnOnce(&Cancellation) + Clone + Send + Sync + 'static,
    {
        pass(self, "do_on_cancel", move || OnCancel { function: Some(function), element: PhantomData })
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
        pass(self, "log", move || Log { name, text, element: PhantomData })
    }
}

impl<S: FlowOps> WatchingOps for S {}
