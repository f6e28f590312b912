//! Very long chains: the table of `InterpreterStressSpec`. They are built, run, completed and dropped without recursion
//! and in linear time (an effort that grew with the square of the length would not end).
//!
//! The 100 repetitions of the reference are 3 here: they were there to warm a JIT up.

use atoll::stream::Attributes;
use atoll::stream::attributes::TransparentPull;
use atoll::stream::stage::elementwise::Step;

use super::bench_stages::*;
use super::bench_support::*;

const LENGTH: usize = if cfg!(miri) { 300 } else { 1_000_000 };
const REPETITIONS: i64 = 3;

#[test]
fn a_chain_of_maps() {
    for mode in exact_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| (0..LENGTH).map(|_| map(bench, |x: i64| x + 1)).collect());
        for element in 0..REPETITIONS {
            assert_eq!(chain.pull(), "Request source");
            assert_eq!(chain.push(element), format!("Next sink {}", element + LENGTH as i64));
        }
        assert_eq!(chain.complete(), "Complete sink");
        assert!(chain.bench.is_completed());
    }
}

#[test]
fn a_chain_of_ordinary_stages() {
    let mut chain =
        Chain::<i64, i64>::of(&Attributes::none(), |bench| (0..LENGTH).map(|_| pass::<i64>(bench)).collect());
    assert_eq!(chain.pull(), "Request source");
    assert_eq!(chain.push(1), "Next sink 1");
    assert_eq!(chain.cancel(), "Cancel source: no more");
    assert!(chain.bench.is_completed());
}

#[test]
fn a_chain_that_fails_and_one_that_is_dropped() {
    for mode in exact_modes() {
        let build = || Chain::<i64, i64>::of(&mode, |bench| (0..LENGTH).map(|_| map(bench, |x: i64| x)).collect());
        let mut chain = build();
        chain.pull();
        assert_eq!(chain.fail(), "Failure sink boom");
        assert!(chain.bench.is_completed());
        build().bench.close();
    }
}

#[test]
fn a_take_within_maps() {
    let half = LENGTH / 2;
    let taken = 50;
    let mut chain = Chain::<i64, i64>::of(&Attributes::none(), |bench| {
        let mut stages: Vec<_> = (0..half).map(|_| map(bench, |x: i64| x + 1)).collect();
        stages.push(take::<i64>(bench, taken));
        stages.extend((0..half).map(|_| map(bench, |x: i64| x + 1)));
        stages
    });
    for element in 0..taken as i64 {
        assert_eq!(chain.pull(), "Request source");
        let next = format!("Next sink {}", element + 2 * half as i64);
        let end = if element + 1 == taken as i64 { "Cancel source: completed, Complete sink, " } else { "" };
        assert_eq!(chain.push(element), format!("{end}{next}"));
        if cfg!(debug_assertions) && element == 5 {
            // The rest says nothing new, and takes long without optimization.
            return;
        }
    }
    assert!(chain.bench.is_completed());
}

#[test]
fn a_chain_of_takes_ends_at_once() {
    for mode in exact_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| (0..LENGTH / 10).map(|_| take::<i64>(bench, 1)).collect());
        assert_eq!(chain.pull(), "Request source");
        assert_eq!(chain.push(0), "Cancel source: completed, Complete sink, Next sink 0");
        assert!(chain.bench.is_completed());
    }
}

#[test]
fn a_chain_of_drops_swallows_so_many() {
    let length = LENGTH / 1000 + 10;
    for mode in exact_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| {
            let drop_one = |bench: &mut _| {
                let mut left = 1;
                each(bench, "drop", move |element: i64| {
                    let drops = left > 0;
                    left -= i32::from(drops);
                    if drops { Step::Skip } else { Step::Emit(element) }
                })
            };
            (0..length).map(|_| drop_one(bench)).collect()
        });
        assert_eq!(chain.pull(), "Request source");
        for element in 0..length {
            assert_eq!(chain.push(element as i64), "Request source");
        }
        assert_eq!(chain.push(0), "Next sink 0");
    }
}

#[test]
fn a_chain_of_batches_takes_what_comes() {
    let mut chain = Chain::<i64, i64>::of(&Attributes::of(TransparentPull(true)), |bench| {
        (0..LENGTH / 10).map(|_| batch(bench)).collect()
    });
    assert_eq!(chain.events(), "Request source");
    for element in 0..10 {
        assert_eq!(chain.push(element), "Request source");
    }
    assert_eq!(chain.pull(), "Next sink 45");
}
