//! From one core to another: elements a second, and the time of one hop while both cores run.
//!
//! Island 1 runs on the second processor. The peers move the same numbers between two pinned threads by hand.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll::runtime::StreamRuntime;
use atoll::stream::Attributes;
use atoll::stream::attributes::{InputBuffer, Placement};
use atoll::stream::boundary::ring;
use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::interpreter::{Context, Outlet};
use atoll::stream::stage::{GraphStage, Logic, Setup, SourceShape};

use super::{ELEMENTS, Measurement, run_to_end, timed};
use crate::measure::{Clock, pin_to};

/// Elements of a latency run.
const PACED_ELEMENTS: u64 = 200_000;
/// Time between two of them: a million a second.
const PACE_NS: u64 = 1000;

/// Gives the time of each element's push, paced.
#[derive(Clone)]
struct Paced {
    elements: u64,
    pace_ns: u64,
}

struct PacedLogic {
    outlet: Outlet<u64>,
    paced: Paced,
    next: u64,
}

impl GraphStage for Paced {
    type Shape = SourceShape<u64>;
    type Seed = Paced;
    type Mat = ();
    type Logic = PacedLogic;

    fn name(&self) -> &'static str {
        "paced"
    }

    fn shape(&self) -> Self::Shape {
        SourceShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (Paced, ()) {
        (self.clone(), ())
    }

    fn create(paced: Paced, outlet: Outlet<u64>, _: &Setup<'_>) -> PacedLogic {
        PacedLogic { outlet, paced, next: 0 }
    }
}

impl Logic for PacedLogic {
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        let clock = Clock::get();
        let pace = clock.ticks_in(std::time::Duration::from_nanos(self.paced.pace_ns));
        let due = if self.next == 0 { clock.ticks() } else { self.next };
        // The producing core has nothing else to do.
        while clock.ticks() < due {
            spin_loop();
        }
        self.next = due + pace;
        self.paced.elements -= 1;
        self.outlet.push(context, clock.ticks());
        if self.paced.elements == 0 {
            self.outlet.complete(context);
        }
    }
}

/// Moves numbers through a raw ring between this thread and one on the other processor.
fn raw_ring(capacity: usize, cpu: usize) -> f64 {
    let (mut producer, mut consumer) = ring::ring::<u64>(capacity);
    let ready = Arc::new(AtomicBool::new(false));
    let started = Arc::clone(&ready);
    let thread = std::thread::spawn(move || {
        // Where this fails the run is only slower.
        let _ = pin_to(cpu);
        started.store(true, Ordering::Release);
        for number in 0..ELEMENTS {
            let mut element = number;
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
    });
    while !ready.load(Ordering::Acquire) {
        spin_loop();
    }
    let ns = timed(|| {
        let mut sum = 0_u64;
        let mut left = ELEMENTS;
        while left > 0 {
            match consumer.take() {
                Some(number) => {
                    sum = sum.wrapping_add(number);
                    left -= 1;
                }
                None => {
                    consumer.release();
                    spin_loop();
                }
            }
        }
        black_box(sum);
    });
    thread.join().expect("the producer does not panic");
    ns / ELEMENTS as f64
}

fn throughput(name: &'static str, buffer: usize, runtime: &Arc<StreamRuntime>, cpu: usize) -> Measurement {
    let buffer_size = InputBuffer::new(1, buffer).expect("a power of two");
    let graph = Source::from_iterator(|| 0..ELEMENTS)
        .on(Placement::Index(1))
        .to_right(Sink::fold(0_u64, |sum, x| sum.wrapping_add(x)).add_attributes(&Attributes::of(buffer_size)));
    let runtime = Arc::clone(runtime);
    Measurement {
        name,
        floor: "raw ring",
        subject: Box::new(move |_| {
            timed(|| {
                black_box(run_to_end(&runtime, &graph));
            }) / ELEMENTS as f64
        }),
        floor_round: Some(Box::new(move || raw_ring(buffer, cpu))),
        peers: Vec::new(),
    }
}

pub(super) fn measurements(cpu: usize) -> anyhow::Result<Vec<Measurement>> {
    let runtime = StreamRuntime::with_cores_started_by(2, move |_| {
        let _ = pin_to(cpu);
    })?;
    // It is not Send; the measurements run on this thread.
    #[allow(clippy::arc_with_non_send_sync)]
    let runtime = Arc::new(runtime);
    let paced = Source::from_stage(Paced { elements: PACED_ELEMENTS, pace_ns: PACE_NS })
        .on(Placement::Index(1))
        .to_right(Sink::fold(Vec::new(), |mut hops: Vec<u64>, pushed| {
            hops.push(Clock::get().since(pushed));
            hops
        }));
    let latency_runtime = Arc::clone(&runtime);
    Ok(vec![
        throughput("boundary", 64, &runtime, cpu),
        throughput("boundary-16", 16, &runtime, cpu),
        Measurement {
            name: "boundary-latency",
            floor: "",
            subject: Box::new(move |_| {
                let mut hops = run_to_end(&latency_runtime, &paced);
                hops.sort_unstable();
                Clock::get().ns(hops[hops.len() / 2]) as f64
            }),
            floor_round: None,
            peers: Vec::new(),
        },
    ])
}
