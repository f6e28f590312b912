//! Operators that pass elements on and do something at the end, or about it: `log`, `map_error`, `recover`,
//! `on_error_complete`, `do_on_first`, `do_on_cancel`.
//!
//! They emit when upstream does, back-pressure when downstream does, complete when upstream completes and cancel when
//! downstream cancels, except where the text says something else.

use super::passing::{Ending, Watch, pass};
use crate::stream::attributes::LogLevels;
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::Context;

struct OnFailure<F>(F);

impl<T: 'static, F: FnMut(StreamError) -> Ending<T> + 'static> Watch<T> for OnFailure<F> {
    fn failed(&mut self, _: &mut Context, error: StreamError) -> Ending<T> {
        (self.0)(error)
    }
}

struct OnFirst<F> {
    function: Option<F>,
}

impl<T: 'static, F: FnOnce(&T) + 'static> Watch<T> for OnFirst<F> {
    #[inline]
    fn element(&mut self, _: &mut Context, element: &T) {
        if let Some(function) = self.function.take() {
            function(element);
        }
    }
}

struct OnCancel<F> {
    function: Option<F>,
}

impl<T: 'static, F: FnOnce(&Cancellation) + 'static> Watch<T> for OnCancel<F> {
    fn cancelled(&mut self, _: &mut Context, cause: &Cancellation) {
        if let Some(function) = self.function.take() {
            function(cause);
        }
    }
}

struct Log<F> {
    name: &'static str,
    text: F,
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

impl<T: 'static, F: FnMut(&T) -> String + 'static> Watch<T> for Log<F> {
    fn element(&mut self, context: &mut Context, element: &T) {
        let Log { name, text } = self;
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
        pass(self, "map_error", move || OnFailure(move |error| Ending::Fail(function(error))))
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
        pass(self, "recover", move || OnFailure(recover))
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
        pass(self, "on_error_complete", move || OnFailure(complete))
    }

    /// Calls the function with the first element.
    fn do_on_first<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnOnce(&Self::Out) + Clone + Send + Sync + 'static,
    {
        pass(self, "do_on_first", move || OnFirst { function: Some(function) })
    }

    /// Calls the function if downstream cancels, with the reason.
    fn do_on_cancel<F>(self, function: F) -> Plain<Self, Self::Out>
    where
        F: FnOnce(&Cancellation) + Clone + Send + Sync + 'static,
    {
        pass(self, "do_on_cancel", move || OnCancel { function: Some(function) })
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
        pass(self, "log", move || Log { name, text })
    }
}

impl<S: FlowOps> WatchingOps for S {}
