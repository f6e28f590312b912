//! Junctions that spread a stream: broadcast, balance, partition and their like.
//!
//! [`FanOutOps`] has the short forms with one more sink; the stages themselves are for [`GraphBuilder`].

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::stream::dsl::{Flow, FlowOps, GraphBuilder, Plain, Sink};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::shape::{UnzipPorts, UnzipShape};
use crate::stream::stage::{FanOutShape, GraphStage, Logic, Setup};

type Ports<T> = (Inlet<T>, Vec<Outlet<T>>);

blueprint!(
    /// Each element to all outputs.
    ///
    /// Emits when all outputs that are open want an element. Cancels when all outputs have cancelled, or with
    /// [`Broadcast::eager_cancel`] when one has.
    Broadcast<T> { outputs: u16, eager: bool }
);

impl<T> Broadcast<T> {
    /// A junction with so many outputs.
    #[must_use]
    pub fn new(outputs: u16) -> Broadcast<T> {
        Broadcast { outputs, eager: false, elements: PhantomData }
    }

    /// Cancels when the first output does.
    #[must_use]
    pub fn eager_cancel(mut self) -> Broadcast<T> {
        self.eager = true;
        self
    }
}

/// The running stage of [`Broadcast`].
pub struct BroadcastLogic<T> {
    inlet: Inlet<T>,
    outlets: Vec<Outlet<T>>,
    /// Outputs that are open and have not asked since the last element.
    silent: usize,
    open: usize,
    eager: bool,
}

impl<T: Clone + 'static> Blueprint for Broadcast<T> {
    type Shape = FanOutShape<T, T>;
    type Logic = BroadcastLogic<T>;
    const NAME: &'static str = "broadcast";

    fn shape(&self) -> Self::Shape {
        FanOutShape::new(self.outputs)
    }

    fn logic(self, (inlet, outlets): Ports<T>, _: &Setup<'_>) -> Self::Logic {
        let Broadcast { eager, .. } = self;
        BroadcastLogic { inlet, silent: outlets.len(), open: outlets.len(), outlets, eager }
    }
}

impl<T: Clone + 'static> Logic for BroadcastLogic<T> {
    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.silent = self.open;
        let mut left = self.open;
        for outlet in &self.outlets {
            if outlet.is_closed(context) {
                continue;
            }
            left -= 1;
            if left == 0 {
                outlet.push(context, element);
                return;
            }
            outlet.push(context, element.clone());
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.silent -= 1;
        if self.silent == 0 {
            self.inlet.try_pull(context);
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        self.open -= 1;
        if self.eager || self.open == 0 {
            context.cancel_stage(cause);
            return;
        }
        // An output that had asked is not counted as silent.
        let asked = self.outlets[outlet].had_demand(context);
        if !asked {
            self.silent -= 1;
        }
        if self.silent == 0 {
            self.inlet.try_pull(context);
        }
    }
}

blueprint!(
    /// Each element to one output: the one that has waited for longest.
    ///
    /// Emits when an output wants an element, or with [`Balance::wait_for_all`] when all have asked once. Cancels when all
    /// outputs have, or with [`Balance::eager_cancel`] when one has.
    Balance<T> { outputs: u16, wait_for_all: bool, eager: bool }
);

impl<T> Balance<T> {
    /// A junction with so many outputs.
    #[must_use]
    pub fn new(outputs: u16) -> Balance<T> {
        Balance { outputs, wait_for_all: false, eager: false, elements: PhantomData }
    }

    /// Begins when every output has asked for an element.
    #[must_use]
    pub fn wait_for_all(mut self) -> Balance<T> {
        self.wait_for_all = true;
        self
    }

    /// Cancels when the first output does.
    #[must_use]
    pub fn eager_cancel(mut self) -> Balance<T> {
        self.eager = true;
        self
    }
}

