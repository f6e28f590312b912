//! Flows: graphs with one inlet and one outlet.

use std::marker::PhantomData;

use super::flow_ops::{Chain, FlowOps, append};
use super::fusing::{Fusable, Identity};
use super::{RunnableGraph, Sink};
use crate::stream::stage::{FlowShape, GraphStage, StageModule};
use crate::stream::traversal::Combine;
use crate::stream::traversal::builder::LinearBuilder;

/// A blueprint with one open inlet and one open outlet: what is done to elements.
pub struct Flow<In, Out, Mat = (), P = Identity<Out>> {
    pub(crate) chain: Chain<P>,
    types: PhantomData<fn(In) -> (Out, Mat)>,
}

impl<In, Out, Mat, P: Clone> Clone for Flow<In, Out, Mat, P> {
    fn clone(&self) -> Self {
        Flow { chain: self.chain.clone(), types: PhantomData }
    }
}

impl<T: 'static> Flow<T, T> {
    /// The flow that does nothing: where a flow begins.
    #[must_use]
    pub fn new() -> Flow<T, T> {
        Flow::from_builder(LinearBuilder::empty())
    }
}

impl<T: 'static> Default for Flow<T, T> {
    fn default() -> Self {
        Flow::new()
    }
}

impl<In: 'static, Out: 'static, Mat: 'static> Flow<In, Out, Mat> {
    /// A flow that is one stage.
    pub fn from_stage<G: GraphStage<Shape = FlowShape<In, Out>, Mat = Mat>>(stage: G) -> Flow<In, Out, Mat> {
        Flow::from_builder(LinearBuilder::of(StageModule(stage)))
    }

    /// `builder` is empty, or has one inlet for `In` and one outlet for `Out`; its materialized value is a `Mat`.
    pub(crate) fn from_builder(builder: LinearBuilder) -> Flow<In, Out, Mat> {
        Flow { chain: Chain::new(builder), types: PhantomData }
    }
}

impl<In: 'static, Out: 'static, Mat: 'static, P: Fusable<Out = Out>> Flow<In, Out, Mat, P> {
    /// A sink that does this first, with the materialized value of the flow.
    pub fn to<M: 'static>(self, sink: Sink<Out, M>) -> Sink<In, Mat> {
        Sink::from_builder(append(self.chain.sealed(), sink.builder, Combine::Left))
    }

    /// A sink that does this first, with both values combined.
    pub fn to_mat<M: 'static, R: 'static>(
        self,
        sink: Sink<Out, M>,
        combine: impl Fn(Mat, M) -> R + Send + Sync + 'static,
    ) -> Sink<In, R> {
        Sink::from_builder(append(self.chain.sealed(), sink.builder, Combine::with(combine)))
    }

    /// Closes the flow with another one in the opposite direction: what comes out goes in there, and back.
    pub fn join<M: 'static, Q: Fusable<Out = In>>(self, other: Flow<Out, In, M, Q>) -> RunnableGraph<Mat> {
        let round = append(self.chain.sealed(), other.chain.sealed(), Combine::Left);
        RunnableGraph::from_builder(round.close_loop().expect("a flow has an inlet and an outlet"))
    }
}

impl<In: 'static, Out: 'static, Mat: 'static, P: Fusable<Out = Out>> FlowOps for Flow<In, Out, Mat, P> {
    type Out = Out;
    type Mat = Mat;
    type Tail = P;
    type With<T: 'static, M: 'static, Q: Fusable<Out = T>> = Flow<In, T, M, Q>;

    fn into_chain(self) -> Chain<P> {
        self.chain
    }

    fn from_chain<T: 'static, M: 'static, Q: Fusable<Out = T>>(chain: Chain<Q>) -> Flow<In, T, M, Q> {
        Flow { chain, types: PhantomData }
    }
}
