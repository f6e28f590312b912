//! Junctions that bring streams together: merge, concat, zip and their like.
//!
//! Most of them ask each input for its first element when they start, which is what keeps cycles through them alive.
//! [`FanInOps`] has the short forms for two streams; the stages themselves are for [`GraphBuilder`].

mod combine;
mod merge;
mod sequence;
mod zip;

use crate::stream::dsl::{Flow, FlowOps, Fusable, GraphBuilder, Plain, Source};
use crate::stream::interpreter::{Context, Inlet};
use crate::stream::stage::{FanInShape, GraphStage, ZipShape};
pub use combine::{ZipN, ZipNLogic};
pub use merge::{Merge, MergeLogic, MergePreferred, MergePreferredLogic, MergeSorted, MergeSortedLogic};
pub use sequence::{Concat, ConcatLogic, Interleave, InterleaveLogic, OrElse, OrElseLogic};
pub use zip::{Zip, ZipLatestLogic, ZipLatestWith, ZipWith, ZipWithLogic};

/// Asks each input for an element; without inputs the stage completes.
fn ask_all<T: 'static>(context: &mut Context, inlets: &[Inlet<T>]) {
    if inlets.is_empty() {
        context.complete_stage();
    }
    for inlet in inlets {
        inlet.try_pull(context);
    }
}

/// A junction of several inputs as a flow: what comes in is input 0, the other source is input 1.
fn beside<T: 'static, M: 'static, P: Fusable<Out = T>, G>(junction: G, other: Source<T, M, P>) -> Flow<T, T, M>
where
    G: GraphStage<Shape = FanInShape<T, T>>,
{
    let (mut graph, source) = GraphBuilder::with(other);
    let junction = graph.add_stage(junction);
    graph.connect(source, junction.inlets[1]);
    graph.flow(junction.inlets[0], junction.outlet).expect("both inputs of the junction are used")
}

/// A junction of two types as a flow.
fn across<A: 'static, B: 'static, O: 'static, M: 'static, P: Fusable<Out = B>, G>(
    junction: G,
    other: Source<B, M, P>,
) -> Flow<A, O, M>
where
    G: GraphStage<Shape = ZipShape<A, B, O>>,
{
    let (mut graph, source) = GraphBuilder::with(other);
    let junction = graph.add_stage(junction);
    graph.connect(source, junction.second);
    graph.flow(junction.first, junction.outlet).expect("both inputs of the junction are used")
}

/// Short forms for junctions with one other source. The materialized value is that of this stream; use
/// [`FlowOps::via_mat`] with the flows of a [`GraphBuilder`] for others.
pub trait FanInOps: FlowOps {
    /// See [`Merge`].
    fn merge<M: 'static, P: Fusable<Out = Self::Out>>(self, other: Source<Self::Out, M, P>) -> Plain<Self, Self::Out> {
        self.via(beside(Merge::new(2), other))
    }

    /// See [`MergePreferred`]; this stream is the preferred one.
    fn merge_preferred<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        self.via(beside(MergePreferred::new(1), other))
    }

    /// See [`MergeSorted`].
    fn merge_sorted<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out>
    where
        Self::Out: Ord,
    {
        self.via(across(MergeSorted::new(), other))
    }

    /// See [`Interleave`].
    fn interleave<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
        segment: usize,
    ) -> Plain<Self, Self::Out> {
        self.via(beside(Interleave::new(2, segment), other))
    }

    /// See [`Concat`]: the other source starts at once and is asked for its first element.
    fn concat<M: 'static, P: Fusable<Out = Self::Out>>(self, other: Source<Self::Out, M, P>) -> Plain<Self, Self::Out> {
        self.via(beside(Concat::new(2), other))
    }

    /// See [`Concat::lazy`].
    fn concat_lazy<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        self.via(beside(Concat::new(2).lazy(), other))
    }

    /// The other source before this stream; see [`Concat`].
    fn prepend<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        let (mut graph, source) = GraphBuilder::with(other);
        let concat = graph.add_stage(Concat::new(2));
        graph.connect(source, concat.inlets[0]);
        let flow: Flow<Self::Out, Self::Out, M> =
            graph.flow(concat.inlets[1], concat.outlet).expect("both inputs of the junction are used");
        self.via(flow)
    }

    /// See [`OrElse`].
    fn or_else<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        self.via(across(OrElse::new(), other))
    }

    /// See [`Zip`].
    fn zip<B: 'static, M: 'static, P: Fusable<Out = B>>(self, other: Source<B, M, P>) -> Plain<Self, (Self::Out, B)> {
        self.via(across(Zip::new(), other))
    }

    /// See [`ZipWith`].
    fn zip_with<B: 'static, O: 'static, M: 'static, P: Fusable<Out = B>>(
        self,
        other: Source<B, M, P>,
        function: impl FnMut(Self::Out, B) -> O + Clone + Send + Sync + 'static,
    ) -> Plain<Self, O> {
        self.via(across(ZipWith::new(function), other))
    }

    /// See [`ZipLatestWith`].
    fn zip_latest_with<B: 'static, O: 'static, M: 'static, P: Fusable<Out = B>>(
        self,
        other: Source<B, M, P>,
        function: impl FnMut(&Self::Out, &B) -> O + Clone + Send + Sync + 'static,
    ) -> Plain<Self, O> {
        self.via(across(ZipLatestWith::new(function), other))
    }
}

impl<S: FlowOps> FanInOps for S {}
