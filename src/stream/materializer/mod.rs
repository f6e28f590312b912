//! The materializer: one pass over a traversal that creates everything that runs, and wires it.
//!
//! It decodes the commands, keeps the value stack and the attribute stack, and tracks islands (`tracking.rs`). It does not
//! know what an operator is: each island has a phase ([`PhaseIsland`]) that makes something of its operators and wires
//! within the island. Only wires between islands are brought together here, as publishers.
//!
//! Called by whoever runs a graph: the shell gives the phase of the outermost island and a factory for each kind of island
//! that a graph may contain. Invariants: each wire is resolved once, by the end that is visited second; nothing starts
//! before the whole walk succeeded; with one island nothing is allocated for the tracking, and nothing per operator.

mod error;
mod narrator;
mod phase;
mod run;
mod tracking;

pub use error::MaterializationError;
pub use narrator::{Narrator, TracingNarrator};
pub use phase::{
    InletWire, IslandSetup, LocalSlot, OpenWire, OutletWire, PhaseFactory, PhaseIsland, Phases, Publisher,
};

use super::attributes::Attributes;
use super::module::MaterializedValue;
use super::traversal::Blueprint;

/// Materializes blueprints with the given factories.
pub struct Materializer<'m> {
    phases: &'m Phases<'m>,
    defaults: Attributes,
    narrator: Option<&'m mut dyn Narrator>,
}

impl<'m> Materializer<'m> {
    /// A materializer that knows these kinds of islands.
    pub fn new(phases: &'m Phases<'m>) -> Materializer<'m> {
        Materializer { phases, defaults: Attributes::none(), narrator: None }
    }

    /// Attributes that count where a graph sets none.
    #[must_use]
    pub fn with_defaults(mut self, defaults: Attributes) -> Materializer<'m> {
        self.defaults = defaults;
        self
    }

    /// The debug switch: tells `narrator` each step.
    #[must_use]
    pub fn narrated(mut self, narrator: &'m mut dyn Narrator) -> Materializer<'m> {
        self.narrator = Some(narrator);
        self
    }

    /// Materializes a graph, whose outermost island is `root`, and starts its islands. Returns the materialized value.
    ///
    /// # Errors
    /// If a phase refuses, an island is unknown, a function on values gets a wrong type, or a hand-made traversal is wrong.
    /// No island was started then, except where one refuses to start itself; all but `root` are dropped.
    pub fn materialize(
        &mut self,
        blueprint: &Blueprint,
        root: &mut dyn PhaseIsland,
    ) -> Result<MaterializedValue, MaterializationError> {
        let narrator: Option<&mut dyn Narrator> = match &mut self.narrator {
            Some(narrator) => Some(&mut **narrator),
            None => None,
        };
        run::run(blueprint, root, self.phases, &self.defaults, narrator)
    }
}
