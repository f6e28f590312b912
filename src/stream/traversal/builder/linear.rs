//! The builder of chains. It works on the traversal itself, in reverse: what is downstream is visited first.
//!
//! An outlet then nearly always leads to the inlet visited last before it, which is the relative slot −1. That is what a
//! dangling outlet is wired to at once, so that the traversal exists while the chain still grows; where it turns out to be
//! wrong, it is corrected ([`Traversal::rewire_first_to`]).
//!
//! A graph with a dangling outlet that is no chain cannot be treated so. It waits as *pending* part at the downstream end,
//! between the commands before it and the traversal of what is upstream, until the outlet is wired.

use std::mem::take;

use super::{Extent, Level, TraversalBuilder, WiringError};
use crate::stream::attributes::Attributes;
use crate::stream::module::AtomicModule;
use crate::stream::traversal::layout::Layout;
use crate::stream::traversal::{
    Blueprint, Combine, IslandTag, OperatorNode, Step, TransformFunction, Traversal, ValueUse,
};

/// The optimistic relative slot of a dangling outlet.
const TO_THE_INLET_BEFORE: i32 = -1;

/// A chain with at most one free inlet and one free outlet. Cheap to clone.
#[derive(Clone)]
pub struct LinearBuilder {
    /// The slot of the free inlet, relative to the chain.
    pub(super) inlet: Option<i32>,
    /// Whether there is a free outlet.
    pub(super) outlet: bool,
    pub(super) in_slots: i32,
    /// Without the level; what comes after the pending part if there is one.
    pub(super) traversal: Traversal,
    pending: Option<Box<Pending>>,
    pub(super) level: Level,
    pub(super) extent: Extent,
}

/// A graph at the downstream end whose only outlet is not wired.
#[derive(Clone)]
struct Pending {
    before: Traversal,
    graph: TraversalBuilder,
}

impl LinearBuilder {
    /// The chain of nothing; its value is the unit value.
    pub fn empty() -> LinearBuilder {
        LinearBuilder {
            inlet: None,
            outlet: false,
            in_slots: 0,
            traversal: Traversal::PushNotUsed,
            pending: None,
            level: Level::default(),
            extent: Extent::default(),
        }
    }

    /// A chain of one operator, in one allocation. Only its first inlet and outlet count: give it one that has not more.
    pub fn of<M: AtomicModule>(module: M) -> LinearBuilder {
        let (inlets, outlets) = (module.inlets(), module.outlets());
        let extent = Extent::of(&module);
        let slots = &[TO_THE_INLET_BEFORE][..outlets.min(1)];
        LinearBuilder {
            inlet: (inlets > 0).then_some(0),
            outlet: outlets > 0,
            in_slots: inlets as i32,
            traversal: OperatorNode::place(module, slots, ValueUse::Keep, Traversal::Empty),
            pending: None,
            level: Level::default(),
            extent,
        }
    }

    /// Any part with at most one free inlet and one free outlet as a chain.
    ///
    /// # Errors
    /// If it has more.
    pub fn from_builder(builder: TraversalBuilder) -> Result<LinearBuilder, WiringError> {
        let (inlets, outlets) = (builder.inlets(), builder.outlets());
        if inlets > 1 || outlets > 1 {
            return Err(WiringError::NotLinear { inlets, outlets });
        }
        let mut linear = LinearBuilder {
            inlet: (inlets > 0).then(|| builder.offset_of(0)),
            outlet: outlets > 0,
            in_slots: builder.in_slots(),
            traversal: Traversal::Empty,
            pending: None,
            level: Level::default(),
            extent: builder.extent(),
        };
        match builder {
            TraversalBuilder::Linear(linear) => return Ok(linear),
            TraversalBuilder::Completed(completed) => {
                linear.traversal = completed.traversal;
                linear.level = completed.level;
            }
            TraversalBuilder::Atomic(atomic) => {
                let operator =
                    OperatorNode::place(atomic.module, &[TO_THE_INLET_BEFORE], ValueUse::Keep, Traversal::Empty);
                linear.traversal = operator.concat(atomic.after);
                linear.level = atomic.level;
            }
            graph @ TraversalBuilder::Composite(_) => {
                linear.extent.islands |= graph.level().island.is_some();
                linear.pending = Some(Box::new(Pending { before: Traversal::Empty, graph }));
            }
        }
        Ok(linear)
    }

