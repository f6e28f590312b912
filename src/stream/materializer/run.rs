//! The loop of the materializer.

use super::narrator::narrate;
use super::phase::{InletWire, IslandSetup, LocalSlot, OpenWire, OutletWire, PhaseIsland, Phases};
use super::tracking::{CompletedSegment, PhaseIndex, Place, Tracking};
use super::{MaterializationError, Narrator};
use crate::stream::attributes::Attributes;
use crate::stream::inline::{InlineList, InlineStack};
use crate::stream::module::{MaterializedValue, not_used};
use crate::stream::traversal::builder::IncompleteGraph;
use crate::stream::traversal::layout::Layout;
use crate::stream::traversal::{Blueprint, IslandTag, Placed, Step, Traversal, ValueUse, print_traversal};

/// Ports of one operator that need no allocation.
const PORTS_INLINE: usize = 4;
/// Values and attributes on their stacks that need no allocation.
const STACK_INLINE: usize = 4;

const EMPTY_VALUES: MaterializationError =
    MaterializationError::Malformed { reason: "a command takes a materialized value where there is none" };

struct Run<'r, 'n> {
    blueprint: &'r Blueprint,
    phases: &'r Phases<'r>,
    root: &'r mut dyn PhaseIsland,
    /// In the order of entering; the outermost is `root`, so the phase with index `n` is at `n - 1`.
    islands: Vec<Box<dyn PhaseIsland>>,
    tracking: Tracking,
    values: InlineStack<MaterializedValue, STACK_INLINE>,
    attributes: InlineStack<Attributes, STACK_INLINE>,
    inlets: InlineList<InletWire, PORTS_INLINE>,
    outlets: InlineList<OutletWire, PORTS_INLINE>,
    /// Wires between islands of the operator that is being materialized.
    crossings: Vec<Crossing>,
    /// Wires whose inlet is known.
    resolved: u32,
    narrator: Option<&'n mut dyn Narrator>,
}

/// A wire from one island to another.
struct Crossing {
    open: OpenWire,
    from: PhaseIndex,
    to: PhaseIndex,
    slot: LocalSlot,
}

pub(super) fn run(
    blueprint: &Blueprint,
    root: &mut dyn PhaseIsland,
    phases: &Phases<'_>,
    defaults: &Attributes,
    narrator: Option<&mut dyn Narrator>,
) -> Result<MaterializedValue, MaterializationError> {
    let unused_inlet = InletWire { slot: LocalSlot(0), from: None };
    let mut run = Run {
        blueprint,
        phases,
        root,
        islands: Vec::new(),
        tracking: Tracking::new(),
        values: InlineStack::new(),
        attributes: InlineStack::new(),
        inlets: InlineList::new(unused_inlet),
        outlets: InlineList::new(OutletWire::Slot(LocalSlot(0))),
        crossings: Vec::new(),
        resolved: 0,
        narrator,
    };
    run.attributes.push(defaults.clone());
    narrate!(run.narrator, "--- Materializing layout:");
    if let Some(narrator) = &mut run.narrator {
        print_traversal(blueprint.traversal()).lines().for_each(|line| narrator.line(format_args!("{line}")));
    }
    if !blueprint.is_built() {
        check_wiring(blueprint.traversal())?;
    }
    narrate!(run.narrator, "--- Start materialization");
    for step in blueprint.traversal().walk() {
        run.step(step)?;
    }
    run.check_end()?;
    let value = run.values.pop().ok_or(EMPTY_VALUES)?;
    run.start()?;
    narrate!(run.narrator, "--- Finished materialization");
    Ok(value)
}

impl Run<'_, '_> {
    #[inline]
    fn step(&mut self, step: Step<'_>) -> Result<(), MaterializationError> {
        match step {
            Step::Materialize(placed) => self.materialize(placed)?,
            Step::PushNotUsed => {
                self.values.push(not_used());
                narrate!(self.narrator, "PUSH: NotUsed => stack");
            }
            Step::Pop => {
                self.pop_value()?;
                narrate!(self.narrator, "POP: stack");
            }
            Step::Transform(function) => {
                let value = self.pop_value()?;
                self.values.push(function.call(value)?);
                narrate!(self.narrator, "TRFM: stack");
            }
            Step::Compose(function, reverse) => {
                let second = self.pop_value()?;
                let first = self.pop_value()?;
                let value = if reverse { function.call(second, first) } else { function.call(first, second) };
                self.values.push(value?);
                narrate!(self.narrator, "COMP: stack{}", if reverse { " (reversed)" } else { "" });
            }
            Step::PushAttributes(attributes) => {
                let effective = top(&self.attributes)?.and(attributes);
                self.attributes.push(effective);
                narrate!(self.narrator, "ATTR PUSH: {attributes:?}");
            }
            Step::PopAttributes => {
                self.attributes.pop();
                top(&self.attributes)?;
                narrate!(self.narrator, "ATTR POP");
            }
            Step::EnterIsland(tag) => self.enter_island(tag)?,
            Step::ExitIsland => self.exit_island()?,
        }
        Ok(())
    }

