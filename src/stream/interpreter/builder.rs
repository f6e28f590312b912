//! Builds an island: connections and stages, in the order in which a traversal is walked.
//!
//! Called by the fused phase of the materializer and by tests. For each stage: [`IslandBuilder::begin`], then its ports
//! (all inlets, then all outlets, by [`PortWiring`]), then [`IslandBuilder::add`]. A connection is made by whichever end
//! comes first; the other end joins it, after its element type was compared. Invariants: a connection has one inlet and
//! one outlet when the island is built, else building fails.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::Arena;
use super::connection::*;
use super::context::{ConnectionEntry, Context, ContextParts, IslandId, StageEntry};
use super::inbox::IslandInbox;
use super::island::Island;
use super::ports::{Inlet, Outlet};
use crate::stream::attributes::{Attributes, Fuzzing, TransparentPull};
use crate::stream::stage::Logic;
use crate::stream::stage::dispatch::Dispatch;

/// Why stages could not be wired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// Both ends of a wire must have the same element type.
    #[error("stage [{stage}]: a port takes elements of {here}, the other end of its wire has {there}")]
    ElementType {
        /// The stage that was added.
        stage: &'static str,
        /// Its element type.
        here: &'static str,
        /// The element type of the other end.
        there: &'static str,
    },
    /// An outlet was wired to an inlet that has one already.
    #[error("stage [{stage}]: a wire has two inlets or two outlets")]
    Taken {
        /// The stage that was added.
        stage: &'static str,
    },
    /// A port has no other end.
    #[error("stage [{stage}]: {port} is not connected")]
    Unconnected {
        /// The stage of the open port.
        stage: String,
        /// The port.
        port: String,
    },
    /// More ports than a stage can have.
    #[error("stage [{stage}] has more than 65,535 ports of a kind")]
    TooManyPorts {
        /// The stage.
        stage: &'static str,
    },
}

/// One end that waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection of this index exists.
    Joins(ConnectionIndex),
    /// It is made now.
    New,
    /// It is the connection of this inlet of the same stage.
    Own(u16),
}

/// What a connection carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementInfo {
    pub id: TypeId,
    pub name: &'static str,
}

/// Position of a connection in its island.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionIndex(pub u32);

/// How much an island is going to need, as far as its blueprint knows. Too little costs allocations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SizeHint {
    pub bytes: usize,
    pub stages: usize,
    pub connections: usize,
}

pub(crate) struct IslandBuilder {
    island: IslandId,
    arena: Arena,
    stages: Vec<StageEntry>,
    connections: Vec<ConnectionEntry>,
    ports: Vec<ConnectionRef>,
    inbox: Arc<IslandInbox>,
    transparent_pull: bool,
    fuzzing: u64,
}

static NEXT_ISLAND: AtomicU64 = AtomicU64::new(1);

impl IslandBuilder {
    pub fn new(hint: SizeHint, attributes: &Attributes) -> IslandBuilder {
        IslandBuilder {
            island: IslandId(NEXT_ISLAND.fetch_add(1, Ordering::Relaxed)),
            arena: Arena::new(hint.bytes),
            stages: Vec::with_capacity(hint.stages),
            connections: Vec::with_capacity(hint.connections),
            ports: Vec::with_capacity(hint.connections * 2),
            inbox: Arc::default(),
            transparent_pull: attributes.get::<TransparentPull>().is_none_or(|transparent| transparent.0),
            fuzzing: attributes.get::<Fuzzing>().map_or(0, |fuzzing| fuzzing.0),
        }
    }

    pub fn inbox(&self) -> &Arc<IslandInbox> {
        &self.inbox
    }

    /// Number that the next stage will have.
    pub fn next_stage(&self) -> u32 {
        self.stages.len() as u32
    }

    /// Begins a stage: its ports follow, then [`IslandBuilder::add`].
    pub fn begin<'a>(&'a mut self, stage: &'static str, inlets: &'a [End], outlets: &'a [End]) -> PortWiring<'a> {
        let first_port = self.ports.len();
        PortWiring { builder: self, stage, inlets, outlets, first_port, next_inlet: 0, next_outlet: 0, error: None }
    }

