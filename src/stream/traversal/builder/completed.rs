//! A part whose outlets are all wired: a traversal and the offsets of the inlets that are free.

use std::sync::Arc;

use super::{Extent, Level};
use crate::stream::traversal::Traversal;
use crate::stream::traversal::layout::Layout;

/// A part with nothing left to wire but inlets. Cheap to clone.
#[derive(Clone)]
pub struct CompletedBuilder {
    /// Without the level.
    pub(super) traversal: Traversal,
    pub(super) in_slots: i32,
    /// The offset of each inlet of the shape.
    pub(super) inlets: Arc<[i32]>,
    pub(super) level: Level,
    pub(super) extent: Extent,
}

impl CompletedBuilder {
    pub(super) fn slot_label(&self, slot: i32) -> String {
        Layout::of(&self.traversal).inlet_label(i64::from(slot)).unwrap_or_default()
    }
}