    #[inline]
    fn pop_value(&mut self) -> Result<MaterializedValue, MaterializationError> {
        self.values.pop().ok_or(EMPTY_VALUES)
    }

    #[inline]
    fn materialize(&mut self, placed: Placed<'_>) -> Result<(), MaterializationError> {
        let module = placed.operator().module();
        narrate!(self.narrator, "materializing module: {}", module.name());
        let base = self.tracking.current;
        self.resolve_inlets(&placed);
        self.resolve_outlets(&placed, base)?;
        let attributes = top(&self.attributes)?;
        let (inlets, outlets) = (self.inlets.as_slice(), self.outlets.as_slice());
        let phase = phase_of(self.root, &mut self.islands, self.tracking.phase);
        let value = phase.materialize_atomic(module, inlets, outlets, attributes)?;
        if placed.value_use() == ValueUse::Keep {
            self.values.push(value);
            narrate!(self.narrator, "PUSH: value of {} => stack", module.name());
        }
        if self.crossings.is_empty() { Ok(()) } else { self.cross() }
    }

    #[inline]
    fn resolve_inlets(&mut self, placed: &Placed<'_>) {
        self.inlets.clear();
        for inlet in 0..placed.operator().inlets() {
            let global = self.tracking.current;
            let (slot, arrived) = self.tracking.visit_inlet();
            let mut from = None;
            if let Some(wire) = arrived {
                self.resolved += 1;
                let (open, to) = (wire.open, self.tracking.phase);
                if wire.from_phase == to {
                    from = Some(open);
                } else {
                    self.crossings.push(Crossing { open, from: wire.from_phase, to, slot });
                }
            }
            self.inlets.push(InletWire { slot, from });
            if self.narrator.is_some() {
                self.narrate_inlet(placed, inlet, global, slot, arrived.is_some(), from.is_some());
            }
        }
    }

    #[inline]
    fn resolve_outlets(&mut self, placed: &Placed<'_>, base: u32) -> Result<(), MaterializationError> {
        self.outlets.clear();
        for outlet in 0..placed.operator().outlets() {
            let global = i64::from(base) + i64::from(placed.relative_slot(outlet));
            let Ok(global) = u32::try_from(global) else {
                return Err(IncompleteGraph { unconnected: vec![outlet_label(placed, outlet)] }.into());
            };
            let visited = global < self.tracking.current;
            let place = visited.then(|| self.tracking.find(global));
            let wire = match place {
                Some(Place::InSegment(slot) | Place::AcrossSegments(slot)) => OutletWire::Slot(slot),
                Some(Place::AcrossIslands(to, slot)) => {
                    let open = self.tracking.open();
                    self.crossings.push(Crossing { open, from: self.tracking.phase, to, slot });
                    OutletWire::Open(open)
                }
                None => OutletWire::Open(self.tracking.keep_forward(global)),
            };
            self.resolved += u32::from(visited);
            self.outlets.push(wire);
            if self.narrator.is_some() {
                self.narrate_outlet(placed, outlet, global, place);
            }
        }
        Ok(())
    }

    /// Brings the two ends of wires between islands together.
    fn cross(&mut self) -> Result<(), MaterializationError> {
        for crossing in self.crossings.drain(..) {
            let publisher = phase_of(self.root, &mut self.islands, crossing.from).create_publisher(crossing.open)?;
            phase_of(self.root, &mut self.islands, crossing.to).take_publisher(crossing.slot, publisher)?;
        }
        Ok(())
    }

    fn enter_island(&mut self, tag: IslandTag) -> Result<(), MaterializationError> {
        let index = self.islands.len() + 1;
        let attributes = top(&self.attributes)?;
        let name = format!("{}-{index}", attributes.name_or("island"));
        let size = self.blueprint.island_size(index);
        let phase = self.phases.create(IslandSetup { tag, attributes, name: &name, size })?;
        self.islands.push(phase);
        let completed = self.tracking.enter(index as PhaseIndex);
        self.narrate_segment(&completed);
        let offset = self.tracking.current;
        narrate!(self.narrator, "Entering island starting at offset = {offset} phase = {name} ({tag})");
        Ok(())
    }

    fn exit_island(&mut self) -> Result<(), MaterializationError> {
        let completed = self.tracking.exit();
        let completed =
            completed.ok_or(MaterializationError::Malformed { reason: "an island is left that was not entered" })?;
        self.narrate_segment(&completed);
        let phase = self.tracking.phase;
        narrate!(self.narrator, "Exited to island {phase} at offset = {}", self.tracking.current);
        Ok(())
    }

