//! Sinks that gather elements.

use crate::stream::attributes::Attributes;
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::Sink;
use crate::stream::error::StreamError;
use crate::stream::interpreter::{Context, Inlet};
use crate::stream::stage::{GraphStage, Logic, Setup, SinkShape};
use std::marker::PhantomData;

/// [`Sink::fold`].
struct FoldSink<T, A, F> {
    zero: A,
    function: F,
    element: PhantomData<fn(T)>,
}

struct FoldLogic<T, A, F> {
    inlet: Inlet<T>,
    state: Option<A>,
    function: F,
    promise: Promise<A>,
}

impl<T, A, F> GraphStage for FoldSink<T, A, F>
where
    T: 'static,
    A: Clone + Send + Sync + 'static,
    F: FnMut(A, T) -> A + Clone + Send + Sync + 'static,
{
    type Shape = SinkShape<T>;
    type Seed = (A, F, Promise<A>);
    type Mat = Completion<A>;
    type Logic = FoldLogic<T, A, F>;

    fn name(&self) -> &'static str {
        "fold"
    }

    fn shape(&self) -> Self::Shape {
        SinkShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (Self::Seed, Self::Mat) {
        let (promise, value) = completion();
        ((self.zero.clone(), self.function.clone(), promise), value)
    }

    fn create((zero, function, promise): Self::Seed, inlet: Inlet<T>, _: &Setup<'_>) -> Self::Logic {
        FoldLogic { inlet, state: Some(zero), function, promise }
    }
}

impl<T: 'static, A: 'static, F: FnMut(A, T) -> A + 'static> Logic for FoldLogic<T, A, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if let Some(state) = self.state.take() {
            self.state = Some((self.function)(state, element));
        }
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        if let Some(state) = self.state.take() {
            self.promise.succeed(state);
        }
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.promise.fail(error);
    }
}

impl<T: 'static> Sink<T> {
    /// Gathers all elements into one value, which is there when the stream completes. A failure of the stream, or a panic
    /// of the function, fails it.
    pub fn fold<A, F>(zero: A, function: F) -> Sink<T, Completion<A>>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, T) -> A + Clone + Send + Sync + 'static,
    {
        Sink::from_stage(FoldSink { zero, function, element: PhantomData })
    }
}
