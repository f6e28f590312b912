//! Operators on single elements: `map`, `filter`, `take`, `scan` and their like. Neighbours become one stage.
//!
//! All of them pass demand on: they emit and complete as the text of each method says, back-pressure when downstream does,
//! and cancel when downstream cancels.

use std::marker::PhantomData;

use crate::stream::dsl::{FlowOps, Fusable};
use crate::stream::error::StreamError;
use crate::stream::stage::elementwise::{Elementwise, Step, Then};

/// A source or flow with one more fused operator.
pub type Fused<S, N> = <S as FlowOps>::With<<N as Fusable>::Out, <S as FlowOps>::Mat, Then<<S as FlowOps>::Tail, N>>;

macro_rules! operator {
    ($(#[$about:meta])* $name:ident<$element:ident, $out:ident, $function:ident: $bound:path>) => {
        $(#[$about])*
        pub struct $name<$element, $out, $function>($function, PhantomData<fn($element) -> $out>);

        impl<$element, $out, $function: Clone> Clone for $name<$element, $out, $function> {
            fn clone(&self) -> Self {
                $name(self.0.clone(), PhantomData)
            }
        }
    };
}

operator!(
    /// [`ElementwiseOps::map`].
    Map<T, U, F: FnMut(T) -> U>
);

impl<T: 'static, U: 'static, F: FnMut(T) -> U + 'static> Elementwise for Map<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        Step::Emit((self.0)(element))
    }
}

impl<T: 'static, U: 'static, F: FnMut(T) -> U + Clone + Send + Sync + 'static> Fusable for Map<T, U, F> {
    type In = T;
    type Out = U;
    type Function = Self;

    fn create(&self) -> Self {
        self.clone()
    }
}

operator!(
    /// [`ElementwiseOps::try_map`].
    TryMap<T, U, F: FnMut(T) -> Result<U, StreamError>>
);

impl<T: 'static, U: 'static, F: FnMut(T) -> Result<U, StreamError> + 'static> Elementwise for TryMap<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        match (self.0)(element) {
            Ok(element) => Step::Emit(element),
            Err(error) => Step::Fail(error),
        }
    }
}

impl<T: 'static, U: 'static, F> Fusable for TryMap<T, U, F>
where
    F: FnMut(T) -> Result<U, StreamError> + Clone + Send + Sync + 'static,
{
    type In = T;
    type Out = U;
    type Function = Self;

    fn create(&self) -> Self {
        self.clone()
    }
}

operator!(
    /// [`ElementwiseOps::filter`].
    Filter<T, U, F: FnMut(&T) -> bool>
);

impl<T: 'static, F: FnMut(&T) -> bool + 'static> Elementwise for Filter<T, T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        if (self.0)(&element) { Step::Emit(element) } else { Step::Skip }
    }
}

impl<T: 'static, F: FnMut(&T) -> bool + Clone + Send + Sync + 'static> Fusable for Filter<T, T, F> {
    type In = T;
    type Out = T;
    type Function = Self;

    fn create(&self) -> Self {
        self.clone()
    }
}

/// [`ElementwiseOps::take`].
pub struct Take<T> {
    left: u64,
    element: PhantomData<fn(T)>,
}

impl<T> Clone for Take<T> {
    fn clone(&self) -> Self {
        Take { left: self.left, element: PhantomData }
    }
}

impl<T: 'static> Elementwise for Take<T> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        match self.left {
            0 => Step::Done,
            1 => Step::Last(element),
            _ => {
                self.left -= 1;
                Step::Emit(element)
            }
        }
    }

    fn takes_nothing(&self) -> bool {
        self.left == 0
    }
}

impl<T: 'static> Fusable for Take<T> {
    type In = T;
    type Out = T;
    type Function = Self;

    fn create(&self) -> Self {
        self.clone()
    }
}

/// Operators on single elements.
pub trait ElementwiseOps: FlowOps {
    /// Emits what the function makes of each element. A panic in the function fails the stream, or is what the
    /// supervision decider says.
    fn map<U: 'static, F>(self, function: F) -> Fused<Self, Map<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> U + Clone + Send + Sync + 'static,
    {
        self.fuse("map", Map(function, PhantomData))
    }

    /// As [`ElementwiseOps::map`]; an `Err` fails the stream, or is what the supervision decider says.
    fn try_map<U: 'static, F>(self, function: F) -> Fused<Self, TryMap<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> Result<U, StreamError> + Clone + Send + Sync + 'static,
    {
        self.fuse("try_map", TryMap(function, PhantomData))
    }

    /// Emits the elements for which the predicate holds.
    fn filter<F>(self, predicate: F) -> Fused<Self, Filter<Self::Out, Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        self.fuse("filter", Filter(predicate, PhantomData))
    }

    /// Emits the first elements and completes with the last of them; at once if there are to be none.
    fn take(self, elements: u64) -> Fused<Self, Take<Self::Out>> {
        self.fuse("take", Take { left: elements, element: PhantomData })
    }
}

impl<S: FlowOps> ElementwiseOps for S {}