/// The running stage of [`Balance`].
pub struct BalanceLogic<T> {
    inlet: Inlet<T>,
    outlets: Vec<Outlet<T>>,
    /// Outputs that wait, longest first; each at most once.
    waiting: VecDeque<usize>,
    /// Outputs that must ask before it begins.
    awaited: Vec<bool>,
    open: usize,
    eager: bool,
}

impl<T: 'static> Blueprint for Balance<T> {
    type Shape = FanOutShape<T, T>;
    type Logic = BalanceLogic<T>;
    const NAME: &'static str = "balance";

    fn shape(&self) -> Self::Shape {
        FanOutShape::new(self.outputs)
    }

    fn logic(self, (inlet, outlets): Ports<T>, _: &Setup<'_>) -> Self::Logic {
        let Balance { wait_for_all, eager, .. } = self;
        let open = outlets.len();
        let (waiting, awaited) = (VecDeque::with_capacity(open), vec![wait_for_all; open]);
        BalanceLogic { inlet, outlets, waiting, awaited, open, eager }
    }
}

impl<T: 'static> BalanceLogic<T> {
    fn begins(&self) -> bool {
        !self.awaited.contains(&true)
    }

    fn ask(&mut self, context: &mut Context) {
        self.waiting.retain(|outlet| !self.outlets[*outlet].is_closed(context));
        if self.begins() && !self.waiting.is_empty() && !self.inlet.is_available(context) {
            self.inlet.try_pull(context);
        }
    }
}

impl<T: 'static> Logic for BalanceLogic<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        while let Some(outlet) = self.waiting.pop_front() {
            if !self.outlets[outlet].is_closed(context) {
                let element = self.inlet.grab(context);
                self.outlets[outlet].push(context, element);
                break;
            }
        }
        self.ask(context);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        self.awaited[outlet] = false;
        if let Some(element) = self.inlet.try_grab(context) {
            // It came when its output had gone.
            self.outlets[outlet].push(context, element);
            if self.inlet.is_closed(context) {
                context.complete_stage();
            }
            return;
        }
        self.waiting.push_back(outlet);
        self.ask(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if !self.inlet.is_available(context) {
            context.complete_stage();
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        self.open -= 1;
        if self.eager || self.open == 0 {
            context.cancel_stage(cause);
            return;
        }
        self.awaited[outlet] = false;
        self.ask(context);
    }
}

/// A partitioner named an output that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the partitioner chose output {chosen}, but there are only {outputs}")]
pub struct PartitionOutOfBounds {
    /// What it chose.
    pub chosen: usize,
    /// How many there are.
    pub outputs: usize,
}

blueprint!(
    /// Each element to the output that a function chooses.
    ///
    /// Emits when the chosen output wants an element. Cancels when all outputs have, or with [`Partition::eager_cancel`] when
    /// one has. Elements for an output that has cancelled are dropped.
    Partition<T; F> { outputs: u16, partitioner: F, eager: bool }
);

impl<T, F: FnMut(&T) -> usize> Partition<T, F> {
    /// A junction with so many outputs.
    pub fn new(outputs: u16, partitioner: F) -> Self {
        Partition { outputs, partitioner, eager: false, elements: PhantomData }
    }

    /// Cancels when the first output does.
    #[must_use]
    pub fn eager_cancel(mut self) -> Self {
        self.eager = true;
        self
    }
}

/// The running stage of [`Partition`].
pub struct PartitionLogic<T, F> {
    inlet: Inlet<T>,
    outlets: Vec<Outlet<T>>,
    partitioner: F,
    pending: Option<(usize, T)>,
    open: usize,
    eager: bool,
}

impl<T: 'static, F: FnMut(&T) -> usize + Clone + Send + Sync + 'static> Blueprint for Partition<T, F> {
    type Shape = FanOutShape<T, T>;
    type Logic = PartitionLogic<T, F>;
    const NAME: &'static str = "partition";