    fn connect<T: 'static>(&mut self, end: End, stage: &'static str) -> Result<NonNull<Slot<T>>, WiringError> {
        match end {
            End::New => {
                let slot = self.arena.place(Slot::<T>::new(self.connections.len() as u32));
                // SAFETY: placed right above; nobody else has it yet.
                unsafe { slot.as_ref() }.header.target.set(slot.cast());
                self.connections
                    .push(ConnectionEntry { connection: slot.cast(), element: &<T as HasElementType>::TYPE });
                Ok(slot)
            }
            End::Joins(index) => {
                let entry = &self.connections[index.0 as usize];
                if (entry.element.id)() != TypeId::of::<T>() {
                    let here = std::any::type_name::<T>();
                    return Err(WiringError::ElementType { stage, here, there: (entry.element.name)() });
                }
                Ok(entry.connection.cast())
            }
            End::Own(_) => Err(WiringError::Taken { stage }),
        }
    }

    /// What a connection carries.
    pub fn element(&self, connection: ConnectionIndex) -> ElementInfo {
        let element = self.connections[connection.0 as usize].element;
        ElementInfo { id: (element.id)(), name: (element.name)() }
    }

    /// Index of a port's connection: inlets first, then outlets.
    pub fn port_connection(&self, first_port: usize, port: usize) -> ConnectionIndex {
        // SAFETY: connections live as long as the arena.
        ConnectionIndex(unsafe { self.ports[first_port + port].as_ref() }.index)
    }

    /// Adds the stage whose ports were made since [`IslandBuilder::begin`].
    pub fn add<S: Logic>(&mut self, logic: S, wired: Wired, attributes: &Attributes) -> Result<u32, WiringError> {
        let Wired { stage: name, first_port, inlets, outlets } = wired;
        let index = self.stages.len() as u32;
        let dispatch = Dispatch::of::<S>();
        let logic = self.arena.place(logic);
        let entry = StageEntry {
            logic: Some(logic),
            type_id: TypeId::of::<S>(),
            open: u32::from(inlets) + u32::from(outlets),
            first_port: first_port as u32,
            inlets,
            outlets,
            name,
            attributes: attributes.clone(),
        };
        // From here on the entry owns the logic: it is dropped with the builder if something fails.
        self.stages.push(entry);
        for at in 0..inlets {
            // SAFETY: connections live as long as the arena.
            let header = unsafe { self.ports[first_port + usize::from(at)].as_ref() };
            if header.in_owner.replace(index) != NO_STAGE {
                return Err(WiringError::Taken { stage: name });
            }
            header.inlet.set(at);
            header.in_stage.set(logic.as_ptr().cast());
            header.on_push.set(dispatch.on_push);
        }
        for at in 0..outlets {
            // SAFETY: as above.
            let header = unsafe { self.ports[first_port + usize::from(inlets) + usize::from(at)].as_ref() };
            if header.out_owner.replace(index) != NO_STAGE {
                return Err(WiringError::Taken { stage: name });
            }
            header.outlet.set(at);
            header.out_stage.set(logic.as_ptr().cast());
            header.on_pull.set(dispatch.on_pull);
        }
        if dispatch.passes_pulls && self.transparent_pull {
            let (inlet, outlet) = (self.ports[first_port], self.ports[first_port + 1]);
            // SAFETY: as above.
            unsafe { outlet.as_ref() }.target.set(inlet);
        }
        Ok(index)
    }

    /// Resolves where pulls go, over any number of stages that pass them on. Linear: each connection is settled once.
    fn settle_targets(&self) {
        let mut path = Vec::new();
        for entry in &self.connections {
            let mut at = entry.connection;
            loop {
                // SAFETY: connections and their targets live as long as the arena.
                let target = unsafe { at.as_ref() }.target.get();
                // SAFETY: as above.
                if target == at || unsafe { at.as_ref() }.has(IMPLIED) {
                    break;
                }
                path.push(at);
                at = target;
                // A ring of stages that pass pulls on has nobody who answers: each asks its neighbour.
                if path.len() > self.connections.len() {
                    for ring in path.drain(..) {
                        // SAFETY: as above.
                        unsafe { ring.as_ref() }.target.set(ring);
                    }
                    break;
                }
            }
            // SAFETY: as above.
            let end = unsafe { at.as_ref() }.target.get();
            for passed in path.drain(..) {
                // SAFETY: as above.
                let header = unsafe { passed.as_ref() };
                header.target.set(end);
                header.set(IMPLIED);
            }
        }
    }

    /// The finished island, which does nothing before it is started.
    pub fn build(mut self) -> Result<Island, WiringError> {
        for entry in &self.connections {
            // SAFETY: connections live as long as the arena.
            let header = unsafe { entry.connection.as_ref() };
            let (inlet, outlet) = (header.in_owner.get(), header.out_owner.get());
            if inlet == NO_STAGE {
                return Err(self.unconnected(outlet, format!("out{}", header.outlet.get())));
            }
            if outlet == NO_STAGE {
                return Err(self.unconnected(inlet, format!("in{}", header.inlet.get())));
            }
        }
        if self.transparent_pull {
            self.settle_targets();
        }
        let parts = ContextParts {
            island: self.island,
            stages: std::mem::take(&mut self.stages),
            connections: std::mem::take(&mut self.connections),
            ports: std::mem::take(&mut self.ports),
            inbox: Arc::clone(&self.inbox),
            arena: std::mem::replace(&mut self.arena, Arena::new(0)),
            fuzzing: self.fuzzing,
        };
        Ok(Island::new(Context::new(parts)))
    }

    fn unconnected(&self, stage: u32, port: String) -> WiringError {
        let name = self.stages.get(stage as usize).map_or("unknown", |entry| {
            let name: &str = entry.attributes.name().unwrap_or(entry.name);
            name
        });
        WiringError::Unconnected { stage: name.to_owned(), port }
    }
}

