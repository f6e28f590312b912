//! Pairs of flows in opposite directions: protocol layers that stack.

use std::marker::PhantomData;

use super::Flow;
use super::fusing::Fusable;
use super::graph::{BidiPart, FlowPart, GraphBuilder};
use crate::stream::attributes::Attributes;
use crate::stream::operators::elementwise::ElementwiseOps;
use crate::stream::stage::{BidiShape, GraphStage, StageModule};
use crate::stream::traversal::TransformFunction;
use crate::stream::traversal::builder::TraversalBuilder;

type Types<I1, O1, I2, O2, Mat> = PhantomData<fn(I1, I2) -> (O1, O2, Mat)>;

/// A blueprint with two inlets and two outlets: `I1 → O1` on the way down, `I2 → O2` on the way back.
pub struct BidiFlow<I1, O1, I2, O2, Mat = ()> {
    pub(crate) builder: TraversalBuilder,
    types: Types<I1, O1, I2, O2, Mat>,
}

impl<I1, O1, I2, O2, Mat> Clone for BidiFlow<I1, O1, I2, O2, Mat> {
    fn clone(&self) -> Self {
        BidiFlow { builder: self.builder.clone(), types: PhantomData }
    }
}

/// Both are parts of a pair of flows, whose ports are free until they are wired here.
const WIRED_HERE: &str = "the parts of a pair of flows are wired here only";

impl<I1: 'static, O1: 'static, I2: 'static, O2: 'static, Mat: 'static> BidiFlow<I1, O1, I2, O2, Mat> {
    /// `builder` has these ports in the order of [`BidiShape`], and a materialized value of type `Mat`.
    pub(crate) fn from_builder(builder: TraversalBuilder) -> Self {
        BidiFlow { builder, types: PhantomData }
    }

    /// A pair that is one stage.
    pub fn from_stage<G: GraphStage<Shape = BidiShape<I1, O1, I2, O2>, Mat = Mat>>(stage: G) -> Self {
        BidiFlow::from_builder(TraversalBuilder::operator(StageModule(stage)))
    }

    /// Stacks another pair below: its way down begins where this one's ends.
    pub fn atop<D: 'static, B: 'static, M: 'static>(
        self,
        below: BidiFlow<O1, D, B, I2, M>,
    ) -> BidiFlow<I1, D, B, O2, Mat> {
        self.atop_mat(below, super::keep::left)
    }

    /// As [`BidiFlow::atop`], with the materialized values combined.
    pub fn atop_mat<D: 'static, B: 'static, M: 'static, R: 'static>(
        self,
        below: BidiFlow<O1, D, B, I2, M>,
        combine: impl Fn(Mat, M) -> R + Send + Sync + 'static,
    ) -> BidiFlow<I1, D, B, O2, R> {
        let (graph, upper) = GraphBuilder::with(self);
        let (mut graph, lower) = graph.add_mat(below, combine);
        graph.connect(upper.outlet_down, lower.inlet_down);
        graph.connect(lower.outlet_back, upper.inlet_back);
        let ports = BidiPart {
            inlet_down: upper.inlet_down,
            outlet_down: lower.outlet_down,
            inlet_back: lower.inlet_back,
            outlet_back: upper.outlet_back,
        };
        graph.bidi(ports).expect(WIRED_HERE)
    }

    /// Closes the lower end with a flow.
    pub fn join<M: 'static, P: Fusable<Out = I2>>(self, flow: Flow<O1, I2, M, P>) -> Flow<I1, O2, Mat> {
        self.join_mat(flow, super::keep::left)
    }

    /// As [`BidiFlow::join`], with the materialized values combined.
    pub fn join_mat<M: 'static, R: 'static, P: Fusable<Out = I2>>(
        self,
        flow: Flow<O1, I2, M, P>,
        combine: impl Fn(Mat, M) -> R + Send + Sync + 'static,
    ) -> Flow<I1, O2, R> {
        let (graph, bidi) = GraphBuilder::with(self);
        let (mut graph, FlowPart { inlet, outlet }) = graph.add_mat(flow, combine);
        graph.connect(bidi.outlet_down, inlet);
        graph.connect(outlet, bidi.inlet_back);
        graph.flow(bidi.inlet_down, bidi.outlet_back).expect(WIRED_HERE)
    }

    /// The pair upside down.
    #[must_use]
    pub fn reversed(self) -> BidiFlow<I2, O2, I1, O1, Mat> {
        let (graph, bidi) = GraphBuilder::with(self);
        let ports = BidiPart {
            inlet_down: bidi.inlet_back,
            outlet_down: bidi.outlet_back,
            inlet_back: bidi.inlet_down,
            outlet_back: bidi.outlet_down,
        };
        graph.bidi(ports).expect(WIRED_HERE)
    }

    /// Computes on the materialized value.
    pub fn map_materialized_value<M: 'static>(
        mut self,
        transform: impl Fn(Mat) -> M + Send + Sync + 'static,
    ) -> BidiFlow<I1, O1, I2, O2, M> {
        self.builder.transform(TransformFunction::new(transform));
        BidiFlow::from_builder(self.builder)
    }

    /// Adds attributes to the pair.
    #[must_use]
    pub fn add_attributes(mut self, attributes: &Attributes) -> Self {
        self.builder.add_attributes(attributes);
        self
    }
}

impl<I1: 'static, O1: 'static, I2: 'static, O2: 'static> BidiFlow<I1, O1, I2, O2> {
    /// Two flows that have nothing to do with one another.
    pub fn from_flows<M1: 'static, M2: 'static, P1: Fusable<Out = O1>, P2: Fusable<Out = O2>>(
        down: Flow<I1, O1, M1, P1>,
        back: Flow<I2, O2, M2, P2>,
    ) -> Self {
        let mut graph = GraphBuilder::new();
        let (down, back) = (graph.add(down), graph.add(back));
        let ports = BidiPart {
            inlet_down: down.inlet,
            outlet_down: down.outlet,
            inlet_back: back.inlet,
            outlet_back: back.outlet,
        };
        graph.bidi(ports).expect(WIRED_HERE)
    }

    /// A function for each direction.
    pub fn from_functions<F, G>(down: F, back: G) -> Self
    where
        F: FnMut(I1) -> O1 + Clone + Send + Sync + 'static,
        G: FnMut(I2) -> O2 + Clone + Send + Sync + 'static,
    {
        BidiFlow::from_flows(Flow::<I1, I1>::new().map(down), Flow::<I2, I2>::new().map(back))
    }
}

impl<A: 'static, B: 'static> BidiFlow<A, A, B, B> {
    /// The pair that does nothing.
    #[must_use]
    pub fn identity() -> Self {
        BidiFlow::from_flows(Flow::<A, A>::new(), Flow::<B, B>::new())
    }
}
