//! The bench: stages and wires are collected, then built into an island in the order in which they were added.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::event::{EventLog, ProbeEvent};
use super::probe::{Downstream, DownstreamProbe, Upstream, UpstreamProbe};
use crate::base::Nanos;
use crate::stream::attributes::Attributes;
use crate::stream::interpreter::builder::{ConnectionIndex, End, IslandBuilder, SizeHint};
use crate::stream::interpreter::{Context, Island, RunState, WiringError};
use crate::stream::stage::{GraphStage, Logic, Setup, Shape, SinkShape, SourceShape};

/// Events after an action if no limit is set: enough for a chain of a million stages, and an end for a graph that turns
/// in circles.
pub const EVENTS_MAX: u32 = 1 << 24;

/// A stage of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageHandle(usize);

/// An inlet of a stage of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InletOf(StageHandle, usize);

/// An outlet of a stage of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutletOf(StageHandle, usize);

impl StageHandle {
    /// Its inlet at this position.
    #[must_use]
    pub fn inlet(self, position: usize) -> InletOf {
        InletOf(self, position)
    }

    /// Its outlet at this position.
    #[must_use]
    pub fn outlet(self, position: usize) -> OutletOf {
        OutletOf(self, position)
    }
}

type Plan = Box<dyn FnOnce(&mut IslandBuilder, Ends<'_>, &Attributes) -> Result<usize, WiringError>>;

struct Ends<'a> {
    inlets: &'a [End],
    outlets: &'a [End],
}

struct Planned {
    plan: Plan,
    attributes: Attributes,
    /// The wire of each inlet, then of each outlet.
    wires: Vec<Option<usize>>,
    inlets: usize,
}

/// An island that is put together by hand, for tests. See the [module](super).
pub struct InterpreterBench {
    planned: Vec<Planned>,
    wires: usize,
    attributes: Attributes,
    stage_attributes: Attributes,
    island: Option<Island>,
    log: EventLog,
    now: Nanos,
    event_limit: u32,
}

impl Default for InterpreterBench {
    fn default() -> Self {
        InterpreterBench::new()
    }
}

impl InterpreterBench {
    /// A bench without stages.
    #[must_use]
    pub fn new() -> InterpreterBench {
        InterpreterBench::with_attributes(Attributes::none())
    }

    /// A bench whose island has these attributes, for example [`TransparentPull`] or [`Fuzzing`].
    ///
    /// [`TransparentPull`]: crate::stream::attributes::TransparentPull
    /// [`Fuzzing`]: crate::stream::attributes::Fuzzing
    #[must_use]
    pub fn with_attributes(attributes: Attributes) -> InterpreterBench {
        InterpreterBench {
            planned: Vec::new(),
            wires: 0,
            stage_attributes: attributes.clone(),
            attributes,
            island: None,
            log: EventLog::default(),
            now: Nanos::ZERO,
            event_limit: EVENTS_MAX,
        }
    }

    // ---- putting it together ----

    /// Stages that are added from now on have these attributes on top of those of the island.
    pub fn set_stage_attributes(&mut self, attributes: &Attributes) {
        self.stage_attributes = self.attributes.and(attributes);
    }