    /// Whether there is no operator in it.
    pub fn is_empty(&self) -> bool {
        self.extent.size.modules == 0
    }

    /// Whether it has a free inlet.
    pub fn has_inlet(&self) -> bool {
        self.inlet.is_some()
    }

    /// Whether it has a free outlet.
    pub fn has_outlet(&self) -> bool {
        self.outlet
    }

    /// Adds an operator downstream, in one allocation. `combine` chooses between the value so far (left) and that of the
    /// operator (right).
    ///
    /// # Errors
    /// If the operator has not one inlet and at most one outlet, or the chain has no free outlet.
    pub fn append_operator<M: AtomicModule>(self, module: M, combine: Combine) -> Result<LinearBuilder, WiringError> {
        let (inlets, outlets) = (module.inlets(), module.outlets());
        if inlets > 1 || outlets > 1 {
            return Err(WiringError::NotLinear { inlets, outlets });
        }
        if self.is_empty() || self.pending.is_some() {
            return self.append(LinearBuilder::of(module), combine);
        }
        if inlets == 0 {
            return Err(WiringError::NoInlet { part: module.name().to_owned() });
        }
        if !self.outlet {
            return Err(WiringError::NoOutlet { part: self.last_name() });
        }
        let mut extent = Extent::of(&module);
        extent.add(self.extent, &self.level);
        let upstream = self.level.wrap(self.traversal);
        let (value, next) = match combine {
            Combine::Left => (ValueUse::Drop, upstream),
            other => (ValueUse::Keep, compose_values(upstream, other)),
        };
        Ok(LinearBuilder {
            inlet: self.inlet.map(|inlet| inlet + 1),
            outlet: outlets > 0,
            in_slots: self.in_slots + 1,
            traversal: OperatorNode::place(module, &[TO_THE_INLET_BEFORE][..outlets], value, next),
            pending: None,
            level: Level::default(),
            extent,
        })
    }

    /// Adds a chain downstream. `combine` chooses between the value of this one (left) and that of the other (right).
    ///
    /// # Errors
    /// If neither is empty, and this has no free outlet or the other no free inlet.
    pub fn append(mut self, other: LinearBuilder, combine: Combine) -> Result<LinearBuilder, WiringError> {
        if other.is_empty() {
            return Ok(self.append_nothing(other.traversal, combine));
        }
        if self.is_empty() {
            let (islands, mut other) = (self.extent.islands, other);
            other.extent.islands |= islands;
            other.traversal = other.traversal.concat(compose_values(self.traversal, combine));
            return Ok(other);
        }
        let Some(other_inlet) = other.inlet else {
            return Err(WiringError::NoInlet { part: other.last_name() });
        };
        if !self.outlet {
            return Err(WiringError::NoOutlet { part: self.last_name() });
        }
        // Seen from the end of the other chain, where this one begins.
        self.wire_outlet_to(other_inlet - other.in_slots);
        let mut extent = other.extent;
        extent.islands |= other.level.island.is_some();
        extent.add(self.extent, &self.level);
        let upstream = compose_values(self.level.wrap(take(&mut self.traversal)), combine);
        let (traversal, pending) = match other.pending {
            None => (other.level.wrap(other.traversal).concat(upstream), None),
            Some(mut pending) => {
                let (before, after) = other.level.brackets();
                pending.before = before.concat(pending.before);
                (other.traversal.concat(after.concat(upstream)), Some(pending))
            }
        };
        Ok(LinearBuilder {
            inlet: self.inlet.map(|inlet| inlet + other.in_slots),
            outlet: other.outlet,
            in_slots: self.in_slots + other.in_slots,
            traversal,
            pending,
            level: Level::default(),
            extent,
        })
    }

    /// Only the values of an empty chain count.
    fn append_nothing(mut self, values: Traversal, combine: Combine) -> LinearBuilder {
        let before;
        (before, self.traversal) = match combine {
            Combine::Left => (values.concat(Traversal::Pop), self.traversal),
            combine => (values, compose_values(self.traversal, combine)),
        };
        match &mut self.pending {
            Some(pending) => pending.before = before.concat(take(&mut pending.before)),
            None => self.traversal = before.concat(self.traversal),
        }
        self
    }

