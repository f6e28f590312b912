//! The builder of graphs: parts in any order, wired in any order.
//!
//! The slots of a part depend on its place, so its place is fixed when it is added, while the part may be completed much
//! later. Until then a *builder key* stands for it in the list of steps; the traversal is put together at the end.

use super::{CompletedBuilder, Extent, Level, TraversalBuilder, WiringError};
use crate::stream::attributes::Attributes;
use crate::stream::traversal::{Combine, IslandTag, TransformFunction, Traversal};

/// An inlet of a part inside a [`CompositeBuilder`]; of no meaning to another builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InPort(u32);

/// An outlet of a part inside a [`CompositeBuilder`]; of no meaning to another builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutPort(u32);

/// The new ports of a part that was added, in the order of its shape.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    first_inlet: u32,
    inlets: u32,
    first_outlet: u32,
    outlets: u32,
}

impl Added {
    /// An inlet by position. A position that does not exist gives a port that cannot be wired.
    pub fn inlet(&self, position: usize) -> InPort {
        InPort(nth(self.first_inlet, self.inlets, position))
    }

    /// An outlet by position. A position that does not exist gives a port that cannot be wired.
    pub fn outlet(&self, position: usize) -> OutPort {
        OutPort(nth(self.first_outlet, self.outlets, position))
    }

    /// How many inlets.
    pub fn inlets(&self) -> usize {
        self.inlets as usize
    }

    /// How many outlets.
    pub fn outlets(&self) -> usize {
        self.outlets as usize
    }
}

fn nth(first: u32, count: u32, position: usize) -> u32 {
    u32::try_from(position).ok().filter(|position| *position < count).map_or(u32::MAX, |position| first + position)
}

/// Position in [`CompositeBuilder::parts`].
type BuilderKey = u32;

#[derive(Clone)]
enum BuildStep {
    Part(BuilderKey),
    Append(Traversal),
}

#[derive(Clone)]
struct Inlet {
    offset: i32,
    wired: bool,
}

#[derive(Clone)]
struct Outlet {
    /// The slot of the first inlet of the operator that has it.
    base: i32,
    owner: BuilderKey,
    /// Its position in the shape of the owner.
    position: u32,
    wired: bool,
}

/// A graph that grows by whole parts.
#[derive(Clone)]
pub struct CompositeBuilder {
    steps: Vec<BuildStep>,
    parts: Vec<TraversalBuilder>,
    inlets: Vec<Inlet>,
    outlets: Vec<Outlet>,
    unwired_outlets: usize,
    pub(super) in_slots: i32,
    /// Computations on the value of the whole.
    pub(super) final_steps: Traversal,
    pub(super) level: Level,
    pub(super) extent: Extent,
}

impl Default for CompositeBuilder {
    fn default() -> CompositeBuilder {
        CompositeBuilder::new()
    }
}

impl CompositeBuilder {
    /// A graph of nothing; its value is the unit value.
    pub fn new() -> CompositeBuilder {
        CompositeBuilder {
            steps: vec![BuildStep::Append(Traversal::PushNotUsed)],
            parts: Vec::new(),
            inlets: Vec::new(),
            outlets: Vec::new(),
            unwired_outlets: 0,
            in_slots: 0,
            final_steps: Traversal::Empty,
            level: Level::default(),
            extent: Extent::default(),
        }
    }

    /// A graph of one part, whose value is that of the part.
    pub fn containing(part: TraversalBuilder) -> (CompositeBuilder, Added) {
        let mut graph = CompositeBuilder::new();
        let added = graph.add(part, Combine::Right);
        (graph, added)
    }

    /// Imports a part: it gets new ports, so the same part can be added again. `combine` chooses between the value so far
    /// (left) and that of the part (right).
    pub fn add(&mut self, part: TraversalBuilder, combine: Combine) -> Added {
        let key = self.parts.len() as BuilderKey;
        let added = Added {
            first_inlet: self.inlets.len() as u32,
            inlets: part.inlets() as u32,
            first_outlet: self.outlets.len() as u32,
            outlets: part.outlets() as u32,
        };
        let offset = self.in_slots;
        self.inlets
            .extend((0..part.inlets()).map(|inlet| Inlet { offset: offset + part.offset_of(inlet), wired: false }));
        self.outlets.extend((0..part.outlets()).map(|outlet| Outlet {
            base: offset + part.offset_of_module(outlet),
            owner: key,
            position: outlet as u32,
            wired: false,
        }));
        self.unwired_outlets += part.outlets();
        self.in_slots += part.in_slots();
        self.extent.add(part.extent(), part.level());
        self.parts.push(part);
        self.push_steps(key, combine);
        added
    }

