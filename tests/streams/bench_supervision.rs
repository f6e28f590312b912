//! What a failing user function does to a stream: the table of `InterpreterSupervisionSpec`.

use atoll::stream::attributes::{Directive, Supervision};
use atoll::stream::stage::FlowShape;
use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step, Supervised, Then};
use atoll::stream::testkit::{InterpreterBench, StageHandle};

use super::bench_stages::*;
use super::bench_support::*;

#[derive(Clone, Copy)]
struct Add(i64);

impl Elementwise for Add {
    type In = i64;
    type Out = i64;

    fn step(&mut self, element: i64) -> Step<i64> {
        Step::Emit(element + self.0)
    }
}

/// 100 ÷ element; throws for 0, fails for 1.
#[derive(Clone, Copy)]
struct Divide;

impl Elementwise for Divide {
    type In = i64;
    type Out = i64;

    fn step(&mut self, element: i64) -> Step<i64> {
        match element {
            0 => throw("TE"),
            1 => Step::Fail(StreamError::new(TestError("TE"))),
            element => Step::Emit(100 / element),
        }
    }
}

use atoll::stream::StreamError;

/// The sum so far.
#[derive(Default)]
struct Scan(i64);

impl Elementwise for Scan {
    type In = i64;
    type Out = i64;

    fn step(&mut self, element: i64) -> Step<i64> {
        if element < 0 {
            throw("TE");
        }
        self.0 += element;
        Step::Emit(self.0)
    }

    fn restart(&mut self) {
        self.0 = 0;
    }
}

fn supervised<E: Elementwise<In = i64, Out = i64>>(bench: &mut InterpreterBench, function: E) -> StageHandle {
    bench.stage("supervised", FlowShape::<i64, i64>::new(), move |ports, setup| {
        ElementwiseStage::new(ports, Supervised::maybe(function, setup.attributes()))
    })
}

#[test]
fn a_failure_from_outside_passes() {
    for mode in all_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![supervised(bench, Divide)]);
        assert_eq!(chain.pull(), "Request source");
        assert_eq!(chain.fail(), "Failure sink boom");
    }
}

#[test]
fn without_a_decider_the_stream_fails() {
    for mode in all_modes() {
        for bad in [0, 1] {
            let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![supervised(bench, Divide)]);
            chain.pull();
            assert_eq!(chain.push(bad), "Cancel source: TE, Failure sink TE");
            let mut chain = Chain::<i64, i64>::of(&mode, |bench| {
                vec![map(bench, |x: i64| x), supervised(bench, Divide), map(bench, |x: i64| x)]
            });
            chain.pull();
            assert_eq!(chain.push(2), "Next sink 50");
            chain.pull();
            assert_eq!(chain.push(bad), "Cancel source: TE, Failure sink TE");
            assert!(chain.bench.is_completed());
        }
    }
}

#[test]
fn a_resumed_element_is_skipped() {
    for mode in all_modes() {
        let mode = mode.with(Supervision::always(Directive::Resume));
        for fused in [false, true] {
            let mut chain = Chain::<i64, i64>::of(&mode, |bench| match fused {
                false => vec![supervised(bench, Add(1)), supervised(bench, Divide), supervised(bench, Add(100))],
                true => vec![supervised(bench, Then(Then(Add(1), Divide), Add(100)))],
            });
            assert_eq!(chain.pull(), "Request source");
            assert_eq!(chain.push(2), "Next sink 133");
            assert_eq!(chain.pull(), "Request source");
            for bad in [-1, 0] {
                assert_eq!(chain.push(bad), "Request source");
            }
            assert_eq!(chain.push(3), "Next sink 125");
        }
    }
}

#[test]
fn a_resumed_element_is_not_counted_by_a_group() {
    for mode in all_modes() {
        let mode = mode.with(Supervision::always(Directive::Resume));
        let mut chain =
            Chain::<i64, Vec<i64>>::of(&mode, |bench| vec![supervised(bench, Divide), grouped::<i64>(bench, 3)]);
        chain.pull();
        for element in [2, 0, 4] {
            assert_eq!(chain.push(element), "Request source");
        }
        assert_eq!(chain.push(5), "Next sink [50, 25, 20]");
        chain.pull();
        assert_eq!(chain.push(2), "Request source");
        assert_eq!(chain.push(0), "Request source");
        assert_eq!(chain.push(4), "Request source");
        assert_eq!(chain.complete(), "Complete sink, Next sink [50, 25]");
    }
}

#[test]
fn a_restarted_function_forgets() {
    for mode in all_modes() {
        let mode = mode.with(Supervision::always(Directive::Restart));
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![supervised(bench, Scan::default())]);
        for (element, expected) in [(1, "Next sink 1"), (3, "Next sink 4")] {
            chain.pull();
            assert_eq!(chain.push(element), expected);
        }
        chain.pull();
        assert_eq!(chain.push(-1), "Request source");
        assert_eq!(chain.push(5), "Next sink 5");
    }
}

fn throwing(element: i64) -> Numbers {
    match element {
        0 => throw("TE"),
        1 => Box::new((0..3).map(|at| if at == 2 { throw("TE") } else { at })),
        element => Box::new(element..),
    }
}

#[test]
fn an_expand_whose_function_throws_fails_at_once() {
    for mode in exact_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![expand(bench, throwing)]);
        assert_eq!(chain.events(), "Request source");
        assert_eq!(chain.push(0), "Cancel source: TE, Failure sink TE");

        let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![expand(bench, throwing)]);
        chain.events();
        assert_eq!(chain.push(1), "");
        assert_eq!(chain.pull(), "Next sink 0, Request source");
        assert_eq!(chain.pull(), "Next sink 1");
        assert_eq!(chain.pull(), "Cancel source: TE, Failure sink TE");
    }
}
