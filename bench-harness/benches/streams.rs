//! What an element costs in a running island: one hop through an element-wise stage, one through an ordinary stage, and
//! a diamond. A hop is a chain of 50 less a chain of 1, by 49. `cargo bench --bench streams`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};
use atoll::stream::stage::{FanOutShape, FlowShape, Logic, SinkShape, SourceShape, ZipPorts, ZipShape};
use atoll::stream::testkit::{InterpreterBench, StageHandle};
use criterion::{Criterion, criterion_group, criterion_main};

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

/// `element * 3 ^ key`. The number makes it one of several types, so that no branch target is shared by all stages.
struct Operator<const TYPE: usize>(u64);

impl<const TYPE: usize> Operator<TYPE> {
    #[inline(always)]
    fn apply(&self, element: u64) -> u64 {
        element.wrapping_mul(3) ^ self.0
    }
}

impl<const TYPE: usize> Elementwise for Operator<TYPE> {
    type In = u64;
    type Out = u64;

    #[inline(always)]
    fn step(&mut self, element: u64) -> Step<u64> {
        Step::Emit(self.apply(element))
    }
}

/// The same operator as an ordinary stage.
struct Ordinary<const TYPE: usize> {
    inlet: Inlet<u64>,
    outlet: Outlet<u64>,
    operator: Operator<TYPE>,
}

impl<const TYPE: usize> Logic for Ordinary<TYPE> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let element = self.operator.apply(element);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

fn operator<const TYPE: usize>(bench: &mut InterpreterBench, elementwise: bool) -> StageHandle {
    let operator = Operator::<TYPE>(black_box(TYPE as u64 + 1));
    let shape = FlowShape::<u64, u64>::new();
    match elementwise {
        true => bench.stage("operator", shape, move |ports, _| ElementwiseStage::new(ports, operator)),
        false => bench.stage("operator", shape, move |ports, _| Ordinary {
            inlet: ports.inlet,
            outlet: ports.outlet,
            operator,
        }),
    }
}

fn nth_operator(bench: &mut InterpreterBench, at: usize, elementwise: bool) -> StageHandle {
    match at % 8 {
        0 => operator::<0>(bench, elementwise),
        1 => operator::<1>(bench, elementwise),
        2 => operator::<2>(bench, elementwise),
        3 => operator::<3>(bench, elementwise),
        4 => operator::<4>(bench, elementwise),
        5 => operator::<5>(bench, elementwise),
        6 => operator::<6>(bench, elementwise),
        _ => operator::<7>(bench, elementwise),
    }
}

fn ends(bench: &mut InterpreterBench, elements: u64) -> (StageHandle, StageHandle) {
    let source = bench.stage("count", SourceShape::new(), move |outlet, _| Count { outlet, left: elements });
    let sink = bench.stage("add", SinkShape::new(), |inlet, _| Add { inlet, sum: 0 });
    (source, sink)
}

/// Starts the island without running it, then runs it to its end.
fn time(mut bench: InterpreterBench) -> Duration {
    bench.set_event_limit(0);
    bench.start().expect("the stages are wired");
    let island = bench.island();
    let start = Instant::now();
    while !island.is_completed() {
        island.execute(u32::MAX);
    }
    start.elapsed()
}

fn chain(elements: u64, length: usize, elementwise: bool) -> Duration {
    let mut bench = InterpreterBench::new();
    let (source, sink) = ends(&mut bench, elements);
    let operators: Vec<_> = (0..length).map(|at| nth_operator(&mut bench, at, elementwise)).collect();
    bench.chain(std::iter::once(source).chain(operators).chain([sink]));
    time(bench)
}

struct Broadcast {
    inlet: Inlet<u64>,
    outlets: [Outlet<u64>; 2],
    wanted: u32,
}

impl Logic for Broadcast {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.wanted = 0;
        for outlet in &self.outlets {
            outlet.push(context, element);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.wanted += 1;
        if self.wanted == 2 {
            self.inlet.pull(context);
        }
    }
}

struct Zip {
    ports: ZipPorts<u64, u64, u64>,
    come: u32,
}

impl Logic for Zip {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.come += 1;
        if self.come == 2 {
            self.come = 0;
            let sum = self.ports.first.grab(context).wrapping_add(self.ports.second.grab(context));
            self.ports.outlet.push(context, sum);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.ports.first.pull(context);
        self.ports.second.pull(context);
    }
}

fn diamond(elements: u64) -> Duration {
    let mut bench = InterpreterBench::new();
    let (source, sink) = ends(&mut bench, elements);
    let broadcast = bench.stage("broadcast", FanOutShape::<u64, u64>::new(2), |(inlet, outlets), _| Broadcast {
        inlet,
        outlets: outlets.try_into().unwrap_or_else(|_| unreachable!("the shape has two")),
        wanted: 0,
    });
    let zip = bench.stage("zip", ZipShape::<u64, u64, u64>::new(), |ports, _| Zip { ports, come: 0 });
    let maps = [nth_operator(&mut bench, 0, true), nth_operator(&mut bench, 1, true)];
    bench.connect(source.outlet(0), broadcast.inlet(0));
    for (at, map) in maps.into_iter().enumerate() {
        bench.connect(broadcast.outlet(at), map.inlet(0));
        bench.connect(map.outlet(0), zip.inlet(at));
    }
    bench.connect(zip.outlet(0), sink.inlet(0));
    time(bench)
}

/// The cost of 49 more stages, by 49.
fn hop(elements: u64, elementwise: bool) -> Duration {
    let long = chain(elements, 50, elementwise);
    let short = chain(elements, 1, elementwise);
    long.saturating_sub(short) / 49
}

fn streams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("streams");
    group.bench_function("hop-elementwise", |bencher| bencher.iter_custom(|elements| hop(elements, true)));
    group.bench_function("hop-general", |bencher| bencher.iter_custom(|elements| hop(elements, false)));
    group.bench_function("source-to-sink", |bencher| bencher.iter_custom(|elements| chain(elements, 0, true)));
    group.bench_function("diamond", |bencher| bencher.iter_custom(diamond));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(300));
    targets = streams
}
criterion_main!(benches);