    fn push_steps(&mut self, key: BuilderKey, combine: Combine) {
        let part = BuildStep::Part(key);
        match combine {
            Combine::Left => self.steps.extend([part, BuildStep::Append(Traversal::Pop)]),
            Combine::Right => self.steps.extend([BuildStep::Append(Traversal::Pop), part]),
            Combine::Neither => {
                let neither = Traversal::Pop.concat(Traversal::Pop.concat(Traversal::PushNotUsed));
                self.steps.extend([part, BuildStep::Append(neither)]);
            }
            Combine::Function(function) => {
                self.steps.extend([part, BuildStep::Append(Traversal::Compose { function, reverse: false })]);
            }
        }
    }

    /// Connects two ports.
    ///
    /// # Errors
    /// If one is wired, or is not a port of this builder.
    pub fn wire(&mut self, outlet: OutPort, inlet: InPort) -> Result<(), WiringError> {
        let from = self.outlets.get(outlet.0 as usize).ok_or(WiringError::UnknownPort)?;
        let to = self.inlets.get(inlet.0 as usize).ok_or(WiringError::UnknownPort)?;
        if from.wired {
            return Err(WiringError::AlreadyConnected { port: self.outlet_label(outlet) });
        }
        if to.wired {
            return Err(WiringError::AlreadyConnected { port: self.slot_label(to.offset) });
        }
        let relative_slot = to.offset - from.base;
        self.inlets[inlet.0 as usize].wired = true;
        self.assign(outlet, relative_slot);
        Ok(())
    }

    /// Whether an inlet is wired; `None` if it is not of this builder.
    pub fn is_inlet_wired(&self, inlet: InPort) -> Option<bool> {
        self.inlets.get(inlet.0 as usize).map(|inlet| inlet.wired)
    }

    /// Whether an outlet is wired; `None` if it is not of this builder.
    pub fn is_outlet_wired(&self, outlet: OutPort) -> Option<bool> {
        self.outlets.get(outlet.0 as usize).map(|outlet| outlet.wired)
    }

