//! What a boundary between two islands costs when they run on two cores: elements a second with a source that always
//! has one, and the time of one hop at several rates, beside the bare ring.
//!
//! `cargo bench --bench boundary`. Each side is a thread pinned to a core, which runs its island without sleeping.

use std::hint::{black_box, spin_loop};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use atoll::base::Nanos;
use atoll::stream::Attributes;
use atoll::stream::boundary::{BoundaryType, chain, ring};
use atoll::stream::host::{HostInbox, StreamHost};
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{ErasedStage, GraphStage, Logic, Seed, Setup, SinkShape, SourceShape};

/// Elements of a throughput run.
const ELEMENTS: u64 = 5_000_000;
/// Runs of which the best and the median are shown.
const RUNS: usize = 5;

fn pin(core: usize) {
    // SAFETY: a zeroed set is an empty one; the call reads the set, whose size is given, and keeps nothing.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Nanoseconds since the start of the program, the same on both cores.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}

/// Runs both sides pinned. Gives the time of the second one.
fn both<A: Send, B: Send>(sides: (A, B), up: impl FnOnce(A) + Send, down: impl FnOnce(B) + Send) -> f64 {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            start.wait();
            up(sides.0);
        });
        let down = scope.spawn(|| {
            pin(1);
            start.wait();
            let before = Instant::now();
            down(sides.1);
            before.elapsed().as_nanos() as f64
        });
        down.join().unwrap()
    })
}

/// Until its island ends, without sleeping.
fn run_island(seeds: Vec<Box<dyn Seed>>, clock: Clock) {
    let host = StreamHost::new(HostInbox::new());
    host.spawn(chain(seeds, &Attributes::none()).unwrap()).unwrap();
    while host.islands() > 0 {
        let now = clock.now();
        host.take_events(now);
        host.run_one(now);
    }
}

// ---- throughput ----

struct Count(u64);

struct CountLogic {
    outlet: Outlet<u64>,
    next: u64,
    end: u64,
}

impl Logic for CountLogic {
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.outlet.push(context, self.next);
        self.next += 1;
        if self.next == self.end {
            self.outlet.complete(context);
        }
    }
}

impl GraphStage for Count {
    type Shape = SourceShape<u64>;
    type Seed = u64;
    type Mat = ();
    type Logic = CountLogic;
    fn name(&self) -> &'static str {
        "count"
    }
    fn shape(&self) -> Self::Shape {
        SourceShape::new()
    }
    fn prepare(&self, _: &Attributes) -> (u64, ()) {
        (self.0, ())
    }
    fn create(end: u64, outlet: Outlet<u64>, _: &Setup<'_>) -> CountLogic {
        CountLogic { outlet, next: 0, end }
    }
}

/// Hands each element to a function.
struct Each<F>(F);

struct EachLogic<F> {
    inlet: Inlet<u64>,
    function: F,
}

impl<F: FnMut(u64) + 'static> Logic for EachLogic<F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }
    fn on_push(&mut self, context: &mut Context, _: usize) {
        (self.function)(self.inlet.grab(context));
        self.inlet.pull(context);
    }
}

impl<F: FnMut(u64) + Clone + Send + Sync + 'static> GraphStage for Each<F> {
    type Shape = SinkShape<u64>;
    type Seed = F;
    type Mat = ();
    type Logic = EachLogic<F>;
    fn name(&self) -> &'static str {
        "each"
    }
    fn shape(&self) -> Self::Shape {
        SinkShape::new()
    }
    fn prepare(&self, _: &Attributes) -> (F, ()) {
        (self.0.clone(), ())
    }
    fn create(function: F, inlet: Inlet<u64>, _: &Setup<'_>) -> EachLogic<F> {
        EachLogic { inlet, function }
    }
}

fn seed(stage: &impl ErasedStage) -> Box<dyn Seed> {
    stage.prepare_elsewhere(&Attributes::none()).0
}

fn islands(capacity: usize, clock: Clock) -> f64 {
    let (output, input) = BoundaryType::of::<u64>().make(capacity);
    let up = vec![seed(&Count(ELEMENTS)), output];
    let mut sum = 0_u64;
    let down = vec![input, seed(&Each(move |element| sum = black_box(sum.wrapping_add(element))))];
    both((up, down), |up| run_island(up, clock), |down| run_island(down, clock)) / ELEMENTS as f64
}

