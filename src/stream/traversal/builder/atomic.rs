//! One operator whose outlets are wired one after the other.

use std::sync::Arc;

use super::{CompletedBuilder, Extent, Level};
use crate::stream::module::AtomicModule;
use crate::stream::traversal::{OperatorNode, Traversal, ValueUse};

/// An operator with outlets that are not wired yet.
#[derive(Clone)]
pub struct AtomicBuilder {
    pub(super) module: Arc<dyn AtomicModule>,
    /// Relative to its first inlet; `None` where not wired.
    outlets: Vec<Option<i32>>,
    /// Computations on its value.
    pub(super) after: Traversal,
    pub(super) level: Level,
}

impl AtomicBuilder {
    pub(super) fn new(module: Arc<dyn AtomicModule>) -> AtomicBuilder {
        let outlets = vec![None; module.outlets()];
        AtomicBuilder { module, outlets, after: Traversal::Empty, level: Level::default() }
    }

    pub(super) fn extent(&self) -> Extent {
        Extent::of(&self.module)
    }

    pub(super) fn assign(&mut self, outlet: usize, relative_slot: i32) {
        self.outlets[outlet] = Some(relative_slot);
    }

    pub(super) fn unwired_outlets(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.outlets.len()).filter(|&outlet| self.outlets[outlet].is_none())
    }

    pub(super) fn inlet_label(&self, inlet: usize) -> String {
        format!("{}.{}", self.module.name(), self.module.inlet_name(inlet))
    }

    pub(super) fn outlet_label(&self, outlet: usize) -> String {
        format!("{}.{}", self.module.name(), self.module.outlet_name(outlet))
    }

    /// The completed part, if every outlet is wired.
    pub(super) fn complete(&self) -> Option<CompletedBuilder> {
        let slots: Vec<i32> = self.outlets.iter().copied().collect::<Option<_>>()?;
        let inlets = self.module.inlets() as i32;
        let operator = OperatorNode::place(Arc::clone(&self.module), &slots, ValueUse::Keep, Traversal::Empty);
        Some(CompletedBuilder {
            traversal: operator.concat(self.after.clone()),
            in_slots: inlets,
            inlets: (0..inlets).collect(),
            level: self.level.clone(),
            extent: self.extent(),
        })
    }
}
