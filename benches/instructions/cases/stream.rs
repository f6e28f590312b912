//! The stream engine: hops, rings between islands, and what it costs to start a graph.

use std::hint::black_box;

use atoll::base::Nanos;
use atoll::stream::boundary::ring;
use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::host::{HostInbox, StreamHost};
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::operators::ElementwiseOps;
use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};
use atoll::stream::stage::{FlowShape, Logic, SinkShape, SourceShape};
use atoll::stream::testkit::InterpreterBench;

use crate::meter::Meter;

const ELEMENTS: u64 = 500;
/// Operators between the source and the sink.
const LENGTH: u64 = 49;

/// Counts down from so many, then completes.
struct Count {
    outlet: Outlet<u64>,
    left: u64,
}

impl Logic for Count {
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        match self.left {
            0 => context.complete_stage(),
            left => {
                self.left = left - 1;
                self.outlet.push(context, left);
            }
        }
    }
}

struct Add {
    inlet: Inlet<u64>,
    sum: u64,
}

impl Logic for Add {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.sum = self.sum.wrapping_add(self.inlet.grab(context));
        self.inlet.pull(context);
    }

    fn post_stop(&mut self, _: &mut Context) {
        black_box(self.sum);
    }
}

struct Triple;

impl Elementwise for Triple {
    type In = u64;
    type Out = u64;

    fn step(&mut self, element: u64) -> Step<u64> {
        Step::Emit(element.wrapping_mul(3))
    }
}

/// The same as an ordinary stage.
struct Ordinary {
    inlet: Inlet<u64>,
    outlet: Outlet<u64>,
}

impl Logic for Ordinary {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element.wrapping_mul(3));
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

/// Counts the run of a chain; an operation is one element in one connection.
fn hops(meter: &mut Meter, element_wise: bool) {
    let mut bench = InterpreterBench::new();
    let source = bench.stage("count", SourceShape::new(), |outlet, _| Count { outlet, left: ELEMENTS });
    let sink = bench.stage("add", SinkShape::new(), |inlet, _| Add { inlet, sum: 0 });
    let operators: Vec<_> = (0..LENGTH)
        .map(|_| match element_wise {
            true => bench.stage("triple", FlowShape::new(), |ports, _| ElementwiseStage::new(ports, Triple)),
            false => bench
                .stage("triple", FlowShape::new(), |ports, _| Ordinary { inlet: ports.inlet, outlet: ports.outlet }),
        })
        .collect();
    bench.chain(std::iter::once(source).chain(operators).chain([sink]));
    bench.set_event_limit(0);
    bench.start().expect("the stages are wired");
    let island = bench.island();
    meter.count(ELEMENTS * (LENGTH + 1), || {
        while !island.is_completed() {
            island.execute(u32::MAX);
        }
    });
}

pub fn hop_element_wise(meter: &mut Meter) {
    hops(meter, true);
}

pub fn hop_general(meter: &mut Meter) {
    hops(meter, false);
}

/// One element through the ring between two islands, published and released in batches of 16.
pub fn boundary_ring(meter: &mut Meter) {
    const BATCH: u64 = 16;
    let (mut producer, mut consumer) = ring::ring::<u64>(64);
    let mut batches = |count: u64| {
        for batch in 0..count {
            for element in 0..BATCH {
                producer.write(black_box(batch + element)).expect("there is room");
            }
            producer.publish();
            while let Some(element) = consumer.take() {
                black_box(element);
            }
            consumer.release();
        }
    };
    batches(100);
    meter.count(100 * BATCH, || batches(100));
}

macro_rules! five {
    ($source:expr) => {
        $source
            .map(|x: u64| x + 1)
            .seal()
            .map(|x: u64| x + 2)
            .seal()
            .map(|x: u64| x + 3)
            .seal()
            .map(|x: u64| x + 4)
            .seal()
            .map(|x: u64| x + 5)
            .seal()
    };
}

/// A source, ten operators and a sink: made, started, one element through, ended and dropped; by ten.
pub fn materialize_operator(meter: &mut Meter) {
    const TIMES: u64 = 50;
    const OPERATORS: u64 = 10;
    let graph = five!(five!(Source::from_iterator(|| 0..1_u64))).to_right(Sink::fold(0, |sum: u64, x| sum + x));
    let host = StreamHost::new(HostInbox::new());
    let run = || {
        for _ in 0..TIMES {
            black_box(graph.run_on(&host).expect("the graph is complete"));
            while host.take_events(Nanos::ZERO) {
                host.run_one(Nanos::ZERO);
            }
        }
    };
    run();
    meter.count(TIMES * OPERATORS, run);
    assert_eq!(host.islands(), 0, "all have ended");
}
