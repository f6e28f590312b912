//! Two operators of one's own: a function of single elements, and a stage that handles its events by itself.
//!
//! `cargo run --example own_stage`

use atoll::runtime::StreamRuntime;
use atoll::stream::Attributes;
use atoll::stream::dsl::Fusable;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::operators::prelude::*;
use atoll::stream::stage::elementwise::{Elementwise, Step};
use atoll::stream::stage::{FlowPorts, FlowShape, GraphStage, Logic, Setup};

// ---- 1: a function of single elements. Neighbours of its kind become one stage with it. ----

/// The difference to the element before.
#[derive(Clone, Default)]
struct Differences {
    before: Option<i64>,
}

impl Elementwise for Differences {
    type In = i64;
    type Out = i64;

    fn step(&mut self, element: i64) -> Step<i64> {
        match self.before.replace(element) {
            Some(before) => Step::Emit(element - before),
            None => Step::Skip, // nothing for downstream: the next element is asked for
        }
    }

    // What the supervision directive `Restart` asks for.
    fn restart(&mut self) {
        self.before = None;
    }
}

impl Fusable for Differences {
    type In = i64;
    type Out = i64;
    type Function = Self;

    // Each run of the graph gets a new one.
    fn create(&self) -> Self {
        Differences::default()
    }
}

// ---- 2: a stage that handles its events by itself. ----

/// Gives each element several times.
struct Repeat {
    times: u32,
}

/// The running stage: its ports and its state.
struct RepeatLogic {
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
    times: u32,
    /// The element that is being given, and how often it is still to be given.
    current: Option<(i64, u32)>,
}

impl GraphStage for Repeat {
    type Shape = FlowShape<i64, i64>;
    type Seed = u32; // what goes to the core that runs the stage
    type Mat = (); // what `run` returns of it
    type Logic = RepeatLogic;

    fn name(&self) -> &'static str {
        "repeat"
    }

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (u32, ()) {
        (self.times, ())
    }

    fn create(times: u32, ports: FlowPorts<i64, i64>, _: &Setup<'_>) -> RepeatLogic {
        RepeatLogic { inlet: ports.inlet, outlet: ports.outlet, times, current: None }
    }
}

impl RepeatLogic {
    fn give(&mut self, context: &mut Context) {
        match self.current.take() {
            Some((element, left)) if left > 0 => {
                self.outlet.push(context, element);
                self.current = Some((element, left - 1));
            }
            _ => self.inlet.try_pull(context),
        }
        let is_done = self.current.is_none_or(|(_, left)| left == 0);
        if is_done && self.inlet.is_closed(context) {
            context.complete_stage();
        }
    }
}

impl Logic for RepeatLogic {
    // An element has arrived. It was asked for in `give`, so downstream waits for one.
    fn on_push(&mut self, context: &mut Context, _inlet: usize) {
        let element = self.inlet.grab(context);
        self.current = Some((element, self.times));
        self.give(context);
    }

    // Downstream asks for one.
    fn on_pull(&mut self, context: &mut Context, _outlet: usize) {
        self.give(context);
    }

    // Upstream has ended; what is left of the last element is given first. (By default a stage completes here.)
    fn on_upstream_finish(&mut self, context: &mut Context, _inlet: usize) {
        if self.current.is_none_or(|(_, left)| left == 0) {
            context.complete_stage();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = Source::from_iterator(|| [1_i64, 4, 9, 16])
        .fuse("differences", Differences::default())
        .map(|difference| difference * 10)
        .via_stage(Repeat { times: 2 })
        .to_right(Sink::seq());

    let runtime = StreamRuntime::single();
    let result = runtime.run(&graph)?;
    let given = runtime.block_on(result)?;
    println!("{given:?}");
    assert_eq!(given, [30, 30, 50, 50, 70, 70]);
    Ok(())
}
