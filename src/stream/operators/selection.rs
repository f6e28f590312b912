//! Operators that choose among elements, each by itself or by what came before: `drop`, `take_while`, `limit` and the
//! like. Neighbours become one stage.
//!
//! All of them emit, back-pressure and complete as [`super::elementwise`] says; those that end the stream by themselves
//! complete downstream and cancel upstream.

use std::marker::PhantomData;

use super::elementwise::{Fused, fused};
use crate::stream::dsl::{FlowOps, Fusable};
use crate::stream::error::{StreamError, StreamLimitReached};
use crate::stream::stage::elementwise::{Elementwise, Step};
use crate::stream::stage::made::blueprint;

fused!(
    /// [`SelectionOps::filter_not`].
    FilterNot<T; F> { predicate: F }
);

impl<T: 'static, F: FnMut(&T) -> bool + 'static> Elementwise for FilterNot<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        if (self.predicate)(&element) { Step::Skip } else { Step::Emit(element) }
    }
}

fused!(
    /// [`SelectionOps::map_option`].
    MapOption<T, U; F> { function: F }
);

impl<T: 'static, U: 'static, F: FnMut(T) -> Option<U> + 'static> Elementwise for MapOption<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        (self.function)(element).map_or(Step::Skip, Step::Emit)
    }
}

fused!(
    /// [`SelectionOps::collect_first`].
    CollectFirst<T, U; F> { function: F }
);

impl<T: 'static, U: 'static, F: FnMut(T) -> Option<U> + 'static> Elementwise for CollectFirst<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        (self.function)(element).map_or(Step::Skip, Step::Last)
    }
}

fused!(
    /// [`SelectionOps::collect_while`].
    CollectWhile<T, U; F> { function: F }
);

impl<T: 'static, U: 'static, F: FnMut(T) -> Option<U> + 'static> Elementwise for CollectWhile<T, U, F> {
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        (self.function)(element).map_or(Step::Done, Step::Emit)
    }
}

fused!(
    /// [`SelectionOps::take_while`] and its like.
    TakeWhile<T; F> { predicate: F, is_inclusive: bool, holds: bool }
);

impl<T: 'static, F: FnMut(&T) -> bool + 'static> Elementwise for TakeWhile<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        if (self.predicate)(&element) == self.holds {
            Step::Emit(element)
        } else if self.is_inclusive {
            Step::Last(element)
        } else {
            Step::Done
        }
    }
}

fused!(
    /// [`SelectionOps::drop`].
    Drop<T> { left: u64 }
);

impl<T: 'static> Elementwise for Drop<T> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        if self.left == 0 {
            return Step::Emit(element);
        }
        self.left -= 1;
        Step::Skip
    }
}

fused!(
    /// [`SelectionOps::drop_while`].
    DropWhile<T; F> { predicate: F, drops: bool }
);

impl<T: 'static, F: FnMut(&T) -> bool + 'static> Elementwise for DropWhile<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        self.drops = self.drops && (self.predicate)(&element);
        if self.drops { Step::Skip } else { Step::Emit(element) }
    }
}

fused!(
    /// [`SelectionOps::limit`] and [`SelectionOps::limit_weighted`].
    Limit<T; F> { limit: u64, left: u64, weight: F }
);

impl<T: 'static, F: FnMut(&T) -> u64 + 'static> Elementwise for Limit<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        match self.left.checked_sub((self.weight)(&element)) {
            Some(left) => {
                self.left = left;
                Step::Emit(element)
            }
            None => Step::Fail(StreamError::new(StreamLimitReached { limit: self.limit })),
        }
    }

    fn restart(&mut self) {
        self.left = self.limit;
    }
}

/// The running function of [`Deduplicate`].
pub struct DroppingRepeated<T, F> {
    is_same: F,
    last: Option<T>,
}

impl<T: Clone + 'static, F: FnMut(&T, &T) -> bool + 'static> Elementwise for DroppingRepeated<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        match &mut self.last {
            Some(last) if (self.is_same)(last, &element) => Step::Skip,
            last => {
                *last = Some(element.clone());
                Step::Emit(element)
            }
        }
    }

    fn restart(&mut self) {
        self.last = None;
    }
}

blueprint!(
    /// [`SelectionOps::drop_repeated_by`].
    Deduplicate<T; F> { is_same: F }
);

impl<T: Clone + 'static, F: FnMut(&T, &T) -> bool + Clone + Send + Sync + 'static> Fusable for Deduplicate<T, F> {
    type In = T;
    type Out = T;
    type Function = DroppingRepeated<T, F>;

    fn create(&self) -> Self::Function {
        DroppingRepeated { is_same: self.is_same.clone(), last: None }
    }
}

