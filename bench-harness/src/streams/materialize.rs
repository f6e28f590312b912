//! What it costs to make a running stream of a blueprint.

use std::hint::black_box;

use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::operators::ElementwiseOps;

use super::{Measurement, timed};

/// Materializations of one round.
const TIMES: u32 = 20_000;
/// Operators of the chain, source and sink not counted.
const OPERATORS: f64 = 10.0;

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

pub(super) fn measurements() -> Vec<Measurement> {
    let source = five!(Source::from_iterator(|| 0..1_u64));
    let graph = five!(source).to_right(Sink::fold(0, |sum: u64, x| sum + x));
    vec![Measurement {
        name: "materialize-10",
        floor: "",
        subject: Box::new(move |runtime| {
            let ns = timed(|| {
                for _ in 0..TIMES {
                    // Made, started, one element through, ended and dropped.
                    drop(black_box(runtime.run(&graph).expect("the graph is complete")));
                    runtime.run_until_idle();
                }
            });
            ns / f64::from(TIMES) / OPERATORS
        }),
        floor_round: None,
        peers: Vec::new(),
    }]
}
