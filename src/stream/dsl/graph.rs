//! Graphs that are no chain: junctions, cycles, several inputs and outputs.
//!
//! A [`GraphBuilder`] takes parts (each import is an instance of its own) and gives their ports, which
//! [`GraphBuilder::connect`] wires. Element types are checked by the compiler, everything else when the graph is closed:
//! a port that is wired twice or left open is named. A cycle needs a buffer on its way back, or it stands still.

use std::marker::PhantomData;

use super::flow_ops::FlowOps;
use super::fusing::Fusable;
use super::{BidiFlow, Flow, RunnableGraph, Sink, Source};
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::stage::shape::UnzipShape;
use crate::stream::stage::{
    BidiShape, ClosedShape, FanInShape, FanOutShape, FlowShape, GraphStage, Shape, SinkShape, SourceShape, StageModule,
    ZipShape,
};
use crate::stream::traversal::builder::{self, Added, CompositeBuilder, TraversalBuilder, WiringError};
use crate::stream::traversal::{Combine, TransformFunction};

/// A free inlet of a part in a graph that is being built.
pub struct InPort<T> {
    pub(crate) port: builder::InPort,
    element: PhantomData<fn(T)>,
}

/// A free outlet of a part in a graph that is being built.
pub struct OutPort<T> {
    pub(crate) port: builder::OutPort,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for InPort<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for InPort<T> {}

impl<T> Clone for OutPort<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OutPort<T> {}

fn inlet<T>(added: &Added, position: usize) -> InPort<T> {
    InPort { port: added.inlet(position), element: PhantomData }
}

fn outlet<T>(added: &Added, position: usize) -> OutPort<T> {
    OutPort { port: added.outlet(position), element: PhantomData }
}

/// Shapes whose ports can be used in a graph.
pub trait GraphShape: Shape {
    /// The ports of an import.
    type Imported;

    /// The ports of an import.
    #[doc(hidden)]
    fn imported(&self, added: &Added) -> Self::Imported;
}

impl GraphShape for ClosedShape {
    type Imported = ();

    fn imported(&self, _: &Added) {}
}

impl<O: 'static> GraphShape for SourceShape<O> {
    type Imported = OutPort<O>;

    fn imported(&self, added: &Added) -> OutPort<O> {
        outlet(added, 0)
    }
}

impl<I: 'static> GraphShape for SinkShape<I> {
    type Imported = InPort<I>;

    fn imported(&self, added: &Added) -> InPort<I> {
        inlet(added, 0)
    }
}

/// The ports of a flow in a graph.
pub struct FlowPart<I, O> {
    /// Its inlet.
    pub inlet: InPort<I>,
    /// Its outlet.
    pub outlet: OutPort<O>,
}

impl<I: 'static, O: 'static> GraphShape for FlowShape<I, O> {
    type Imported = FlowPart<I, O>;

    fn imported(&self, added: &Added) -> FlowPart<I, O> {
        FlowPart { inlet: inlet(added, 0), outlet: outlet(added, 0) }
    }
}

/// The ports of a junction that brings several inputs together.
pub struct FanInPart<I, O> {
    /// Its inlets.
    pub inlets: Vec<InPort<I>>,
    /// Its outlet.
    pub outlet: OutPort<O>,
}

impl<I: 'static, O: 'static> GraphShape for FanInShape<I, O> {
    type Imported = FanInPart<I, O>;

    fn imported(&self, added: &Added) -> Self::Imported {
        FanInPart { inlets: (0..added.inlets()).map(|at| inlet(added, at)).collect(), outlet: outlet(added, 0) }
    }
}

/// The ports of a junction that spreads one input.
pub struct FanOutPart<I, O> {
    /// Its inlet.
    pub inlet: InPort<I>,
    /// Its outlets.
    pub outlets: Vec<OutPort<O>>,
}

impl<I: 'static, O: 'static> GraphShape for FanOutShape<I, O> {
    type Imported = FanOutPart<I, O>;

    fn imported(&self, added: &Added) -> Self::Imported {
        FanOutPart { inlet: inlet(added, 0), outlets: (0..added.outlets()).map(|at| outlet(added, at)).collect() }
    }
}

/// The ports of a junction of two types.
pub struct ZipPart<A, B, O> {
    /// Inlet 0.
    pub first: InPort<A>,
    /// Inlet 1.
    pub second: InPort<B>,
    /// Its outlet.
    pub outlet: OutPort<O>,
}

