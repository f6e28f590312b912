//! Functions on materialized values, and which values of two parts a combined part keeps.

use std::any::{Any, type_name};
use std::sync::Arc;

use crate::stream::module::MaterializedValue;

/// A function got a materialized value of another type than it was made for. The typed DSL rules this out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a function on materialized values expected `{expected}` and got another type: correct its argument types")]
pub struct ValueMismatch {
    /// The type that was expected.
    pub expected: &'static str,
}

type Composed = Result<MaterializedValue, ValueMismatch>;

/// A function of one materialized value.
#[derive(Clone)]
pub struct TransformFunction(Arc<dyn Fn(MaterializedValue) -> Composed + Send + Sync>);

impl TransformFunction {
    /// The function `transform`, called on the core that materializes.
    pub fn new<A: 'static, B: 'static>(transform: impl Fn(A) -> B + Send + Sync + 'static) -> TransformFunction {
        TransformFunction::erased(move |value| Ok(Box::new(transform(expect::<A>(value)?))))
    }

    /// As [`new`](Self::new), for a function that does not say its types.
    pub fn erased(
        transform: impl Fn(MaterializedValue) -> Result<MaterializedValue, ValueMismatch> + Send + Sync + 'static,
    ) -> TransformFunction {
        TransformFunction(Arc::new(transform))
    }

    /// Calls it.
    ///
    /// # Errors
    /// If the value is of another type than the function was made for.
    pub fn call(&self, value: MaterializedValue) -> Result<MaterializedValue, ValueMismatch> {
        (self.0)(value)
    }
}

/// A function of two materialized values.
#[derive(Clone)]
pub struct ComposeFunction(Compose);

#[derive(Clone)]
enum Compose {
    /// Needs no allocation.
    Plain(fn(MaterializedValue, MaterializedValue) -> Composed),
    Shared(Arc<dyn Fn(MaterializedValue, MaterializedValue) -> Composed + Send + Sync>),
}

impl ComposeFunction {
    /// The function `compose`, called on the core that materializes.
    pub fn new<A: 'static, B: 'static, C: 'static>(
        compose: impl Fn(A, B) -> C + Send + Sync + 'static,
    ) -> ComposeFunction {
        ComposeFunction::erased(move |a, b| Ok(Box::new(compose(expect::<A>(a)?, expect::<B>(b)?))))
    }

    /// As [`new`](Self::new), for a function that does not say its types.
    pub fn erased(
        compose: impl Fn(MaterializedValue, MaterializedValue) -> Result<MaterializedValue, ValueMismatch>
        + Send
        + Sync
        + 'static,
    ) -> ComposeFunction {
        ComposeFunction(Compose::Shared(Arc::new(compose)))
    }

    /// The pair `(A, B)` of the two values. Does not allocate.
    pub fn both<A: 'static, B: 'static>() -> ComposeFunction {
        ComposeFunction(Compose::Plain(|a, b| Ok(Box::new((expect::<A>(a)?, expect::<B>(b)?)))))
    }

    /// Calls it.
    ///
    /// # Errors
    /// If a value is of another type than the function was made for.
    pub fn call(&self, a: MaterializedValue, b: MaterializedValue) -> Result<MaterializedValue, ValueMismatch> {
        match &self.0 {
            Compose::Plain(function) => function(a, b),
            Compose::Shared(function) => function(a, b),
        }
    }
}

fn expect<A: Any>(value: MaterializedValue) -> Result<A, ValueMismatch> {
    value.downcast().map(|value| *value).map_err(|_| ValueMismatch { expected: type_name::<A>() })
}

/// Which materialized values remain when a part is added to what is there: *left* is what was there.
#[derive(Clone, Default)]
pub enum Combine {
    /// The value of what was there.
    #[default]
    Left,
    /// The value of the part that is added.
    Right,
    /// Neither: the unit value.
    Neither,
    /// A function of both; see [`Combine::both`] and [`Combine::with`].
    Function(ComposeFunction),
}

impl Combine {
    /// Both values, as the pair `(A, B)`.
    pub fn both<A: 'static, B: 'static>() -> Combine {
        Combine::Function(ComposeFunction::both::<A, B>())
    }

    /// A function of both.
    pub fn with<A: 'static, B: 'static, C: 'static>(compose: impl Fn(A, B) -> C + Send + Sync + 'static) -> Combine {
        Combine::Function(ComposeFunction::new(compose))
    }
}
