//! Blueprints that need no type of their own: what the caller gets and how the stage is made are given as functions.
//!
//! Used by the families of operators whose stages differ only in their logic.

use crate::stream::attributes::{Attributes, Directive, Supervision};
use crate::stream::error::StreamError;
use crate::stream::stage::{GraphStage, Logic, Setup, Shape};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a running stage is made of its seed and its ports.
pub(crate) type Create<S, Seed, L> = fn(Seed, <S as Shape>::Ports, &Setup<'_>) -> L;

/// A stage that is made by functions.
pub(crate) struct Made<S: Shape, Seed, P, L> {
    name: &'static str,
    shape: S,
    prepare: P,
    create: Create<S, Seed, L>,
}

impl<S, Seed, Mat, P, L> Made<S, Seed, P, L>
where
    S: Shape,
    P: Fn(&Attributes) -> (Seed, Mat) + Send + Sync + 'static,
{
    pub(crate) fn new(name: &'static str, shape: S, prepare: P, create: Create<S, Seed, L>) -> Self {
        Made { name, shape, prepare, create }
    }
}

impl<S, Seed, Mat, P, L> GraphStage for Made<S, Seed, P, L>
where
    S: Shape,
    Seed: Send + 'static,
    Mat: 'static,
    P: Fn(&Attributes) -> (Seed, Mat) + Send + Sync + 'static,
    L: Logic,
{
    type Shape = S;
    type Seed = (Seed, Create<S, Seed, L>);
    type Mat = Mat;
    type Logic = L;

    fn name(&self) -> &'static str {
        self.name
    }

    fn shape(&self) -> S {
        self.shape.clone()
    }

    fn prepare(&self, attributes: &Attributes) -> (Self::Seed, Mat) {
        let (seed, value) = (self.prepare)(attributes);
        ((seed, self.create), value)
    }

    fn create((seed, create): Self::Seed, ports: S::Ports, setup: &Setup<'_>) -> L {
        create(seed, ports, setup)
    }
}

/// What becomes of a call of a user function.
pub(crate) enum Judged<R> {
    Value(R),
    /// The element is dropped.
    Dropped(Directive),
    /// The stage fails.
    Failed(StreamError),
}

/// Calls a user function. A failure or a panic is what the decider says; without one a panic goes on.
pub(crate) fn judge<R>(supervision: Option<&Supervision>, call: impl FnOnce() -> Result<R, StreamError>) -> Judged<R> {
    let Some(supervision) = supervision else {
        return match call() {
            Ok(value) => Judged::Value(value),
            Err(error) => Judged::Failed(error),
        };
    };
    let error = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Judged::Value(value),
        Ok(Err(error)) => error,
        Err(payload) => StreamError::from_panic(payload),
    };
    match supervision.decide(&error) {
        Directive::Stop => Judged::Failed(error),
        directive => Judged::Dropped(directive),
    }
}