fn bare_ring(capacity: usize) -> f64 {
    let produce = |mut producer: ring::Producer<u64>| {
        for mut element in 0..ELEMENTS {
            while let Err(back) = producer.write(element) {
                producer.publish();
                element = back;
                spin_loop();
            }
            if producer.unpublished() >= 16 {
                producer.publish();
            }
        }
        producer.complete();
    };
    let consume = |mut consumer: ring::Consumer<u64>| {
        let mut left = ELEMENTS;
        while left > 0 {
            match consumer.take() {
                Some(element) => {
                    black_box(element);
                    left -= 1;
                }
                None => {
                    consumer.release();
                    spin_loop();
                }
            }
        }
    };
    both(ring::ring::<u64>(capacity), produce, consume) / ELEMENTS as f64
}

fn show(name: &str, mut nanoseconds: Vec<f64>) {
    nanoseconds.sort_by(f64::total_cmp);
    let (best, median) = (nanoseconds[0], nanoseconds[nanoseconds.len() / 2]);
    println!("{name:<44} {:7.1} M elements/s ({best:.1} ns; median {median:.1} ns)", 1e3 / best);
}

// ---- latency ----

/// Gives its number of nanoseconds at a fixed rate, and looks at the clock in between.
struct Ticks {
    clock: Clock,
    every: u64,
    count: u64,
}

struct TicksLogic {
    outlet: Outlet<u64>,
    clock: Clock,
    every: u64,
    left: u64,
    next: Nanos,
}

impl Logic for TicksLogic {
    fn pre_start(&mut self, context: &mut Context) {
        self.next = self.clock.now();
        context.look_again();
    }
    fn on_pull(&mut self, _: &mut Context, _: usize) {}
    fn on_look(&mut self, context: &mut Context) {
        let now = self.clock.now();
        if now >= self.next && self.outlet.is_available(context) {
            self.next.0 += self.every;
            self.left -= 1;
            self.outlet.push(context, now.0);
            if self.left == 0 {
                self.outlet.complete(context);
                return;
            }
        }
        context.look_again();
    }
}

impl GraphStage for Ticks {
    type Shape = SourceShape<u64>;
    type Seed = (Clock, u64, u64);
    type Mat = ();
    type Logic = TicksLogic;
    fn name(&self) -> &'static str {
        "ticks"
    }
    fn shape(&self) -> Self::Shape {
        SourceShape::new()
    }
    fn prepare(&self, _: &Attributes) -> (Self::Seed, ()) {
        ((self.clock, self.every, self.count), ())
    }
    fn create((clock, every, left): Self::Seed, outlet: Outlet<u64>, _: &Setup<'_>) -> TicksLogic {
        TicksLogic { outlet, clock, every, left, next: Nanos::ZERO }
    }
}

fn hop(capacity: usize, rate_per_second: u64, clock: Clock) {
    let count = (rate_per_second / 5).max(20_000);
    let (output, input) = BoundaryType::of::<u64>().make(capacity);
    let up = vec![seed(&Ticks { clock, every: 1_000_000_000 / rate_per_second, count }), output];
    let hops = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let seen = Arc::clone(&hops);
    let each = move |sent: u64| seen.lock().unwrap().push(clock.now().0.saturating_sub(sent));
    let down = vec![input, seed(&Each(each))];
    both((up, down), |up| run_island(up, clock), |down| run_island(down, clock));
    let mut hops = std::mem::take(&mut *hops.lock().unwrap()).split_off(count as usize / 10);
    hops.sort_unstable();
    let at = |part: f64| hops[((hops.len() - 1) as f64 * part) as usize];
    let rate = rate_per_second as f64 / 1e6;
    println!(
        "[boundary-latency] {rate:4.1} M/s, buffer {capacity:<4} p50 {:6} ns  p90 {:6} ns  p99 {:6} ns",
        at(0.5),
        at(0.9),
        at(0.99)
    );
}

fn main() {
    let clock = Clock(Instant::now());
    for capacity in [64, 16] {
        show(&format!("bare ring, u64, {capacity} places"), (0..RUNS).map(|_| bare_ring(capacity)).collect());
        show(&format!("[boundary] u64, buffer {capacity}"), (0..RUNS).map(|_| islands(capacity, clock)).collect());
    }
    for rate in [100_000, 1_000_000, 5_000_000] {
        hop(64, rate, clock);
    }
    // The clock is read twice in each hop.
    let reads = 1_000_000;
    let start = clock.now();
    (0..reads).for_each(|_| _ = black_box(clock.now()));
    println!("one reading of the clock: {:.0} ns", clock.now().since(start).as_nanos() as f64 / f64::from(reads));
}
