//! Phases: what runs the operators of an island. The extension point of the materializer.

use std::any::Any;
use std::fmt;

use super::MaterializationError;
use crate::stream::attributes::Attributes;
use crate::stream::module::{AtomicModule, MaterializedValue};
use crate::stream::traversal::{GraphSize, IslandTag};

/// Position in the slot space of one island, which is contiguous from 0 whatever islands lie within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalSlot(pub u32);

/// Names an outlet whose inlet was not visited yet, or is in another island. Unique within one materialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenWire(pub u32);

/// An inlet of an operator that is being materialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InletWire {
    /// Its slot.
    pub slot: LocalSlot,
    /// The outlet that leads to it, if that is in this island, was visited before, and was left open. Otherwise the outlet
    /// comes later with this slot, or [`PhaseIsland::take_publisher`] does.
    pub from: Option<OpenWire>,
}

/// An outlet of an operator that is being materialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutletWire {
    /// It leads to an inlet of this island that was visited before, or to one of the same operator.
    Slot(LocalSlot),
    /// It leads to an inlet that comes later with [`InletWire::from`], or [`PhaseIsland::create_publisher`] asks for it.
    Open(OpenWire),
}

/// What one phase hands to another for a wire between islands. Both have to agree on what it holds.
pub struct Publisher(pub Box<dyn Any>);

impl fmt::Debug for Publisher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Publisher")
    }
}

/// One island while it is being materialized.
///
/// Every wire is told exactly once to each of its ends. Nothing may start before [`on_island_ready`]; an island that is
/// dropped before that never was.
///
/// [`on_island_ready`]: Self::on_island_ready
pub trait PhaseIsland {
    /// The name, for messages.
    fn name(&self) -> &str;

    /// Makes something that runs of an operator. Slots of inlets are consecutive; `attributes` are those of all levels
    /// around the operator, the innermost first.
    ///
    /// # Errors
    /// If the phase does not understand the operator.
    fn materialize_atomic(
        &mut self,
        module: &dyn AtomicModule,
        inlets: &[InletWire],
        outlets: &[OutletWire],
        attributes: &Attributes,
    ) -> Result<MaterializedValue, MaterializationError>;

    /// Makes the sending end of a wire to another island, of an outlet that was left open.
    ///
    /// # Errors
    /// If the phase has no way to leave its island.
    fn create_publisher(&mut self, outlet: OpenWire) -> Result<Publisher, MaterializationError>;

    /// Connects an inlet to the sending end in another island.
    ///
    /// # Errors
    /// If the phase does not understand what the publisher holds.
    fn take_publisher(&mut self, inlet: LocalSlot, publisher: Publisher) -> Result<(), MaterializationError>;

    /// The walk succeeded: the island may start. The outermost island comes first, then the others as they were entered.
    ///
    /// # Errors
    /// If it cannot start. Islands that came before have started, so what can be checked is checked earlier.
    fn on_island_ready(&mut self) -> Result<(), MaterializationError>;
}

/// What a factory is told of the island it makes.
#[derive(Clone, Copy, Debug)]
pub struct IslandSetup<'a> {
    /// The kind of island.
    pub tag: IslandTag,
    /// The effective attributes at the island's beginning.
    pub attributes: &'a Attributes,
    /// A name that is unique within the graph.
    pub name: &'a str,
    /// What is in it, without islands that it encloses.
    pub size: GraphSize,
}

/// Makes the phase of an island.
pub trait PhaseFactory {
    /// Makes the phase of an island that is entered.
    ///
    /// # Errors
    /// If the attributes ask for what cannot be, such as a core that does not exist.
    fn create(&self, setup: IslandSetup<'_>) -> Result<Box<dyn PhaseIsland>, MaterializationError>;
}

impl<F> PhaseFactory for F
where
    F: Fn(IslandSetup<'_>) -> Result<Box<dyn PhaseIsland>, MaterializationError>,
{
    fn create(&self, setup: IslandSetup<'_>) -> Result<Box<dyn PhaseIsland>, MaterializationError> {
        self(setup)
    }
}

/// The factories by tag. There are few, so a lookup is a scan.
#[derive(Default)]
pub struct Phases<'p> {
    factories: Vec<(IslandTag, Box<dyn PhaseFactory + 'p>)>,
}

impl<'p> Phases<'p> {
    /// No factory: enough for graphs of one island.
    pub fn new() -> Phases<'p> {
        Phases::default()
    }

    /// Adds the factory for a tag, in place of one that was given before.
    #[must_use]
    pub fn with(mut self, tag: IslandTag, factory: impl PhaseFactory + 'p) -> Phases<'p> {
        self.factories.retain(|(known, _)| *known != tag);
        self.factories.push((tag, Box::new(factory)));
        self
    }

    pub(super) fn create(&self, setup: IslandSetup<'_>) -> Result<Box<dyn PhaseIsland>, MaterializationError> {
        let factory = self.factories.iter().find(|(tag, _)| *tag == setup.tag);
        let (_, factory) = factory.ok_or(MaterializationError::UnknownIsland { tag: setup.tag })?;
        factory.create(setup)
    }
}