/// Says that each element weighs the same.
type One<T> = fn(&T) -> u64;
/// Compares elements.
type Same<T> = fn(&T, &T) -> bool;

/// Operators that choose among elements. Where a user function panics, the stream fails, or it is what the supervision
/// decider says; a failure by [`SelectionOps::limit`] counts as one.
pub trait SelectionOps: FlowOps {
    /// Emits the elements for which the predicate does not hold.
    fn filter_not<F>(self, predicate: F) -> Fused<Self, FilterNot<Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        self.fuse("filter_not", FilterNot { predicate, elements: PhantomData })
    }

    /// Emits what the function makes of an element, if it makes something. (Also known as `collect`, or `filter_map`.)
    fn map_option<U: 'static, F>(self, function: F) -> Fused<Self, MapOption<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> Option<U> + Clone + Send + Sync + 'static,
    {
        self.fuse("map_option", MapOption { function, elements: PhantomData })
    }

    /// Emits the first thing that the function makes of an element, and completes.
    fn collect_first<U: 'static, F>(self, function: F) -> Fused<Self, CollectFirst<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> Option<U> + Clone + Send + Sync + 'static,
    {
        self.fuse("collect_first", CollectFirst { function, elements: PhantomData })
    }

    /// Emits what the function makes of elements, and completes at the first of which it makes nothing.
    fn collect_while<U: 'static, F>(self, function: F) -> Fused<Self, CollectWhile<Self::Out, U, F>>
    where
        F: FnMut(Self::Out) -> Option<U> + Clone + Send + Sync + 'static,
    {
        self.fuse("collect_while", CollectWhile { function, elements: PhantomData })
    }

    /// Emits elements while the predicate holds; completes at the first for which it does not, without that one.
    fn take_while<F>(self, predicate: F) -> Fused<Self, TakeWhile<Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        let operator = TakeWhile { predicate, is_inclusive: false, holds: true, elements: PhantomData };
        self.fuse("take_while", operator)
    }

    /// As [`SelectionOps::take_while`], with the first element for which the predicate does not hold as the last one.
    fn take_while_inclusive<F>(self, predicate: F) -> Fused<Self, TakeWhile<Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        let operator = TakeWhile { predicate, is_inclusive: true, holds: true, elements: PhantomData };
        self.fuse("take_while_inclusive", operator)
    }

    /// Emits elements up to the first for which the predicate holds, which is the last one.
    fn take_until<F>(self, predicate: F) -> Fused<Self, TakeWhile<Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        let operator = TakeWhile { predicate, is_inclusive: true, holds: false, elements: PhantomData };
        self.fuse("take_until", operator)
    }

    /// Drops the first elements and emits all others.
    fn drop(self, elements: u64) -> Fused<Self, Drop<Self::Out>> {
        self.fuse("drop", Drop { left: elements, elements: PhantomData })
    }

    /// Drops elements while the predicate holds, and emits all from the first for which it does not.
    fn drop_while<F>(self, predicate: F) -> Fused<Self, DropWhile<Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        self.fuse("drop_while", DropWhile { predicate, drops: true, elements: PhantomData })
    }

    /// Drops elements that equal the one emitted before.
    fn drop_repeated(self) -> Fused<Self, Deduplicate<Self::Out, Same<Self::Out>>>
    where
        Self::Out: Clone + PartialEq,
    {
        let is_same: Same<Self::Out> = |last, element| last == element;
        self.fuse("drop_repeated", Deduplicate { is_same, elements: PhantomData })
    }

    /// Drops elements that the function finds to be the same as the one emitted before.
    fn drop_repeated_by<F>(self, is_same: F) -> Fused<Self, Deduplicate<Self::Out, F>>
    where
        Self::Out: Clone,
        F: FnMut(&Self::Out, &Self::Out) -> bool + Clone + Send + Sync + 'static,
    {
        self.fuse("drop_repeated", Deduplicate { is_same, elements: PhantomData })
    }

    /// Emits so many elements and fails with [`StreamLimitReached`] if another one comes. The directive `Restart` begins to
    /// count anew.
    fn limit(self, limit: u64) -> Fused<Self, Limit<Self::Out, One<Self::Out>>> {
        let weight: One<Self::Out> = |_| 1;
        self.fuse("limit", Limit { limit, left: limit, weight, elements: PhantomData })
    }

    /// Emits elements up to a weight and fails with [`StreamLimitReached`] at the first that exceeds it.
    fn limit_weighted<F>(self, limit: u64, weight: F) -> Fused<Self, Limit<Self::Out, F>>
    where
        F: FnMut(&Self::Out) -> u64 + Clone + Send + Sync + 'static,
    {
        self.fuse("limit_weighted", Limit { limit, left: limit, weight, elements: PhantomData })
    }
}

impl<S: FlowOps> SelectionOps for S {}