impl<A: 'static, B: 'static, O: 'static> GraphShape for ZipShape<A, B, O> {
    type Imported = ZipPart<A, B, O>;

    fn imported(&self, added: &Added) -> Self::Imported {
        ZipPart { first: inlet(added, 0), second: inlet(added, 1), outlet: outlet(added, 0) }
    }
}

/// The ports of a stage that takes elements apart.
pub struct UnzipPart<I, A, B> {
    /// Its inlet.
    pub inlet: InPort<I>,
    /// Outlet 0.
    pub first: OutPort<A>,
    /// Outlet 1.
    pub second: OutPort<B>,
}

impl<I: 'static, A: 'static, B: 'static> GraphShape for UnzipShape<I, A, B> {
    type Imported = UnzipPart<I, A, B>;

    fn imported(&self, added: &Added) -> Self::Imported {
        UnzipPart { inlet: inlet(added, 0), first: outlet(added, 0), second: outlet(added, 1) }
    }
}

/// The ports of a pair of flows. Inlet 0 and outlet 0 are the way down, inlet 1 and outlet 1 the way back.
pub struct BidiPart<I1, O1, I2, O2> {
    /// Inlet 0.
    pub inlet_down: InPort<I1>,
    /// Outlet 0.
    pub outlet_down: OutPort<O1>,
    /// Inlet 1.
    pub inlet_back: InPort<I2>,
    /// Outlet 1.
    pub outlet_back: OutPort<O2>,
}

impl<I1: 'static, O1: 'static, I2: 'static, O2: 'static> GraphShape for BidiShape<I1, O1, I2, O2> {
    type Imported = BidiPart<I1, O1, I2, O2>;

    fn imported(&self, added: &Added) -> Self::Imported {
        BidiPart {
            inlet_down: inlet(added, 0),
            outlet_down: outlet(added, 0),
            inlet_back: inlet(added, 1),
            outlet_back: outlet(added, 1),
        }
    }
}

/// What can be imported into a graph: sources, flows, sinks, pairs of flows, and stages by way of [`Part::stage`].
pub struct Part<S, Mat = ()> {
    builder: TraversalBuilder,
    shape: S,
    mat: PhantomData<fn() -> Mat>,
}

impl<S: GraphShape, Mat: 'static> Part<S, Mat> {
    pub(crate) fn new(builder: TraversalBuilder, shape: S) -> Part<S, Mat> {
        Part { builder, shape, mat: PhantomData }
    }
}

impl<S: GraphShape> Part<S> {
    /// One stage, with its materialized value.
    pub fn stage<G: GraphStage<Shape = S>>(stage: G) -> Part<S, G::Mat> {
        let shape = stage.shape();
        Part::new(TraversalBuilder::operator(StageModule(stage)), shape)
    }
}

impl<T: 'static, M: 'static, P: Fusable<Out = T>> From<Source<T, M, P>> for Part<SourceShape<T>, M> {
    fn from(source: Source<T, M, P>) -> Self {
        Part::new(TraversalBuilder::Linear(source.into_chain().sealed()), SourceShape::new())
    }
}

impl<I: 'static, O: 'static, M: 'static, P: Fusable<Out = O>> From<Flow<I, O, M, P>> for Part<FlowShape<I, O>, M> {
    fn from(flow: Flow<I, O, M, P>) -> Self {
        Part::new(TraversalBuilder::Linear(flow.into_chain().sealed_flow()), FlowShape::new())
    }
}

impl<T: 'static, M: 'static> From<Sink<T, M>> for Part<SinkShape<T>, M> {
    fn from(sink: Sink<T, M>) -> Self {
        Part::new(TraversalBuilder::Linear(sink.builder), SinkShape::new())
    }
}

impl<I1: 'static, O1: 'static, I2: 'static, O2: 'static, M: 'static> From<BidiFlow<I1, O1, I2, O2, M>>
    for Part<BidiShape<I1, O1, I2, O2>, M>
{
    fn from(bidi: BidiFlow<I1, O1, I2, O2, M>) -> Self {
        Part::new(bidi.builder, BidiShape::new())
    }
}

/// A graph under construction. `Mat` is the materialized value of what it was begun with.
pub struct GraphBuilder<Mat = ()> {
    builder: CompositeBuilder,
    failed: Option<WiringError>,
    mat: PhantomData<fn() -> Mat>,
}

impl GraphBuilder {
    /// A graph of nothing yet, whose materialized value is `()`.
    #[must_use]
    pub fn new() -> GraphBuilder {
        GraphBuilder { builder: CompositeBuilder::new(), failed: None, mat: PhantomData }
    }