impl Drop for IslandBuilder {
    fn drop(&mut self) {
        // Empty unless the island was given up: then its stages were never started and are only dropped.
        for entry in self.stages.drain(..) {
            if let Some(logic) = entry.logic {
                // SAFETY: placed in the arena by `add`, dropped once, not borrowed.
                unsafe { std::ptr::drop_in_place(logic.as_ptr()) };
            }
        }
    }
}

/// The ports of a stage that is being added, one after the other: all inlets, then all outlets.
pub struct PortWiring<'a> {
    builder: &'a mut IslandBuilder,
    stage: &'static str,
    inlets: &'a [End],
    outlets: &'a [End],
    first_port: usize,
    next_inlet: usize,
    next_outlet: usize,
    error: Option<WiringError>,
}

/// What [`PortWiring`] leaves for [`IslandBuilder::add`].
pub(crate) struct Wired {
    stage: &'static str,
    first_port: usize,
    inlets: u16,
    outlets: u16,
}

impl Wired {
    pub fn first_port(&self) -> usize {
        self.first_port
    }
}

impl PortWiring<'_> {
    fn next<T: 'static>(&mut self, end: Option<End>) -> NonNull<Slot<T>> {
        let connected = end.ok_or(WiringError::TooManyPorts { stage: self.stage });
        let connected = connected.and_then(|end| self.builder.connect::<T>(end, self.stage));
        let slot = connected.or_else(|error| {
            // The stage gets a port that leads nowhere and is thrown away: `finish` fails.
            self.error.get_or_insert(error);
            self.builder.connect::<T>(End::New, self.stage)
        });
        let slot = slot.unwrap_or_else(|_| unreachable!("a new connection has no type to differ from"));
        self.builder.ports.push(slot.cast());
        slot
    }

    /// The next inlet.
    pub fn inlet<T: 'static>(&mut self) -> Inlet<T> {
        let end = self.inlets.get(self.next_inlet).copied();
        self.next_inlet += 1;
        Inlet::new(self.next(end), self.builder.island)
    }

    /// The next outlet.
    pub fn outlet<T: 'static>(&mut self) -> Outlet<T> {
        let end = self.outlets.get(self.next_outlet).copied();
        let end = match end {
            Some(End::Own(inlet)) => self.own_inlet(usize::from(inlet)),
            end => end,
        };
        self.next_outlet += 1;
        Outlet::new(self.next(end), self.builder.island)
    }

    fn own_inlet(&self, inlet: usize) -> Option<End> {
        (inlet < self.next_inlet).then(|| End::Joins(self.builder.port_connection(self.first_port, inlet)))
    }

    pub(crate) fn finish(self) -> Result<Wired, WiringError> {
        let stage = self.stage;
        if let Some(error) = self.error {
            return Err(error);
        }
        let (Ok(inlets), Ok(outlets)) = (u16::try_from(self.next_inlet), u16::try_from(self.next_outlet)) else {
            return Err(WiringError::TooManyPorts { stage });
        };
        if self.next_inlet != self.inlets.len() || self.next_outlet != self.outlets.len() {
            return Err(WiringError::TooManyPorts { stage });
        }
        Ok(Wired { stage, first_port: self.first_port, inlets, outlets })
    }
}
