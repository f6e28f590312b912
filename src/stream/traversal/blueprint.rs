//! A complete graph, ready to be materialized any number of times, on any core.

use std::ops::AddAssign;
use std::sync::Arc;

use super::Traversal;
use super::layout::Layout;
use crate::stream::attributes::Attributes;
use crate::stream::module::AtomicModule;

/// How much there is in a graph, so that a phase can size its memory before the first operator comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphSize {
    /// Operators.
    pub modules: usize,
    /// Inlets: as many as there are wires.
    pub inlets: usize,
    /// Outlets.
    pub outlets: usize,
    /// Sum of [`AtomicModule::arena_bytes`].
    pub arena_bytes: usize,
}

impl GraphSize {
    pub(in crate::stream) fn of_operator(module: &dyn AtomicModule) -> GraphSize {
        GraphSize { modules: 1, inlets: module.inlets(), outlets: module.outlets(), arena_bytes: module.arena_bytes() }
    }
}

impl AddAssign for GraphSize {
    fn add_assign(&mut self, other: GraphSize) {
        self.modules += other.modules;
        self.inlets += other.inlets;
        self.outlets += other.outlets;
        self.arena_bytes = self.arena_bytes.saturating_add(other.arena_bytes);
    }
}

/// A graph in which every port is wired.
#[derive(Clone)]
pub struct Blueprint {
    traversal: Traversal,
    attributes: Attributes,
    size: GraphSize,
    /// One for each island in the order of entering, the outermost first; none where there is only that one.
    islands: Option<Arc<[GraphSize]>>,
    /// Whether builders wired it, who wire each port once.
    built: bool,
}

impl Blueprint {
    pub(in crate::stream) fn new(
        traversal: Traversal,
        attributes: Attributes,
        size: GraphSize,
        has_islands: bool,
    ) -> Blueprint {
        let islands = has_islands.then(|| Layout::of(&traversal).islands.iter().map(|island| island.size).collect());
        Blueprint { traversal, attributes, size, islands, built: true }
    }

    /// A blueprint of a traversal that was made by hand. What is wrong in it is found when it is materialized.
    pub fn from_traversal(traversal: Traversal) -> Blueprint {
        let sizes: Arc<[GraphSize]> = Layout::of(&traversal).islands.iter().map(|island| island.size).collect();
        let mut size = GraphSize::default();
        sizes.iter().for_each(|island| size += *island);
        Blueprint { traversal, attributes: Attributes::none(), size, islands: Some(sizes), built: false }
    }

    /// The commands.
    pub fn traversal(&self) -> &Traversal {
        &self.traversal
    }

    /// Whether it comes from builders, who wire each port once.
    pub(in crate::stream) fn is_built(&self) -> bool {
        self.built
    }

    /// The attributes of the outermost level: they configure the outermost island too.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The size of the whole graph.
    pub fn size(&self) -> GraphSize {
        self.size
    }

    /// The size of an island by the order of entering; 0 is the outermost one.
    pub fn island_size(&self, island: usize) -> GraphSize {
        match &self.islands {
            None if island == 0 => self.size,
            None => GraphSize::default(),
            Some(sizes) => sizes.get(island).copied().unwrap_or_default(),
        }
    }
}