    /// A graph that begins with this part and has its materialized value.
    pub fn with<S: GraphShape, M: 'static>(part: impl Into<Part<S, M>>) -> (GraphBuilder<M>, S::Imported) {
        let Part { builder, shape, .. } = part.into();
        let (builder, added) = CompositeBuilder::containing(builder);
        (GraphBuilder { builder, failed: None, mat: PhantomData }, shape.imported(&added))
    }
}

impl Default for GraphBuilder {
    fn default() -> Self {
        GraphBuilder::new()
    }
}

impl<Mat: 'static> GraphBuilder<Mat> {
    /// Imports a part; its materialized value is dropped.
    pub fn add<S: GraphShape, M: 'static>(&mut self, part: impl Into<Part<S, M>>) -> S::Imported {
        let Part { builder, shape, .. } = part.into();
        shape.imported(&self.builder.add(builder, Combine::Left))
    }

    /// Imports a stage, such as a junction; its materialized value is dropped.
    pub fn add_stage<G: GraphStage>(&mut self, stage: G) -> <G::Shape as GraphShape>::Imported
    where
        G::Shape: GraphShape,
    {
        self.add(Part::stage(stage))
    }

    /// Imports a part and combines its materialized value with that of the graph.
    pub fn add_mat<S: GraphShape, M: 'static, R: 'static>(
        mut self,
        part: impl Into<Part<S, M>>,
        combine: impl Fn(Mat, M) -> R + Send + Sync + 'static,
    ) -> (GraphBuilder<R>, S::Imported) {
        let Part { builder, shape, .. } = part.into();
        let imported = shape.imported(&self.builder.add(builder, Combine::with(combine)));
        (GraphBuilder { builder: self.builder, failed: self.failed, mat: PhantomData }, imported)
    }

    /// An outlet that emits the materialized value of the graph so far, once for each run.
    pub fn materialized_value(&mut self) -> OutPort<Mat>
    where
        Mat: Clone + Send,
    {
        let module = StageModule(ValueSource::<Mat>(PhantomData));
        let tell = |value: Mat, promise: Promise<Mat>| {
            promise.succeed(value.clone());
            value
        };
        let added = self.builder.add(TraversalBuilder::operator(module), Combine::with(tell));
        outlet(&added, 0)
    }

    /// Wires two ports. What is wrong about it is told when the graph is closed.
    pub fn connect<T>(&mut self, outlet: OutPort<T>, inlet: InPort<T>) {
        if let Err(error) = self.builder.wire(outlet.port, inlet.port) {
            self.failed.get_or_insert(error);
        }
    }

    /// Wires an outlet by way of flows: `graph.from(a).via(flow).to(b)`.
    pub fn from<T: 'static>(&mut self, outlet: OutPort<T>) -> Wire<'_, T, Mat> {
        Wire { graph: self, outlet }
    }

    /// Computes on the materialized value.
    pub fn map_materialized_value<M: 'static>(
        mut self,
        transform: impl Fn(Mat) -> M + Send + Sync + 'static,
    ) -> GraphBuilder<M> {
        self.builder.transform(TransformFunction::new(transform));
        GraphBuilder { builder: self.builder, failed: self.failed, mat: PhantomData }
    }

    fn seal(self, inlets: &[builder::InPort], outlets: &[builder::OutPort]) -> Result<TraversalBuilder, WiringError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.builder.seal(inlets, outlets),
        }
    }

    /// The graph, which has no open ports.
    ///
    /// # Errors
    /// If it has, or something was wired twice: with the names of the ports.
    pub fn close(self) -> Result<RunnableGraph<Mat>, WiringError> {
        Ok(RunnableGraph::from_part(self.seal(&[], &[])?))
    }

    /// The graph as a source.
    ///
    /// # Errors
    /// If this outlet is not its only open port, or something was wired twice.
    pub fn source<T: 'static>(self, outlet: OutPort<T>) -> Result<Source<T, Mat>, WiringError> {
        Ok(Source::from_builder(self.seal(&[], &[outlet.port])?.into_linear()?))
    }

    /// The graph as a sink.
    ///
    /// # Errors
    /// If this inlet is not its only open port, or something was wired twice.
    pub fn sink<T: 'static>(self, inlet: InPort<T>) -> Result<Sink<T, Mat>, WiringError> {
        Ok(Sink::from_builder(self.seal(&[inlet.port], &[])?.into_linear()?))
    }

    /// The graph as a flow.
    ///
    /// # Errors
    /// If these are not its only open ports, or something was wired twice.
    pub fn flow<I: 'static, O: 'static>(
        self,
        inlet: InPort<I>,
        outlet: OutPort<O>,
    ) -> Result<Flow<I, O, Mat>, WiringError> {
        Ok(Flow::from_builder(self.seal(&[inlet.port], &[outlet.port])?.into_linear()?))
    }

    /// The graph as a pair of flows.
    ///
    /// # Errors
    /// If these are not its only open ports, or something was wired twice.
    pub fn bidi<I1: 'static, O1: 'static, I2: 'static, O2: 'static>(
        self,
        ports: BidiPart<I1, O1, I2, O2>,
    ) -> Result<BidiFlow<I1, O1, I2, O2, Mat>, WiringError> {
        let inlets = [ports.inlet_down.port, ports.inlet_back.port];
        let outlets = [ports.outlet_down.port, ports.outlet_back.port];
        Ok(BidiFlow::from_builder(self.seal(&inlets, &outlets)?))
    }

    /// The graph as a part with any shape.
    ///
    /// # Errors
    /// If these are not its only open ports, or something was wired twice.
    pub fn part<S: GraphShape>(
        self,
        shape: S,
        inlets: &[builder::InPort],
        outlets: &[builder::OutPort],
    ) -> Result<Part<S, Mat>, WiringError> {
        Ok(Part::new(self.seal(inlets, outlets)?, shape))
    }
}

