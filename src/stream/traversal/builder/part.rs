//! A part of a graph of any kind, with numbered free ports: what is imported, chained and completed.

use std::sync::Arc;

use super::{
    AtomicBuilder, CompletedBuilder, Extent, IncompleteGraph, Level, LinearBuilder, SealedComposite, WiringError,
};
use crate::stream::attributes::Attributes;
use crate::stream::module::AtomicModule;
use crate::stream::traversal::{Blueprint, IslandTag, TransformFunction, Traversal};

/// A part of a graph. Its free inlets and outlets have positions, which are its shape.
#[derive(Clone)]
pub enum TraversalBuilder {
    /// A chain.
    Linear(LinearBuilder),
    /// One operator with unwired outlets.
    Atomic(Box<AtomicBuilder>),
    /// A graph with unwired outlets.
    Composite(Box<SealedComposite>),
    /// A graph without unwired outlets.
    Completed(Box<CompletedBuilder>),
}

impl TraversalBuilder {
    /// The empty part: the identity of a chain.
    pub fn empty() -> TraversalBuilder {
        TraversalBuilder::Linear(LinearBuilder::empty())
    }

    /// A part of one operator: a chain if it has at most one inlet and one outlet.
    pub fn operator<M: AtomicModule>(module: M) -> TraversalBuilder {
        if module.inlets() <= 1 && module.outlets() <= 1 {
            return TraversalBuilder::Linear(LinearBuilder::of(module));
        }
        TraversalBuilder::atomic(Arc::new(module))
    }

    /// A part of one operator that is no chain, whatever its ports.
    pub fn atomic(module: Arc<dyn AtomicModule>) -> TraversalBuilder {
        TraversalBuilder::Atomic(Box::new(AtomicBuilder::new(module))).completed_if_possible()
    }

    /// How many inlets it shows.
    pub fn inlets(&self) -> usize {
        match self {
            TraversalBuilder::Linear(linear) => usize::from(linear.inlet.is_some()),
            TraversalBuilder::Atomic(atomic) => atomic.module.inlets(),
            TraversalBuilder::Composite(composite) => composite.inlets.len(),
            TraversalBuilder::Completed(completed) => completed.inlets.len(),
        }
    }

    /// How many outlets it shows. One that was assigned since keeps its position.
    pub fn outlets(&self) -> usize {
        match self {
            TraversalBuilder::Linear(linear) => usize::from(linear.outlet),
            TraversalBuilder::Atomic(atomic) => atomic.module.outlets(),
            TraversalBuilder::Composite(composite) => composite.outlets.len(),
            TraversalBuilder::Completed(_) => 0,
        }
    }

    /// Slots that it takes: the number of all its inlets, wired or not.
    pub fn in_slots(&self) -> i32 {
        match self {
            TraversalBuilder::Linear(linear) => linear.in_slots,
            TraversalBuilder::Atomic(atomic) => atomic.module.inlets() as i32,
            TraversalBuilder::Composite(composite) => composite.graph.in_slots,
            TraversalBuilder::Completed(completed) => completed.in_slots,
        }
    }

    /// Whether every outlet is wired, so that there is a traversal.
    pub fn is_complete(&self) -> bool {
        match self {
            TraversalBuilder::Linear(linear) => !linear.outlet,
            TraversalBuilder::Completed(_) => true,
            TraversalBuilder::Atomic(_) | TraversalBuilder::Composite(_) => false,
        }
    }