    fn shape(&self) -> Self::Shape {
        FanOutShape::new(self.outputs)
    }

    fn logic(self, (inlet, outlets): Ports<T>, _: &Setup<'_>) -> Self::Logic {
        let Partition { partitioner, eager, .. } = self;
        PartitionLogic { open: outlets.len(), inlet, outlets, partitioner, pending: None, eager }
    }
}

impl<T: 'static, F: FnMut(&T) -> usize + 'static> PartitionLogic<T, F> {
    fn go_on(&mut self, context: &mut Context) {
        if self.pending.is_some() {
            return;
        }
        if self.inlet.is_closed(context) {
            context.complete_stage();
        } else if self.outlets.iter().any(|outlet| outlet.is_available(context)) {
            self.inlet.try_pull(context);
        }
    }
}

impl<T: 'static, F: FnMut(&T) -> usize + 'static> Logic for PartitionLogic<T, F> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let chosen = (self.partitioner)(&element);
        let outputs = self.outlets.len();
        let Some(outlet) = self.outlets.get(chosen) else {
            context.fail_stage(StreamError::new(PartitionOutOfBounds { chosen, outputs }));
            return;
        };
        if outlet.is_available(context) {
            outlet.push(context, element);
        } else if !outlet.is_closed(context) {
            self.pending = Some((chosen, element));
        }
        self.go_on(context);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        if let Some((chosen, element)) = self.pending.take() {
            if chosen == outlet {
                self.outlets[outlet].push(context, element);
            } else {
                self.pending = Some((chosen, element));
            }
        }
        self.go_on(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.pending.is_none() {
            context.complete_stage();
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        self.open -= 1;
        if self.eager || self.open == 0 {
            context.cancel_stage(cause);
            return;
        }
        if self.pending.as_ref().is_some_and(|(chosen, _)| *chosen == outlet) {
            self.pending = None;
        }
        self.go_on(context);
    }
}

blueprint!(
    /// Takes elements apart by a function: a part to each output.
    ///
    /// Emits when both outputs want an element. Cancels when either has.
    UnzipWith<I, A, B; F> { function: F }
);

impl<I, A, B, F: FnMut(I) -> (A, B)> UnzipWith<I, A, B, F> {
    /// The junction of a function.
    pub fn new(function: F) -> Self {
        UnzipWith { function, elements: PhantomData }
    }
}

/// Takes pairs apart.
pub struct Unzip;

impl Unzip {
    /// The junction for pairs.
    #[must_use]
    #[allow(clippy::new_ret_no_self, clippy::type_complexity)]
    pub fn new<A, B>() -> UnzipWith<(A, B), A, B, fn((A, B)) -> (A, B)> {
        UnzipWith::new(|pair| pair)
    }
}

/// The running stage of [`UnzipWith`].
pub struct UnzipLogic<I, A, B, F> {
    ports: UnzipPorts<I, A, B>,
    function: F,
}

impl<I: 'static, A: 'static, B: 'static, F> Blueprint for UnzipWith<I, A, B, F>
where
    F: FnMut(I) -> (A, B) + Clone + Send + Sync + 'static,
{
    type Shape = UnzipShape<I, A, B>;
    type Logic = UnzipLogic<I, A, B, F>;
    const NAME: &'static str = "unzip";

    fn shape(&self) -> Self::Shape {
        UnzipShape::new()
    }

    fn logic(self, ports: UnzipPorts<I, A, B>, _: &Setup<'_>) -> Self::Logic {
        let UnzipWith { function, .. } = self;
        UnzipLogic { ports, function }
    }
}

impl<I: 'static, A: 'static, B: 'static, F: FnMut(I) -> (A, B) + 'static> Logic for UnzipLogic<I, A, B, F> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        let (first, second) = (self.function)(element);
        self.ports.first.push(context, first);
        self.ports.second.push(context, second);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.ports.first.is_available(context) && self.ports.second.is_available(context) {
            self.ports.inlet.try_pull(context);
        }
    }
}

