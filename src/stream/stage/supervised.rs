//! Calls of user functions, and what the supervision decider makes of their failures.
//!
//! Only here is a panic of a user function caught; without a decider it goes on and fails the stage.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Setup;
use crate::stream::attributes::{Directive, Supervision};
use crate::stream::error::StreamError;

impl Setup<'_> {
    /// The decider of the attributes, if they have one.
    pub(crate) fn supervision(&self) -> Option<Supervision> {
        self.attributes.get::<Supervision>().cloned()
    }
}

/// Calls a user function; a failure or a panic comes back with what the decider says about it.
pub(crate) fn attempt<T>(
    supervision: &Supervision,
    call: impl FnOnce() -> Result<T, StreamError>,
) -> Result<T, (Directive, StreamError)> {
    let error = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(payload) => StreamError::from_panic(payload),
    };
    Err((supervision.decide(&error), error))
}

/// What becomes of a call of a user function.
pub(crate) enum Judged<T> {
    Value(T),
    /// The element is dropped.
    Dropped(Directive),
    /// The stage fails.
    Failed(StreamError),
}

/// Calls a user function. A failure or a panic is what the decider says; without one a panic goes on.
pub(crate) fn judge<T>(supervision: Option<&Supervision>, call: impl FnOnce() -> Result<T, StreamError>) -> Judged<T> {
    let Some(supervision) = supervision else {
        return match call() {
            Ok(value) => Judged::Value(value),
            Err(error) => Judged::Failed(error),
        };
    };
    match attempt(supervision, call) {
        Ok(value) => Judged::Value(value),
        Err((Directive::Stop, error)) => Judged::Failed(error),
        Err((directive, _)) => Judged::Dropped(directive),
    }
}
