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

/// A blueprint that is its own running function, with the state it begins with.
macro_rules! fused {
    ($(#[$about:meta])* $name:ident<$($element:ident),+ $(; $function:ident)?> { $($field:ident: $type:ty),* $(,)? }) => {
        $crate::stream::stage::made::blueprint!($(#[$about])* $name<$($element),+ $(; $function)?> { $($field: $type),* });

        impl<$($element,)+ $($function)?> Fusable for $name<$($element,)+ $($function)?>
        where
            Self: Elementwise + Clone + Send + Sync,
        {
            type In = <Self as Elementwise>::In;
            type Out = <Self as Elementwise>::Out;
            type Function = Self;

            fn create(&self) -> Self {
                self.clone()
            }
        }
    };
}
pub(super) use fused;

fused!(
    /// [`ElementwiseOps::map`].
    Map<T, U; F> { function: F }
);

impl<T: 'static, U: 'static, F: FnMut(T) -> U + 'static> Elementwise for Map<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        Step::Emit((self.function)(element))
    }
}

fused!(
    /// [`ElementwiseOps::try_map`].
    TryMap<T, U; F> { function: F }
);

impl<T: 'static, U: 'static, F: FnMut(T) -> Result<U, StreamError> + 'static> Elementwise for TryMap<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        match (self.function)(element) {
            Ok(element) => Step::Emit(element),
            Err(error) => Step::Fail(error),
        }
    }
}

fused!(
    /// [`ElementwiseOps::filter`].
    Filter<T, U; F> { predicate: F }
);

impl<T: 'static, F: FnMut(&T) -> bool + 'static> Elementwise for Filter<T, T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        if (self.predicate)(&element) { Step::Emit(element) } else { Step::Skip }
    }
}

fused!(
    /// [`ElementwiseOps::take`].
    Take<T> { left: u64 }
);

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

/// Operators on single elements.
pub trait ElementwiseOps: FlowOps {
    /// Emits what the function makes of each element. A panic in the function fails the stream, or is what the
    /// supervision decider says.
    fn map<U: 'static, F>(self, function: F) -> Fused<Self, Map<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> U + Clone + Send + Sync + 'static,
    {
        self.fuse("map", Map { function, elements: PhantomData })
    }

    /// As [`ElementwiseOps::map`]; an `Err` fails the stream, or is what the supervision decider says.
    fn try_map<U: 'static, F>(self, function: F) -> Fused<Self, TryMap<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> Result<U, StreamError> + Clone + Send + Sync + 'static,
    {
        self.fuse("try_map", TryMap { function, elements: PhantomData })
    }

    /// Emits the elements for which the predicate holds.
    fn filter<F>(self, predicate: F) -> Fused<Self, Filter<Self::Out, Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        self.fuse("filter", Filter { predicate, elements: PhantomData })
    }

    /// Emits the first elements and completes with the last of them; at once if there are to be none.
    fn take(self, elements: u64) -> Fused<Self, Take<Self::Out>> {
        self.fuse("take", Take { left: elements, elements: PhantomData })
    }
}

impl<S: FlowOps> ElementwiseOps for S {}