    /// After the last command: whether every stack is as it was and every port is wired.
    fn check_end(&mut self) -> Result<(), MaterializationError> {
        if self.tracking.is_nested() {
            return Err(MaterializationError::Malformed { reason: "an island is entered and not left" });
        }
        let inlets = self.tracking.current;
        if self.tracking.nearest_forward().is_none() && self.resolved == inlets {
            return Ok(());
        }
        check_wiring(self.blueprint.traversal())?;
        Err(MaterializationError::Malformed { reason: "its wires changed while it was walked" })
    }

    fn start(&mut self) -> Result<(), MaterializationError> {
        self.root.on_island_ready()?;
        self.islands.iter_mut().try_for_each(|island| island.on_island_ready())
    }

    // ---- narration ----

    fn narrate_segment(&mut self, completed: &CompletedSegment) {
        let CompletedSegment { from, to, phase } = completed;
        if from == to {
            narrate!(self.narrator, "Skipped zero length segment");
        } else {
            narrate!(self.narrator, "Completed segment from {from} to {to} of island {phase}");
        }
    }

    #[cold]
    fn narrate_inlet(
        &mut self,
        placed: &Placed<'_>,
        inlet: usize,
        global: u32,
        slot: LocalSlot,
        forward: bool,
        same: bool,
    ) {
        let name = placed.operator().module().inlet_name(inlet);
        narrate!(self.narrator, "  wiring port {name} inOffs absolute = {global} local = {}", slot.0);
        if forward && same {
            narrate!(self.narrator, "    in-island forward wiring resolved");
        } else if forward {
            narrate!(self.narrator, "    cross island forward wiring resolved");
        }
    }

    #[cold]
    fn narrate_outlet(&mut self, placed: &Placed<'_>, outlet: usize, global: u32, place: Option<Place>) {
        let name = placed.operator().module().outlet_name(outlet);
        narrate!(self.narrator, "  wiring {name} to absolute = {global}");
        match place {
            None => narrate!(self.narrator, "    wiring is forward, recording"),
            Some(Place::InSegment(slot)) => {
                narrate!(self.narrator, "    backward wiring, in-segment to local = {}", slot.0);
            }
            Some(Place::AcrossSegments(slot)) => {
                narrate!(self.narrator, "    backward wiring, cross-segment, in-island to local = {}", slot.0);
            }
            Some(Place::AcrossIslands(island, slot)) => {
                narrate!(
                    self.narrator,
                    "    backward wiring, cross-island to local slot {} in target island {island}",
                    slot.0
                );
            }
        }
    }
}

#[inline]
fn top(attributes: &InlineStack<Attributes, STACK_INLINE>) -> Result<&Attributes, MaterializationError> {
    attributes.top().ok_or(MaterializationError::Malformed { reason: "attributes are popped that were not pushed" })
}

#[inline]
fn phase_of<'p>(
    root: &'p mut dyn PhaseIsland,
    islands: &'p mut [Box<dyn PhaseIsland>],
    index: PhaseIndex,
) -> &'p mut dyn PhaseIsland {
    match index.checked_sub(1) {
        None => root,
        Some(island) => &mut *islands[island as usize],
    }
}

fn outlet_label(placed: &Placed<'_>, outlet: usize) -> String {
    let module = placed.operator().module();
    format!("{}.{}", module.name(), module.outlet_name(outlet))
}

/// Whether each outlet leads to an inlet that no other leads to, and each inlet has one. Names the ports otherwise.
#[cold]
fn check_wiring(traversal: &Traversal) -> Result<(), MaterializationError> {
    let layout = Layout::of(traversal);
    let inlets = layout.modules.iter().map(|module| module.operator.inlets()).sum();
    let mut wired = vec![false; inlets];
    let mut unconnected = Vec::new();
    for module in &layout.modules {
        for (outlet, &slot) in module.outlets.iter().enumerate() {
            match usize::try_from(slot).ok().and_then(|slot| wired.get_mut(slot)) {
                Some(true) => {
                    return Err(MaterializationError::ConnectedTwice {
                        port: layout.inlet_label(slot).unwrap_or_default(),
                    });
                }
                Some(free) => *free = true,
                None => {
                    let module = module.operator.module();
                    unconnected.push(format!("{}.{}", module.name(), module.outlet_name(outlet)));
                }
            }
        }
    }
    let inlets = (0..wired.len()).filter(|&slot| !wired[slot]);
    unconnected.extend(inlets.filter_map(|slot| layout.inlet_label(slot as i64)));
    if unconnected.is_empty() { Ok(()) } else { Err(IncompleteGraph { unconnected }.into()) }
}
