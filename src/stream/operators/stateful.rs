//! Operators on single elements with a state of the user's or a side effect: `stateful`, `zip_with_index`, `inspect`.
//! Neighbours become one stage.

use std::marker::PhantomData;

use super::elementwise::Fused;
use super::elementwise::fused;
use crate::stream::dsl::{FlowOps, Fusable};
use crate::stream::stage::elementwise::{Elementwise, Step};
use crate::stream::stage::made::blueprint;

fused!(
    /// [`StatefulOps::zip_with_index`].
    ZipWithIndex<T> { index: u64 }
);

impl<T: 'static> Elementwise for ZipWithIndex<T> {
    type In = T;
    type Out = (T, u64);

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<(T, u64)> {
        let index = self.index;
        self.index += 1;
        Step::Emit((element, index))
    }
}

fused!(
    /// [`StatefulOps::inspect`].
    Inspect<T; F> { function: F }
);

impl<T: 'static, F: FnMut(&T) + 'static> Elementwise for Inspect<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        (self.function)(&element);
        Step::Emit(element)
    }
}

blueprint!(
    /// [`StatefulOps::stateful`].
    Stateful<T, U, G; F> { factory: F }
);

/// The running function of [`Stateful`].
pub struct StatefulFunction<T, U, G, F> {
    factory: F,
    function: G,
    made: PhantomData<fn(T) -> U>,
}

impl<T: 'static, U: 'static, G, F> Elementwise for StatefulFunction<T, U, G, F>
where
    G: FnMut(T) -> Step<U> + 'static,
    F: Fn() -> G + 'static,
{
    type In = T;
    type Out = U;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<U> {
        (self.function)(element)
    }

    fn restart(&mut self) {
        self.function = (self.factory)();
    }
}

impl<T: 'static, U: 'static, G, F> Fusable for Stateful<T, U, G, F>
where
    G: FnMut(T) -> Step<U> + 'static,
    F: Fn() -> G + Clone + Send + Sync + 'static,
{
    type In = T;
    type Out = U;
    type Function = StatefulFunction<T, U, G, F>;

    fn create(&self) -> Self::Function {
        StatefulFunction { factory: self.factory.clone(), function: (self.factory)(), made: PhantomData }
    }
}

/// Operators with a state or a side effect.
pub trait StatefulOps: FlowOps {
    /// Emits each element with its number, from 0.
    fn zip_with_index(self) -> Fused<Self, ZipWithIndex<Self::Out>> {
        self.fuse("zip_with_index", ZipWithIndex { index: 0, elements: PhantomData })
    }

    /// Calls the function with each element, which is emitted then.
    fn inspect<F>(self, function: F) -> Fused<Self, Inspect<Self::Out, F>>
    where
        F: FnMut(&Self::Out) + Clone + Send + Sync + 'static,
    {
        self.fuse("inspect", Inspect { function, elements: PhantomData })
    }

    /// An operator of the user's: each element becomes a [`Step`]. The factory makes the function with its state, on the
    /// core that runs it, for each materialization and after each failure with the directive `Restart`; so the state
    /// need not be `Send` or `Clone`.
    ///
    /// ```
    /// use atoll::stream::dsl::Source;
    /// use atoll::stream::operators::StatefulOps;
    /// use atoll::stream::stage::elementwise::Step;
    ///
    /// // Differences of neighbours.
    /// let graph = Source::from_iterator(|| [1, 4, 9, 16])
    ///     .stateful(|| {
    ///         let mut last = None;
    ///         move |n: i32| last.replace(n).map_or(Step::Skip, |last| Step::Emit(n - last))
    ///     })
    ///     .into_seq();
    /// # drop(graph);
    /// ```
    fn stateful<U: 'static, G, F>(self, factory: F) -> Fused<Self, Stateful<Self::Out, U, G, F>>
    where
        G: FnMut(Self::Out) -> Step<U> + 'static,
        F: Fn() -> G + Clone + Send + Sync + 'static,
    {
        self.fuse("stateful", Stateful { factory, elements: PhantomData })
    }
}

impl<S: FlowOps> StatefulOps for S {}