    /// Replaces the attributes of the outermost level. [`AsyncBoundary`](crate::stream::attributes::AsyncBoundary) or
    /// [`Placement`](crate::stream::attributes::Placement) among them make it an island.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.level_mut().set_attributes(attributes);
    }

    /// Adds to the attributes of the outermost level, where the new ones win.
    pub fn add_attributes(&mut self, attributes: &Attributes) {
        let both = self.attributes().and(attributes);
        self.set_attributes(both);
    }

    /// The attributes of the outermost level.
    pub fn attributes(&self) -> &Attributes {
        &self.level().attributes
    }

    /// Makes the outermost level an island. Without effect if it is one.
    pub fn make_island(&mut self, tag: IslandTag) {
        self.level_mut().make_island(tag);
    }

    /// Computes on the materialized value.
    pub fn transform(&mut self, function: TransformFunction) {
        let after = match self {
            TraversalBuilder::Linear(linear) => &mut linear.traversal,
            TraversalBuilder::Atomic(atomic) => &mut atomic.after,
            TraversalBuilder::Composite(composite) => &mut composite.graph.final_steps,
            TraversalBuilder::Completed(completed) => &mut completed.traversal,
        };
        *after = std::mem::take(after).concat(Traversal::Transform(function));
    }

    /// The graph, if it shows no port.
    ///
    /// # Errors
    /// If it does: with the names of these ports.
    pub fn blueprint(self) -> Result<Blueprint, IncompleteGraph> {
        let inlets = (0..self.inlets()).map(|inlet| self.inlet_label(inlet));
        let outlets = self.unwired_outlets().into_iter().map(|outlet| self.outlet_label(outlet));
        let unconnected: Vec<String> = inlets.chain(outlets).collect();
        if !unconnected.is_empty() {
            return Err(IncompleteGraph { unconnected });
        }
        let (extent, attributes) = (self.extent(), self.attributes().clone());
        let islands = extent.islands || self.level().island.is_some();
        Ok(Blueprint::new(self.traversal(), attributes, extent.size, islands))
    }

    /// `Operator.port` of a free inlet; empty if there is none at this position.
    pub fn inlet_label(&self, inlet: usize) -> String {
        if inlet < self.inlets() { self.slot_label(self.offset_of(inlet)) } else { String::new() }
    }

    /// `Operator.port` of an outlet; empty if there is none at this position.
    pub fn outlet_label(&self, outlet: usize) -> String {
        if outlet >= self.outlets() {
            return String::new();
        }
        match self {
            TraversalBuilder::Linear(linear) => linear.outlet_label(),
            TraversalBuilder::Atomic(atomic) => atomic.outlet_label(outlet),
            TraversalBuilder::Composite(composite) => composite.graph.outlet_label(composite.outlets[outlet]),
            TraversalBuilder::Completed(_) => String::new(),
        }
    }

    /// This part as a chain.
    ///
    /// # Errors
    /// If it shows several inlets or outlets.
    pub fn into_linear(self) -> Result<LinearBuilder, WiringError> {
        LinearBuilder::from_builder(self)
    }

    // ---- for builders that contain it ----

    /// The slot of a free inlet, relative to this part.
    pub(super) fn offset_of(&self, inlet: usize) -> i32 {
        match self {
            TraversalBuilder::Linear(linear) => linear.inlet.unwrap_or(0),
            TraversalBuilder::Atomic(_) => inlet as i32,
            TraversalBuilder::Composite(composite) => composite.inlets[inlet],
            TraversalBuilder::Completed(completed) => completed.inlets[inlet],
        }
    }

    /// The slot of the first inlet of the operator that has this outlet, relative to this part.
    pub(super) fn offset_of_module(&self, outlet: usize) -> i32 {
        match self {
            TraversalBuilder::Linear(linear) => linear.offset_of_module(),
            TraversalBuilder::Composite(composite) => composite.graph.base_of(composite.outlets[outlet]),
            TraversalBuilder::Atomic(_) | TraversalBuilder::Completed(_) => 0,
        }
    }

    /// Wires an outlet to a slot relative to [`offset_of_module`](Self::offset_of_module); the part completes when it was
    /// the last one. The caller wires each outlet once.
    pub(super) fn assign(&mut self, outlet: usize, relative_slot: i32) {
        match self {
            TraversalBuilder::Linear(linear) => linear.assign(relative_slot),
            TraversalBuilder::Atomic(atomic) => atomic.assign(outlet, relative_slot),
            TraversalBuilder::Composite(composite) => {
                let port = composite.outlets[outlet];
                composite.graph.assign(port, relative_slot);
            }
            TraversalBuilder::Completed(_) => {}
        }
        let part = std::mem::replace(self, TraversalBuilder::empty());
        *self = part.completed_if_possible();
    }

    pub(super) fn completed_if_possible(self) -> TraversalBuilder {
        let completed = match &self {
            TraversalBuilder::Atomic(atomic) => atomic.complete(),
            TraversalBuilder::Composite(composite) => composite.complete(),
            TraversalBuilder::Linear(_) | TraversalBuilder::Completed(_) => None,
        };
        completed.map_or(self, |completed| TraversalBuilder::Completed(Box::new(completed)))
    }

    /// The traversal of a complete part with its level; nothing of one that is not.
    pub(super) fn traversal(self) -> Traversal {
        match self {
            TraversalBuilder::Linear(linear) => linear.level.wrap(linear.traversal),
            TraversalBuilder::Completed(completed) => completed.level.wrap(completed.traversal),
            TraversalBuilder::Atomic(_) | TraversalBuilder::Composite(_) => Traversal::Empty,
        }
    }

    pub(super) fn extent(&self) -> Extent {
        match self {
            TraversalBuilder::Linear(linear) => linear.extent,
            TraversalBuilder::Atomic(atomic) => atomic.extent(),
            TraversalBuilder::Composite(composite) => composite.graph.extent,
            TraversalBuilder::Completed(completed) => completed.extent,
        }
    }

    pub(super) fn level(&self) -> &Level {
        match self {
            TraversalBuilder::Linear(linear) => &linear.level,
            TraversalBuilder::Atomic(atomic) => &atomic.level,
            TraversalBuilder::Composite(composite) => &composite.graph.level,
            TraversalBuilder::Completed(completed) => &completed.level,
        }
    }

    fn level_mut(&mut self) -> &mut Level {
        match self {
            TraversalBuilder::Linear(linear) => &mut linear.level,
            TraversalBuilder::Atomic(atomic) => &mut atomic.level,
            TraversalBuilder::Composite(composite) => &mut composite.graph.level,
            TraversalBuilder::Completed(completed) => &mut completed.level,
        }
    }

    pub(super) fn unwired_outlets(&self) -> Vec<usize> {
        match self {
            TraversalBuilder::Linear(linear) => (0..usize::from(linear.outlet)).collect(),
            TraversalBuilder::Atomic(atomic) => atomic.unwired_outlets().collect(),
            TraversalBuilder::Composite(composite) => {
                let unwired = |outlet: &usize| !composite.graph.is_wired_outlet(composite.outlets[*outlet]);
                (0..composite.outlets.len()).filter(unwired).collect()
            }
            TraversalBuilder::Completed(_) => Vec::new(),
        }
    }

    pub(super) fn slot_label(&self, slot: i32) -> String {
        match self {
            TraversalBuilder::Linear(linear) => linear.slot_label(slot),
            TraversalBuilder::Atomic(atomic) => atomic.inlet_label(slot as usize),
            TraversalBuilder::Composite(composite) => composite.graph.slot_label(slot),
            TraversalBuilder::Completed(completed) => completed.slot_label(slot),
        }
    }
}

impl From<LinearBuilder> for TraversalBuilder {
    fn from(linear: LinearBuilder) -> TraversalBuilder {
        TraversalBuilder::Linear(linear)
    }
}