    /// Adds a source that the test drives.
    pub fn upstream<T: 'static>(&mut self, name: &'static str) -> UpstreamProbe<T> {
        let port = Rc::new(OnceCell::new());
        let (kept, log) = (Rc::clone(&port), Rc::clone(&self.log));
        let stage = self.stage(name, SourceShape::<T>::new(), move |outlet, _| {
            let _ = kept.set(outlet.duplicate());
            Upstream { name, log }
        });
        UpstreamProbe { stage, port }
    }

    /// Adds a sink that the test drives. It takes each element that comes.
    pub fn downstream<T: fmt::Debug + 'static>(&mut self, name: &'static str) -> DownstreamProbe<T> {
        self.add_downstream(name, true)
    }

    /// Adds a sink that the test drives and that leaves elements in its inlet, for
    /// [`DownstreamProbe::grab`].
    pub fn leaving_downstream<T: fmt::Debug + 'static>(&mut self, name: &'static str) -> DownstreamProbe<T> {
        self.add_downstream(name, false)
    }

    fn add_downstream<T: fmt::Debug + 'static>(&mut self, name: &'static str, takes: bool) -> DownstreamProbe<T> {
        let port = Rc::new(OnceCell::new());
        let received = Rc::new(RefCell::new(Vec::new()));
        let (kept, log) = (Rc::clone(&port), Rc::clone(&self.log));
        let target = takes.then(|| Rc::clone(&received));
        let stage = self.stage(name, SinkShape::<T>::new(), move |inlet, _| {
            let _ = kept.set(inlet.duplicate());
            Downstream { name, log, inlet, received: target }
        });
        DownstreamProbe { stage, port, received }
    }

    /// Adds a stage. What `create` returns starts, and is stopped, with the island.
    pub fn stage<S: Shape, L: Logic>(
        &mut self,
        name: &'static str,
        shape: S,
        create: impl FnOnce(S::Ports, &Setup<'_>) -> L + 'static,
    ) -> StageHandle {
        let (inlets, outlets) = (shape.inlets(), shape.outlets());
        let plan = Box::new(move |builder: &mut IslandBuilder, ends: Ends<'_>, attributes: &Attributes| {
            let stage = builder.next_stage();
            let inbox = std::sync::Arc::clone(builder.inbox());
            let mut wiring = builder.begin(name, ends.inlets, ends.outlets);
            let ports = shape.connect(&mut wiring);
            let wired = wiring.finish()?;
            let first_port = wired.first_port();
            let logic = create(ports, &Setup { attributes, inbox: &inbox, stage });
            builder.add(logic, wired, attributes)?;
            Ok(first_port)
        });
        let attributes = self.stage_attributes.clone();
        self.planned.push(Planned { plan, attributes, wires: vec![None; inlets + outlets], inlets });
        StageHandle(self.planned.len() - 1)
    }

    /// Adds a stage of this blueprint. Returns its materialized value, too.
    pub fn add<G: GraphStage>(&mut self, blueprint: &G) -> (StageHandle, G::Mat) {
        let (seed, value) = blueprint.prepare(&self.stage_attributes);
        let stage = self.stage(blueprint.name(), blueprint.shape(), move |ports, setup| G::create(seed, ports, setup));
        (stage, value)
    }

    /// Connects an outlet with an inlet.
    ///
    /// # Panics
    /// If the bench was started, or the stage has no such port.
    pub fn connect(&mut self, outlet: OutletOf, inlet: InletOf) {
        let wire = Some(self.wires);
        self.wires += 1;
        let from = &mut self.planned[outlet.0.0];
        let at = from.inlets + outlet.1;
        from.wires[at] = wire;
        let to = &mut self.planned[inlet.0.0];
        assert!(inlet.1 < to.inlets, "the stage has no inlet {}", inlet.1);
        to.wires[inlet.1] = wire;
    }

    /// Connects each of these stages with the next, outlet 0 with inlet 0.
    ///
    /// # Panics
    /// As [`InterpreterBench::connect`].
    pub fn chain(&mut self, stages: impl IntoIterator<Item = StageHandle>) {
        let mut stages = stages.into_iter();
        let Some(mut last) = stages.next() else { return };
        for next in stages {
            self.connect(last.outlet(0), next.inlet(0));
            last = next;
        }
    }

    /// Builds the island, starts its stages and runs it.
    ///
    /// # Errors
    /// If a port is not connected, or the element types of two ends differ.
    pub fn start(&mut self) -> Result<(), WiringError> {
        let planned = std::mem::take(&mut self.planned);
        let hint = SizeHint { bytes: planned.len() * 192, stages: planned.len(), connections: self.wires };
        let mut builder = IslandBuilder::new(hint, &self.attributes);
        let mut made: Vec<Option<ConnectionIndex>> = vec![None; self.wires];
        let mut ends = Vec::new();
        for Planned { plan, attributes, wires, inlets } in planned {
            ends.clear();
            ends.extend(wires.iter().map(|wire| wire.and_then(|wire| made[wire]).map_or(End::New, End::Joins)));
            let (inlet_ends, outlet_ends) = ends.split_at(inlets);
            let first_port = plan(&mut builder, Ends { inlets: inlet_ends, outlets: outlet_ends }, &attributes)?;
            for (port, wire) in wires.iter().enumerate() {
                if let Some(wire) = wire {
                    made[*wire] = Some(builder.port_connection(first_port, port));
                }
            }
        }
        let mut island = builder.build()?;
        island.start(self.now);
        island.execute(self.event_limit);
        self.island = Some(island);
        Ok(())
    }

    // ---- running it ----

    /// Runs so many events of the queue after each action of the test. 0: it runs only by [`InterpreterBench::step`].
    pub fn set_event_limit(&mut self, events: u32) {
        self.event_limit = events;
    }

    /// Processes up to so many events of the queue.
    pub fn step(&mut self, events: u32) -> RunState {
        self.island().execute(events)
    }

    /// Runs callbacks and timers that are due, and events to the limit.
    pub fn run(&mut self) -> RunState {
        let (now, limit) = (self.now, self.event_limit);
        self.island().run(now, limit)
    }

    /// Lets so much time pass, and runs.
    pub fn advance(&mut self, by: Duration) -> RunState {
        self.now = self.now + by;
        self.run()
    }

    /// The time of the bench, which begins at zero.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// What the probes recorded since this was last called, in order.
    pub fn last_events(&mut self) -> Vec<ProbeEvent> {
        std::mem::take(&mut self.log.borrow_mut())
    }

    /// As [`InterpreterBench::last_events`], as text, sorted and joined by commas: easy to compare where order does not
    /// matter.
    pub fn events_text(&mut self) -> String {
        let mut events: Vec<String> = self.last_events().iter().map(ToString::to_string).collect();
        events.sort();
        events.join(", ")
    }

    /// Whether events wait.
    #[must_use]
    pub fn is_suspended(&mut self) -> bool {
        self.island().state() == RunState::Suspended
    }

    /// Whether all stages have stopped.
    #[must_use]
    pub fn is_completed(&mut self) -> bool {
        self.island().is_completed()
    }

    /// The island.
    ///
    /// # Panics
    /// Before [`InterpreterBench::start`].
    pub fn island(&mut self) -> &mut Island {
        self.island.as_mut().unwrap_or_else(|| panic!("start the bench first"))
    }

    /// Stops what still runs and drops the island. Probes must not act after this.
    pub fn close(&mut self) {
        self.island = None;
    }

    pub(super) fn context(&mut self) -> &mut Context {
        self.island().context()
    }

    /// Does something in the name of a stage, then runs.
    pub(super) fn act<R>(&mut self, stage: StageHandle, action: impl FnOnce(&mut Context) -> R) -> R {
        let limit = self.event_limit;
        let island = self.island();
        let result = island.context().act_as(stage.0 as u32, action);
        island.execute(limit);
        result
    }
}
