//! What a stage does when one of its outlets is cancelled: the table of `CancellationStrategySpec`.
//!
//! Left out: the race in a stack of bidirectional stages, which needs delayed signals of operators.

use std::time::Duration;

use atoll::stream::attributes::CancellationStrategy;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{FanOutShape, Logic};
use atoll::stream::testkit::{DownstreamProbe, InterpreterBench, UpstreamProbe};
use atoll::stream::{Attributes, Cancellation};

use super::bench_support::*;

/// Each element to each outlet that is not closed; all handlers of ends are the default ones.
struct FanOut {
    inlet: Inlet<i64>,
    outlets: Vec<Outlet<i64>>,
}

impl Logic for FanOut {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        for outlet in &self.outlets {
            if outlet.is_available(context) {
                outlet.push(context, element);
            }
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.try_pull(context);
    }
}

struct Fan {
    bench: InterpreterBench,
    source: UpstreamProbe<i64>,
    sinks: [DownstreamProbe<i64>; 2],
}

fn fan(mode: &Attributes, strategy: CancellationStrategy) -> Fan {
    let mut bench = InterpreterBench::with_attributes(mode.with(strategy));
    let source = bench.upstream::<i64>("in");
    let sinks = [bench.downstream::<i64>("out1"), bench.downstream::<i64>("out2")];
    let stage = bench.stage("fan", FanOutShape::<i64, i64>::new(2), |(inlet, outlets), _| FanOut { inlet, outlets });
    bench.connect(source.outlet(), stage.inlet(0));
    bench.connect(stage.outlet(0), sinks[0].inlet());
    bench.connect(stage.outlet(1), sinks[1].inlet());
    bench.start().unwrap();
    Fan { bench, source, sinks }
}

#[test]
fn the_strategy_says_what_becomes_of_the_other_ports() {
    use CancellationStrategy::{CompleteStage, FailStage, PropagateFailure};
    let plain = Cancellation::NoMoreElementsNeeded;
    let failed = || Cancellation::Failed(boom());
    let rows = [
        (CompleteStage, plain.clone(), "Cancel in: no more, Complete out2"),
        (CompleteStage, failed(), "Cancel in: boom, Complete out2"),
        (FailStage, plain.clone(), "Cancel in: no more, Failure out2 the consumer needs no more elements"),
        (FailStage, failed(), "Cancel in: boom, Failure out2 boom"),
        (PropagateFailure, plain, "Cancel in: no more, Complete out2"),
        (PropagateFailure, Cancellation::StageWasCompleted, "Cancel in: completed, Complete out2"),
        (PropagateFailure, failed(), "Cancel in: boom, Failure out2 boom"),
    ];
    for mode in all_modes() {
        for (strategy, cause, expected) in &rows {
            let mut fan = fan(&mode, strategy.clone());
            fan.sinks[0].cancel_because(&mut fan.bench, cause.clone());
            assert_eq!(fan.bench.events_text(), *expected, "{strategy:?}");
            assert!(fan.bench.is_completed());
        }
    }
}

#[test]
fn a_delayed_strategy_waits_and_the_others_go_on() {
    for mode in all_modes() {
        let delay = Duration::from_millis(500);
        let strategy = CancellationStrategy::AfterDelay { delay, then: Box::new(CancellationStrategy::FailStage) };
        let mut fan = fan(&mode, strategy);
        for sink in &fan.sinks {
            sink.pull(&mut fan.bench).unwrap();
        }
        assert_eq!(fan.bench.events_text(), "Request in");
        fan.sinks[0].cancel_because(&mut fan.bench, Cancellation::Failed(boom()));
        fan.bench.advance(Duration::from_millis(200));
        assert_eq!(fan.bench.events_text(), "");
        fan.source.push(&mut fan.bench, 7).unwrap();
        assert_eq!(fan.bench.events_text(), "Next out2 7");
        fan.bench.advance(Duration::from_millis(300));
        assert_eq!(fan.bench.events_text(), "Cancel in: boom, Failure out2 boom");
        assert!(fan.bench.is_completed());
    }
}

#[test]
fn an_end_before_the_delay_is_the_end() {
    let delay = Duration::from_millis(500);
    let strategy = CancellationStrategy::AfterDelay { delay, then: Box::new(CancellationStrategy::FailStage) };
    let mut fan = fan(&Attributes::none(), strategy);
    fan.sinks[0].cancel_because(&mut fan.bench, Cancellation::Failed(boom()));
    fan.source.complete(&mut fan.bench);
    assert_eq!(fan.bench.events_text(), "Complete out2");
    assert!(fan.bench.is_completed());
    fan.bench.advance(delay);
    assert_eq!(fan.bench.events_text(), "");
}
