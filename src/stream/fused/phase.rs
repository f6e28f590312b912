//! The phase of one fused island: connects what the materializer walks over.

use std::cell::RefCell;
use std::rc::Rc;

use super::island::FusedIsland;
use super::{NotDeclared, phase_error};
use crate::stream::attributes::{Attributes, InputBuffer};
use crate::stream::boundary::{BoundaryElements, BoundaryType};
use crate::stream::host::StreamHost;
use crate::stream::inline::InlineList;
use crate::stream::interpreter::builder::{ConnectionIndex, End, SizeHint};
use crate::stream::materializer::{
    InletWire, IslandSetup, LocalSlot, MaterializationError, OpenWire, OutletWire, PhaseIsland, Publisher,
};
use crate::stream::module::{AtomicModule, MaterializedValue};

/// Ports of a stage that need no allocation while it is connected.
const INLINE_PORTS: usize = 8;

/// A fused island that is being materialized.
pub struct FusedPhase {
    host: Rc<StreamHost>,
    name: String,
    island: Rc<RefCell<FusedIsland>>,
    /// The connection of each slot, and how many elements a boundary into it may hold.
    slots: Vec<(ConnectionIndex, u32)>,
    open: Vec<(OpenWire, ConnectionIndex)>,
}

/// The sending end of a wire to another island.
struct FusedPublisher {
    island: Rc<RefCell<FusedIsland>>,
    connection: ConnectionIndex,
}

impl FusedPhase {
    /// The phase of an island for this core.
    pub fn new(host: &Rc<StreamHost>, core: u16, setup: IslandSetup<'_>) -> FusedPhase {
        let hint = SizeHint {
            bytes: setup.size.arena_bytes,
            stages: setup.size.modules,
            connections: setup.size.inlets.max(setup.size.outlets),
        };
        FusedPhase {
            host: Rc::clone(host),
            name: setup.name.to_owned(),
            island: Rc::new(RefCell::new(FusedIsland::new(host, core, hint, setup.attributes))),
            slots: Vec::with_capacity(setup.size.inlets),
            open: Vec::new(),
        }
    }

    fn slot(&self, slot: LocalSlot) -> Option<ConnectionIndex> {
        self.slots.get(slot.0 as usize).map(|(connection, _)| *connection)
    }

    fn take_open(&mut self, wire: OpenWire) -> Option<ConnectionIndex> {
        let at = self.open.iter().position(|(open, _)| *open == wire)?;
        Some(self.open.swap_remove(at).1)
    }

    fn inlet_end(&mut self, wire: &InletWire) -> End {
        wire.from.and_then(|from| self.take_open(from)).map_or(End::New, End::Joins)
    }

    /// A slot at or beyond the module's own first one is an inlet of the module itself, which is made first.
    fn outlet_end(&self, wire: &OutletWire, own: &[InletWire]) -> End {
        let OutletWire::Slot(slot) = wire else { return End::New };
        match own.first() {
            Some(first) if slot.0 >= first.slot.0 => End::Own((slot.0 - first.slot.0) as u16),
            _ => self.slot(*slot).map_or(End::New, End::Joins),
        }
    }
}

fn boundary_of(id: std::any::TypeId, attributes: &Attributes) -> Option<BoundaryType> {
    attributes.all::<BoundaryElements>().find_map(|declared| declared.find(id)).cloned()
}

impl PhaseIsland for FusedPhase {
    fn name(&self) -> &str {
        &self.name
    }

    fn materialize_atomic(
        &mut self,
        module: &dyn AtomicModule,
        inlets: &[InletWire],
        outlets: &[OutletWire],
        attributes: &Attributes,
    ) -> Result<MaterializedValue, MaterializationError> {
        let Some(stage) = module.as_stage() else {
            let (phase, module) = (self.name.clone(), module.name().to_owned());
            let reason = "it takes modules that are stages (`StageModule`)".to_owned();
            return Err(MaterializationError::ModuleRefused { phase, module, reason });
        };
        let mut inlet_ends = InlineList::<End, INLINE_PORTS>::new(End::New);
        let mut outlet_ends = InlineList::<End, INLINE_PORTS>::new(End::New);
        for wire in inlets {
            inlet_ends.push(self.inlet_end(wire));
        }
        for wire in outlets {
            outlet_ends.push(self.outlet_end(wire, inlets));
        }
        let mut island = self.island.borrow_mut();
        let (first_port, value) =
            island.add(stage, inlet_ends.as_slice(), outlet_ends.as_slice(), attributes).map_err(phase_error)?;
        let buffer = if attributes.is_empty() { None } else { attributes.get::<InputBuffer>() };
        let buffer = buffer.map_or(0, |buffer| buffer.max() as u32);
        for (port, wire) in inlets.iter().enumerate() {
            debug_assert_eq!(self.slots.len(), wire.slot.0 as usize, "slots are visited in order");
            self.slots.push((island.port(first_port, port), buffer));
        }
        for (port, wire) in outlets.iter().enumerate() {
            if let OutletWire::Open(open) = wire {
                self.open.push((*open, island.port(first_port, inlets.len() + port)));
            }
        }
        Ok(value)
    }

    fn create_publisher(&mut self, outlet: OpenWire) -> Result<Publisher, MaterializationError> {
        let connection =
            self.take_open(outlet).ok_or(MaterializationError::Malformed { reason: "no such open wire" })?;
        Ok(Publisher(Box::new(FusedPublisher { island: Rc::clone(&self.island), connection })))
    }

    fn take_publisher(&mut self, inlet: LocalSlot, publisher: Publisher) -> Result<(), MaterializationError> {
        let publisher =
            publisher.0.downcast::<FusedPublisher>().map_err(|_| MaterializationError::BoundaryRefused {
                phase: self.name.clone(),
                operation: "take elements from an island of another kind",
            })?;
        let (target, buffer) = *self
            .slots
            .get(inlet.0 as usize)
            .ok_or(MaterializationError::Malformed { reason: "no such slot in the island" })?;
        let capacity = match buffer {
            0 => Attributes::none().mandatory::<InputBuffer>().max(),
            buffer => buffer as usize,
        };
        let element = publisher.island.borrow_mut().element(publisher.connection);
        let boundary = boundary_of(element.id, self.island.borrow().attributes())
            .or_else(|| boundary_of(element.id, publisher.island.borrow().attributes()))
            .ok_or_else(|| phase_error(NotDeclared { element: element.name }))?;
        let (output, input) = boundary.make(capacity);
        let from = End::Joins(publisher.connection);
        publisher.island.borrow_mut().add_seed(output, &[from], &[]).map_err(phase_error)?;
        self.island.borrow_mut().add_seed(input, &[], &[End::Joins(target)]).map_err(phase_error)
    }

    fn on_island_ready(&mut self) -> Result<(), MaterializationError> {
        self.island.borrow_mut().start(&self.host).map_err(phase_error)
    }
}
