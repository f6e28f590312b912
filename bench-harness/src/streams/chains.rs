//! Chains of operators on numbers: what one more operator costs.
//!
//! Each operator is `x * 3 ^ k` with a `k` that the compiler does not know, of eight closure types in rotation, so that
//! neither vectorising nor one shared target of the indirect jumps flatters the result.

use std::hint::black_box;

use atoll::stream::completion::Completion;
use atoll::stream::dsl::{FlowOps, RunnableGraph, Sink, Source};
use atoll::stream::operators::ElementwiseOps;

use super::{ELEMENTS, Measurement, run_to_end, timed};

macro_rules! operator {
    ($k:expr) => {{
        let k = black_box($k as u64);
        move |x: u64| x.wrapping_mul(3) ^ k
    }};
}

/// The chain with eight more operators, each a stage of its own.
macro_rules! eight_stages {
    ($source:expr) => {
        $source
            .map(operator!(1))
            .seal()
            .map(operator!(2))
            .seal()
            .map(operator!(3))
            .seal()
            .map(operator!(4))
            .seal()
            .map(operator!(5))
            .seal()
            .map(operator!(6))
            .seal()
            .map(operator!(7))
            .seal()
            .map(operator!(8))
            .seal()
    };
}

fn sum(source: Source<u64>) -> RunnableGraph<Completion<u64>> {
    source.to_right(Sink::fold(0_u64, |sum, x| sum.wrapping_add(x)))
}

fn numbers() -> Source<u64> {
    // As a source whose origin is forgotten, or the stages behind it would not count.
    Source::from_iterator(|| 0..ELEMENTS).seal()
}

fn one_stage() -> RunnableGraph<Completion<u64>> {
    sum(numbers().map(operator!(1)).seal())
}

fn forty_nine_stages() -> RunnableGraph<Completion<u64>> {
    let source = eight_stages!(numbers());
    let source = eight_stages!(source);
    let source = eight_stages!(source);
    let source = eight_stages!(source);
    let source = eight_stages!(source);
    let source = eight_stages!(source);
    sum(source.map(operator!(1)).seal())
}

fn ten_fused() -> RunnableGraph<Completion<u64>> {
    let source = Source::from_iterator(|| 0..black_box(ELEMENTS))
        .map(operator!(1))
        .map(operator!(2))
        .map(operator!(3))
        .map(operator!(4))
        .map(operator!(5))
        .map(operator!(6))
        .map(operator!(7))
        .map(operator!(8))
        .map(operator!(1))
        .map(operator!(2));
    source.into_fold(0_u64, |sum, x| sum.wrapping_add(x))
}

fn ten_in_an_iterator() -> u64 {
    let iterator = (0..black_box(ELEMENTS))
        .map(operator!(1))
        .map(operator!(2))
        .map(operator!(3))
        .map(operator!(4))
        .map(operator!(5))
        .map(operator!(6))
        .map(operator!(7))
        .map(operator!(8))
        .map(operator!(1))
        .map(operator!(2));
    iterator.fold(0_u64, |sum, x| sum.wrapping_add(x))
}

/// One operator in a loop by hand.
pub(super) fn hand_loop_ns() -> f64 {
    let function = operator!(1);
    let ns = timed(|| {
        let mut sum = 0_u64;
        for x in 0..black_box(ELEMENTS * 8) {
            sum = sum.wrapping_add(black_box(function(x)));
        }
        black_box(sum);
    });
    ns / (ELEMENTS * 8) as f64
}

pub(super) fn measurements() -> Vec<Measurement> {
    let (one, many, fused) = (one_stage(), forty_nine_stages(), ten_fused());
    let elements = ELEMENTS as f64;
    vec![
        Measurement {
            name: "hop-elementwise",
            floor: "loop by hand",
            subject: Box::new(move |runtime| {
                let short = timed(|| {
                    black_box(run_to_end(runtime, &one));
                });
                let long = timed(|| {
                    black_box(run_to_end(runtime, &many));
                });
                (long - short) / elements / 48.0
            }),
            floor_round: Some(Box::new(hand_loop_ns)),
            peers: Vec::new(),
        },
        Measurement {
            name: "fused-10",
            floor: "std Iterator",
            subject: Box::new(move |runtime| {
                timed(|| {
                    black_box(run_to_end(runtime, &fused));
                }) / elements
            }),
            floor_round: Some(Box::new(move || {
                timed(|| {
                    black_box(ten_in_an_iterator());
                }) / elements
            })),
            peers: Vec::new(),
        },
    ]
}