blueprint!(
    /// Each element to the first output, and a copy to the second if that wants one.
    ///
    /// The second output never holds the first one up; one copy waits for it at most. Cancels when the first output does;
    /// that the second cancels is ignored.
    WireTap<T> {}
);

impl<T> WireTap<T> {
    /// The junction: outlet 1 is the tap.
    #[must_use]
    pub fn new() -> WireTap<T> {
        WireTap { elements: PhantomData }
    }
}

impl<T> Default for WireTap<T> {
    fn default() -> Self {
        WireTap::new()
    }
}

/// The running stage of [`WireTap`].
pub struct WireTapLogic<T> {
    inlet: Inlet<T>,
    outlets: Vec<Outlet<T>>,
    pending: Option<T>,
}

impl<T: Clone + 'static> Blueprint for WireTap<T> {
    type Shape = FanOutShape<T, T>;
    type Logic = WireTapLogic<T>;
    const NAME: &'static str = "wire_tap";

    fn shape(&self) -> Self::Shape {
        FanOutShape::new(2)
    }

    fn logic(self, (inlet, outlets): Ports<T>, _: &Setup<'_>) -> Self::Logic {
        WireTapLogic { inlet, outlets, pending: None }
    }
}

impl<T: Clone + 'static> Logic for WireTapLogic<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let [main, tap] = self.outlets.as_slice() else { return };
        if tap.is_available(context) {
            tap.push(context, element.clone());
        } else if !tap.is_closed(context) && self.pending.is_none() {
            self.pending = Some(element.clone());
        }
        main.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        if outlet == 0 {
            self.inlet.try_pull(context);
        } else if let Some(element) = self.pending.take() {
            self.outlets[1].push(context, element);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        match self.pending.take() {
            // The tap still gets what waits for it; the stream itself completes now.
            Some(element) => {
                self.outlets[0].complete(context);
                let [_, tap] = self.outlets.as_slice() else { return };
                context.emit(tap, element);
                tap.complete(context);
            }
            None => context.complete_stage(),
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        if outlet == 0 {
            context.cancel_stage(cause);
        } else {
            self.pending = None;
        }
    }
}

/// A junction of two outputs as a flow: output 1 goes to the sink.
fn aside<T: 'static, M: 'static, G>(junction: G, sink: Sink<T, M>) -> Flow<T, T, M>
where
    G: GraphStage<Shape = FanOutShape<T, T>>,
{
    let (mut graph, inlet) = GraphBuilder::with(sink);
    let junction = graph.add_stage(junction);
    graph.connect(junction.outlets[1], inlet);
    graph.flow(junction.inlet, junction.outlets[0]).expect("both outputs of the junction are used")
}

/// Short forms for junctions with one more sink, whose materialized value is dropped.
pub trait FanOutOps: FlowOps {
    /// Each element to the sink, too. The slower of the two sets the pace; if either cancels, upstream is cancelled.
    fn also_to<M: 'static>(self, sink: Sink<Self::Out, M>) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone,
    {
        self.via(aside(Broadcast::new(2).eager_cancel(), sink))
    }

    /// See [`WireTap`].
    fn wire_tap<M: 'static>(self, sink: Sink<Self::Out, M>) -> Plain<Self, Self::Out>
    where
        Self::Out: Clone,
    {
        self.via(aside(WireTap::new(), sink))
    }

    /// The elements for which the predicate holds go to the sink instead. If either cancels, upstream is cancelled.
    fn divert_to<M: 'static>(
        self,
        sink: Sink<Self::Out, M>,
        mut diverted: impl FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    ) -> Plain<Self, Self::Out> {
        let partition = Partition::new(2, move |element: &Self::Out| usize::from(diverted(element)));
        self.via(aside(partition.eager_cancel(), sink))
    }
}

impl<S: FlowOps> FanOutOps for S {}
