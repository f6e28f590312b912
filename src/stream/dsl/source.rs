//! Sources: graphs with one outlet.

use std::marker::PhantomData;

use super::flow_ops::{Chain, FlowOps, append};
use super::fusing::{Fusable, Identity};
use super::{RunnableGraph, Sink};
use crate::stream::stage::{GraphStage, SourceShape, StageModule};
use crate::stream::traversal::Combine;
use crate::stream::traversal::builder::LinearBuilder;

/// A blueprint with one open outlet: where elements come from. Cheap to clone; runs any number of times once it has a
/// [`Sink`]. `P` holds operators that are still being fused; [`FlowOps::seal`] makes the type short again.
pub struct Source<Out, Mat = (), P = Identity<Out>> {
    pub(crate) chain: Chain<P>,
    types: PhantomData<fn() -> (Out, Mat)>,
}

impl<Out, Mat, P: Clone> Clone for Source<Out, Mat, P> {
    fn clone(&self) -> Self {
        Source { chain: self.chain.clone(), types: PhantomData }
    }
}

impl<Out: 'static, Mat: 'static> Source<Out, Mat> {
    /// A source that is one stage.
    pub fn from_stage<G: GraphStage<Shape = SourceShape<Out>, Mat = Mat>>(stage: G) -> Source<Out, Mat> {
        Source::from_builder(LinearBuilder::of(StageModule(stage)))
    }

    /// `builder` has one outlet for elements of type `Out`, and a materialized value of type `Mat`.
    pub(crate) fn from_builder(builder: LinearBuilder) -> Source<Out, Mat> {
        Source { chain: Chain::new(builder), types: PhantomData }
    }
}

impl<Out: 'static, Mat: 'static, P: Fusable<Out = Out>> Source<Out, Mat, P> {
    /// `chain` has one outlet for elements of type `Out`, and a materialized value of type `Mat`.
    pub(crate) fn from_chain_of(chain: Chain<P>) -> Source<Out, Mat, P> {
        Source { chain, types: PhantomData }
    }

    /// Closes the graph, with the materialized value of the source.
    pub fn to<M: 'static>(self, sink: Sink<Out, M>) -> RunnableGraph<Mat> {
        RunnableGraph::from_builder(append(self.chain.sealed(), sink.builder, Combine::Left))
    }

    /// Closes the graph and combines the materialized values. See [`super::keep`].
    pub fn to_mat<M: 'static, R: 'static>(
        self,
        sink: Sink<Out, M>,
        combine: impl Fn(Mat, M) -> R + Send + Sync + 'static,
    ) -> RunnableGraph<R> {
        RunnableGraph::from_builder(append(self.chain.sealed(), sink.builder, Combine::with(combine)))
    }

    /// Closes the graph, with the materialized value of the sink.
    pub fn to_right<M: 'static>(self, sink: Sink<Out, M>) -> RunnableGraph<M> {
        RunnableGraph::from_builder(append(self.chain.sealed(), sink.builder, Combine::Right))
    }
}

impl<Out: 'static, Mat: 'static, P: Fusable<Out = Out>> FlowOps for Source<Out, Mat, P> {
    type Out = Out;
    type Mat = Mat;
    type Tail = P;
    type With<T: 'static, M: 'static, Q: Fusable<Out = T>> = Source<T, M, Q>;

    fn into_chain(self) -> Chain<P> {
        self.chain
    }

    fn from_chain<T: 'static, M: 'static, Q: Fusable<Out = T>>(chain: Chain<Q>) -> Source<T, M, Q> {
        Source { chain, types: PhantomData }
    }
}