    /// Replaces the attributes of the outermost level; see [`TraversalBuilder::set_attributes`].
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.level.set_attributes(attributes);
    }

    /// Makes the outermost level an island. Without effect if it is one.
    pub fn make_island(&mut self, tag: IslandTag) {
        self.level.make_island(tag);
    }

    /// Computes on the value of all that was added, and of all that will be.
    pub fn transform(&mut self, function: TransformFunction) {
        self.final_steps = std::mem::take(&mut self.final_steps).concat(Traversal::Transform(function));
    }

    /// The graph as a part with these free ports, in this order.
    ///
    /// # Errors
    /// If they are not exactly the ports that are not wired.
    pub fn seal(self, inlets: &[InPort], outlets: &[OutPort]) -> Result<TraversalBuilder, WiringError> {
        self.check_shape(inlets, outlets)?;
        let inlets = inlets.iter().map(|inlet| self.inlets[inlet.0 as usize].offset).collect();
        Ok(self.sealed(inlets, outlets.to_vec()))
    }

    /// The graph as a part that shows all ports that are not wired, in the order in which they were added.
    pub fn seal_all(self) -> TraversalBuilder {
        let inlets = self.inlets.iter().filter(|inlet| !inlet.wired).map(|inlet| inlet.offset).collect();
        let outlets = (0..self.outlets.len() as u32).filter(|&outlet| !self.outlets[outlet as usize].wired);
        let outlets = outlets.map(OutPort).collect();
        self.sealed(inlets, outlets)
    }

    fn sealed(self, inlets: Vec<i32>, outlets: Vec<OutPort>) -> TraversalBuilder {
        let sealed = SealedComposite { graph: self, inlets, outlets };
        TraversalBuilder::Composite(Box::new(sealed)).completed_if_possible()
    }

    fn check_shape(&self, inlets: &[InPort], outlets: &[OutPort]) -> Result<(), WiringError> {
        let mut inlet_taken: Vec<bool> = self.inlets.iter().map(|inlet| inlet.wired).collect();
        let mut outlet_taken: Vec<bool> = self.outlets.iter().map(|outlet| outlet.wired).collect();
        let mut connected = Vec::new();
        for inlet in inlets {
            let taken = inlet_taken.get_mut(inlet.0 as usize).ok_or(WiringError::UnknownPort)?;
            if std::mem::replace(taken, true) {
                connected.push(self.slot_label(self.inlets[inlet.0 as usize].offset));
            }
        }
        for outlet in outlets {
            let taken = outlet_taken.get_mut(outlet.0 as usize).ok_or(WiringError::UnknownPort)?;
            if std::mem::replace(taken, true) {
                connected.push(self.outlet_label(*outlet));
            }
        }
        if !connected.is_empty() {
            return Err(WiringError::ReturnedButConnected { ports: connected });
        }
        let free_inlets = (0..self.inlets.len()).filter(|&inlet| !inlet_taken[inlet]);
        let free_outlets = (0..self.outlets.len()).filter(|&outlet| !outlet_taken[outlet]);
        let free: Vec<String> = free_inlets
            .map(|inlet| self.slot_label(self.inlets[inlet].offset))
            .chain(free_outlets.map(|outlet| self.outlet_label(OutPort(outlet as u32))))
            .collect();
        if free.is_empty() { Ok(()) } else { Err(WiringError::NeitherReturnedNorConnected { ports: free }) }
    }

    // ---- for the part that it is sealed in ----

    pub(super) fn base_of(&self, outlet: OutPort) -> i32 {
        self.outlets[outlet.0 as usize].base
    }

    pub(super) fn is_wired_outlet(&self, outlet: OutPort) -> bool {
        self.outlets[outlet.0 as usize].wired
    }

    /// `relative_slot` is relative to the operator that has the outlet; the owner sheds what it needed for it.
    pub(super) fn assign(&mut self, outlet: OutPort, relative_slot: i32) {
        let outlet = &mut self.outlets[outlet.0 as usize];
        outlet.wired = true;
        self.unwired_outlets -= 1;
        self.parts[outlet.owner as usize].assign(outlet.position as usize, relative_slot);
    }

    pub(super) fn outlet_label(&self, outlet: OutPort) -> String {
        let outlet = &self.outlets[outlet.0 as usize];
        let owner = &self.parts[outlet.owner as usize];
        // An owner that is complete has no outlets any more: what is left is a name in its traversal.
        let label = owner.outlet_label(outlet.position as usize);
        if label.is_empty() { format!("outlet {} of part {}", outlet.position, outlet.owner) } else { label }
    }

    pub(super) fn slot_label(&self, slot: i32) -> String {
        let mut offset = 0;
        for part in &self.parts {
            if slot < offset + part.in_slots() {
                return part.slot_label(slot - offset);
            }
            offset += part.in_slots();
        }
        String::new()
    }

    /// Puts the traversal together, from the end so that no pair nests to the left.
    fn assemble(&self) -> Traversal {
        self.steps.iter().rev().fold(self.final_steps.clone(), |rest, step| {
            let step = match step {
                BuildStep::Part(key) => self.parts[*key as usize].clone().traversal(),
                BuildStep::Append(traversal) => traversal.clone(),
            };
            step.concat(rest)
        })
    }
}

/// A [`CompositeBuilder`] as a part with a shape.
#[derive(Clone)]
pub struct SealedComposite {
    pub(super) graph: CompositeBuilder,
    /// The offset of each inlet of the shape.
    pub(super) inlets: Vec<i32>,
    pub(super) outlets: Vec<OutPort>,
}

impl SealedComposite {
    /// Without the builders, if no outlet is left to wire.
    pub(super) fn complete(&self) -> Option<CompletedBuilder> {
        (self.graph.unwired_outlets == 0).then(|| CompletedBuilder {
            traversal: self.graph.assemble(),
            in_slots: self.graph.in_slots,
            inlets: self.inlets.clone().into(),
            level: self.graph.level.clone(),
            extent: self.graph.extent,
        })
    }
}
