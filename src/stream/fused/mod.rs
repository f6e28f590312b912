//! The fused phase: islands whose stages one interpreter runs.
//!
//! [`materialize`] walks a blueprint with a [`FusedPhase`] for each island and starts the islands on their cores. A wire
//! between two of them becomes a cross-core queue with a stage at either end. Invariants: an island of another core is
//! created there, from seeds, so its stages need not be `Send`; materialized values stay here.

mod island;
mod phase;

use std::rc::Rc;

use super::attributes::{Attributes, Placement};
use super::boundary::{BoundaryElements, BoundaryType};
use super::host::StreamHost;
use super::materializer::{IslandSetup, MaterializationError, Materializer, PhaseIsland, Phases};
use super::module::MaterializedValue;
use super::traversal::{Blueprint, IslandTag};
pub use phase::FusedPhase;

/// Says that elements of this type may cross the boundaries of an island: what `async_boundary` adds to it.
#[must_use]
pub fn boundary_elements<T: Send + 'static>() -> Attributes {
    Attributes::of(BoundaryElements(vec![BoundaryType::of::<T>()]))
}

/// Placement on a core that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the graph places an island on core {core}, but there are only {cores}: use `Placement::Index` below that")]
pub struct NoSuchCore {
    /// The core.
    pub core: u16,
    /// How many there are.
    pub cores: u16,
}

/// Why elements could not cross a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("elements of type {element} were not declared to cross islands: use `async_boundary` or `on` at this place")]
pub struct NotDeclared {
    /// The element type.
    pub element: &'static str,
}

fn phase_error(cause: impl std::error::Error + Send + Sync + 'static) -> MaterializationError {
    MaterializationError::Phase { phase: "fused".to_owned(), cause: Box::new(cause) }
}

/// The core for an island with these attributes.
fn place(host: &StreamHost, attributes: &Attributes, is_root: bool) -> Result<u16, MaterializationError> {
    let cores = host.number_of_cores();
    match attributes.get::<Placement>() {
        None if is_root => Ok(host.own_core()),
        None | Some(Placement::Any) => Ok(host.any_core()),
        Some(Placement::Index(core)) if *core < cores => Ok(*core),
        Some(Placement::Index(core)) => Err(phase_error(NoSuchCore { core: *core, cores })),
        Some(Placement::OfShard(shard)) => Ok(host.core_of_shard(*shard)),
    }
}

/// The factories that every host has; more can be added for islands of other kinds.
#[must_use]
pub fn phases(host: &Rc<StreamHost>) -> Phases<'static> {
    let host = Rc::downgrade(host);
    Phases::new().with(IslandTag::FUSED, move |setup: IslandSetup<'_>| {
        let host = host.upgrade().ok_or_else(|| phase_error(crate::stream::dsl::NoHost))?;
        let core = place(&host, setup.attributes, false)?;
        let phase: Box<dyn PhaseIsland> = Box::new(FusedPhase::new(&host, core, setup));
        Ok(phase)
    })
}

/// Makes a running stream of a blueprint. Its islands start in the next turns of their cores.
///
/// # Errors
/// If a stage does not fit, or the graph asks for what does not exist. Nothing runs then.
pub fn materialize(
    host: &Rc<StreamHost>,
    blueprint: &Blueprint,
    defaults: &Attributes,
) -> Result<MaterializedValue, MaterializationError> {
    let phases = host.phases();
    materialize_with(host, blueprint, defaults, &phases)
}

/// As [`materialize`], with phases for islands of further kinds.
///
/// # Errors
/// As [`materialize`].
pub fn materialize_with(
    host: &Rc<StreamHost>,
    blueprint: &Blueprint,
    defaults: &Attributes,
    phases: &Phases<'_>,
) -> Result<MaterializedValue, MaterializationError> {
    let core = place(host, blueprint.attributes(), true)?;
    let (attributes, size) = (blueprint.attributes(), blueprint.island_size(0));
    let mut root = FusedPhase::new(host, core, IslandSetup { tag: IslandTag::FUSED, attributes, name: "root", size });
    Materializer::new(phases).with_defaults(defaults.clone()).materialize(blueprint, &mut root)
}