/// A wire that is being laid.
#[must_use = "the wire needs an end: `to` or `to_sink`"]
pub struct Wire<'a, T, Mat> {
    graph: &'a mut GraphBuilder<Mat>,
    outlet: OutPort<T>,
}

impl<'a, T: 'static, Mat: 'static> Wire<'a, T, Mat> {
    /// Through a flow.
    pub fn via<U: 'static, M: 'static, P: Fusable<Out = U>>(self, flow: Flow<T, U, M, P>) -> Wire<'a, U, Mat> {
        let FlowPart { inlet, outlet } = self.graph.add(flow);
        self.graph.connect(self.outlet, inlet);
        Wire { graph: self.graph, outlet }
    }

    /// To a port.
    pub fn to(self, inlet: InPort<T>) {
        self.graph.connect(self.outlet, inlet);
    }

    /// To a sink of its own.
    pub fn to_sink<M: 'static>(self, sink: Sink<T, M>) {
        let inlet = self.graph.add(sink);
        self.graph.connect(self.outlet, inlet);
    }

    /// Its open end.
    #[must_use]
    pub fn outlet(self) -> OutPort<T> {
        self.outlet
    }
}

/// Emits one value when it is there.
struct ValueSource<T>(PhantomData<fn() -> T>);

mod value_source {
    use super::{Completion, GraphStage, PhantomData, Promise, SourceShape, ValueSource, completion};
    use crate::stream::attributes::Attributes;
    use crate::stream::interpreter::{Context, Outlet};
    use crate::stream::stage::{Logic, Setup};
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Poll, Waker};

    pub struct ValueLogic<T> {
        outlet: Outlet<T>,
        value: Completion<T>,
        waker: Waker,
    }

    impl<T: Send + 'static> GraphStage for ValueSource<T> {
        type Shape = SourceShape<T>;
        type Seed = Completion<T>;
        type Mat = Promise<T>;
        type Logic = ValueLogic<T>;

        fn name(&self) -> &'static str {
            "materialized_value"
        }

        fn shape(&self) -> Self::Shape {
            let ValueSource(PhantomData) = self;
            SourceShape::new()
        }

        fn prepare(&self, _: &Attributes) -> (Completion<T>, Promise<T>) {
            let (promise, value) = completion();
            (value, promise)
        }

        fn create(value: Completion<T>, outlet: Outlet<T>, setup: &Setup<'_>) -> ValueLogic<T> {
            ValueLogic { outlet, value, waker: setup.waker() }
        }
    }

    impl<T: Send + 'static> Logic for ValueLogic<T> {
        fn on_pull(&mut self, context: &mut Context, _: usize) {
            self.on_wake(context);
        }

        fn on_wake(&mut self, context: &mut Context) {
            if !self.outlet.is_available(context) {
                return;
            }
            let waker = self.waker.clone();
            match Pin::new(&mut self.value).poll(&mut std::task::Context::from_waker(&waker)) {
                Poll::Ready(Ok(value)) => {
                    self.outlet.push(context, value);
                    self.outlet.complete(context);
                }
                Poll::Ready(Err(error)) => context.fail_stage(error),
                Poll::Pending => {}
            }
        }
    }
}
