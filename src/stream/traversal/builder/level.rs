//! What all builders have: attributes and an island at their level, and the size of what is in them.

use crate::stream::attributes::Attributes;
use crate::stream::module::AtomicModule;
use crate::stream::traversal::{GraphSize, IslandTag, Traversal};

/// The attributes of one level of a graph, and the tag if it is an island.
#[derive(Clone, Default)]
pub(super) struct Level {
    pub(super) attributes: Attributes,
    pub(super) island: Option<IslandTag>,
}

impl Level {
    /// Replaces the attributes. Those that ask for an asynchronous boundary make an island.
    pub(super) fn set_attributes(&mut self, attributes: Attributes) {
        if attributes.is_async() {
            self.make_island(IslandTag::FUSED);
        }
        self.attributes = attributes;
    }

    /// The first tag counts.
    pub(super) fn make_island(&mut self, tag: IslandTag) {
        self.island.get_or_insert(tag);
    }

    /// `attributes · (island · t)`: the attributes lie around the island, so that its phase sees them.
    pub(super) fn wrap(&self, traversal: Traversal) -> Traversal {
        let inner = match self.island {
            None => traversal,
            Some(tag) => Traversal::EnterIsland(tag).concat(traversal.concat(Traversal::ExitIsland)),
        };
        if self.attributes.is_empty() {
            return inner;
        }
        Traversal::PushAttributes(self.attributes.clone()).concat(inner.concat(Traversal::PopAttributes))
    }

    /// The commands before and after, as [`wrap`](Self::wrap) puts them.
    pub(super) fn brackets(&self) -> (Traversal, Traversal) {
        let (mut before, mut after) = (Traversal::Empty, Traversal::Empty);
        if let Some(tag) = self.island {
            (before, after) = (Traversal::EnterIsland(tag), Traversal::ExitIsland);
        }
        if !self.attributes.is_empty() {
            before = Traversal::PushAttributes(self.attributes.clone()).concat(before);
            after = after.concat(Traversal::PopAttributes);
        }
        (before, after)
    }
}

/// The size of a part, and whether there is an island anywhere in it.
#[derive(Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) size: GraphSize,
    pub(super) islands: bool,
}

impl Extent {
    pub(super) fn of(module: &dyn AtomicModule) -> Extent {
        Extent { size: GraphSize::of_operator(module), islands: false }
    }

    pub(super) fn add(&mut self, other: Extent, level: &Level) {
        self.size += other.size;
        self.islands |= other.islands || level.island.is_some();
    }
}