    /// Wires its outlet to its own inlet.
    ///
    /// # Errors
    /// If one of the two is not free.
    pub fn close_loop(mut self) -> Result<LinearBuilder, WiringError> {
        let Some(inlet) = self.inlet else { return Err(WiringError::NoInlet { part: self.last_name() }) };
        if !self.outlet {
            return Err(WiringError::NoOutlet { part: self.last_name() });
        }
        self.wire_outlet_to(inlet);
        self.inlet = None;
        Ok(self)
    }

    /// Replaces the attributes of the outermost level; see [`TraversalBuilder::set_attributes`].
    #[must_use]
    pub fn with_attributes(mut self, attributes: Attributes) -> LinearBuilder {
        self.level.set_attributes(attributes);
        self
    }

    /// Adds to the attributes of the outermost level, where the new ones win.
    #[must_use]
    pub fn adding_attributes(self, attributes: &Attributes) -> LinearBuilder {
        let both = self.level.attributes.and(attributes);
        self.with_attributes(both)
    }

    /// Makes the outermost level an island. Without effect if it is one.
    #[must_use]
    pub fn with_island(mut self, tag: IslandTag) -> LinearBuilder {
        self.level.make_island(tag);
        self
    }

    /// Computes on the materialized value.
    #[must_use]
    pub fn transform(mut self, function: TransformFunction) -> LinearBuilder {
        self.traversal = self.traversal.concat(Traversal::Transform(function));
        self
    }

    /// The graph, if no port is free.
    ///
    /// # Errors
    /// If one is: with its name.
    pub fn blueprint(self) -> Result<Blueprint, super::IncompleteGraph> {
        TraversalBuilder::Linear(self).blueprint()
    }

    // ---- for builders that contain it ----

    /// In a chain the operator with the dangling outlet is visited first.
    pub(super) fn offset_of_module(&self) -> i32 {
        self.pending.as_ref().map_or(0, |pending| pending.graph.offset_of_module(0))
    }

    /// `relative_slot` is relative to the operator that has the outlet.
    pub(super) fn assign(&mut self, relative_slot: i32) {
        if !self.outlet {
            return;
        }
        self.outlet = false;
        match self.pending.take() {
            Some(pending) => {
                let mut graph = pending.graph;
                graph.assign(0, relative_slot);
                let upstream = take(&mut self.traversal);
                self.traversal = pending.before.concat(graph.traversal().concat(upstream));
            }
            None if relative_slot == TO_THE_INLET_BEFORE => {}
            None => {
                if let Some(rewired) = self.traversal.rewire_first_to(relative_slot) {
                    self.traversal = rewired;
                }
            }
        }
    }

    /// `slot` is relative to this chain.
    fn wire_outlet_to(&mut self, slot: i32) {
        self.assign(slot - self.offset_of_module());
    }

    pub(super) fn outlet_label(&self) -> String {
        if let Some(pending) = &self.pending {
            return pending.graph.outlet_label(0);
        }
        self.first_module(|module| format!("{}.{}", module.name(), module.outlet_name(0)))
    }

    fn last_name(&self) -> String {
        match &self.pending {
            Some(pending) => pending.graph.outlet_label(0),
            None => self.first_module(|module| module.name().to_owned()),
        }
    }

    fn first_module(&self, describe: impl Fn(&dyn AtomicModule) -> String) -> String {
        let mut walk = self.traversal.walk();
        let first = walk.find_map(|step| match step {
            Step::Materialize(placed) => Some(describe(placed.operator().module())),
            _ => None,
        });
        first.unwrap_or_default()
    }

    pub(super) fn slot_label(&self, slot: i32) -> String {
        let pending_slots = self.pending.as_ref().map_or(0, |pending| pending.graph.in_slots());
        match &self.pending {
            Some(pending) if slot < pending_slots => pending.graph.slot_label(slot),
            _ => Layout::of(&self.traversal).inlet_label(i64::from(slot - pending_slots)).unwrap_or_default(),
        }
    }
}

/// What follows the value of a downstream part: the upstream part, then which value remains. The downstream value lies
/// below on the stack, but is the second argument.
fn compose_values(upstream: Traversal, combine: Combine) -> Traversal {
    match combine {
        Combine::Left => Traversal::Pop.concat(upstream),
        Combine::Right => upstream.concat(Traversal::Pop),
        Combine::Neither => {
            let neither = Traversal::Pop.concat(Traversal::Pop.concat(Traversal::PushNotUsed));
            upstream.concat(neither)
        }
        Combine::Function(function) => upstream.concat(Traversal::Compose { function, reverse: true }),
    }
}
