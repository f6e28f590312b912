//! `emit`, `read` and timers, and what stages must not do: the table of `GraphStageLogicSpec`.
//!
//! Left out: use of ports in a constructor (a stage has no context there, so it does not compile) and missing handlers
//! (they are methods of a trait); sub-inlets and sub-outlets have tests of their own.

use std::time::Duration;

use atoll::stream::Attributes;
use atoll::stream::interpreter::{Context, Inlet, Outlet, TimerKey};
use atoll::stream::stage::{Logic, SinkShape, SourceShape};
use atoll::stream::testkit::InterpreterBench;

use super::bench_support::*;

type Action = Box<dyn FnOnce(&mut Scripted, &mut Context)>;

/// Does one thing at its start, and otherwise passes everything on.
struct Scripted {
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
    at_start: Option<Action>,
    log: Log,
}

impl Logic for Scripted {
    fn pre_start(&mut self, context: &mut Context) {
        if let Some(action) = self.at_start.take() {
            action(self, context);
        }
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.log.add("pulled");
        self.inlet.try_pull(context);
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add("stop");
    }
}

fn scripted(mode: &Attributes, action: fn(&mut Scripted, &mut Context)) -> (Chain<i64, i64>, Log) {
    let log = Log::default();
    let logged = log.clone();
    let chain = Chain::of(mode, |bench| {
        vec![flow(bench, "scripted", move |ports| Scripted {
            inlet: ports.inlet,
            outlet: ports.outlet,
            at_start: Some(Box::new(action)),
            log: logged,
        })]
    });
    (chain, log)
}

/// Pulls and pushes these until no more is asked for; then completes. Returns what came out and how it ended.
fn drive(chain: &mut Chain<i64, i64>, elements: &[i64], end: impl FnOnce(&mut Chain<i64, i64>)) -> (Vec<i64>, String) {
    let mut elements = elements.iter();
    let mut end = Some(end);
    for _ in 0..100 {
        if chain.sink.check_pull(&mut chain.bench).is_ok() {
            chain.sink.pull(&mut chain.bench).unwrap();
        }
        if chain.source.is_available(&mut chain.bench) {
            match elements.next() {
                Some(element) => chain.source.push(&mut chain.bench, *element).unwrap(),
                None => {
                    if let Some(end) = end.take() {
                        end(chain);
                    }
                }
            }
        }
    }
    let received = chain.sink.received();
    let events = chain.events();
    let ended: Vec<&str> =
        events.split(", ").filter(|event| event.starts_with("Complete") || event.starts_with("Failure")).collect();
    (received, ended.join(", "))
}

fn complete(chain: &mut Chain<i64, i64>) {
    chain.source.complete(&mut chain.bench);
}

fn fail(chain: &mut Chain<i64, i64>) {
    chain.source.fail(&mut chain.bench, boom());
}

fn read_two_emit_both(stage: &mut Scripted, context: &mut Context) {
    context.read_n::<Scripted, i64>(
        &stage.inlet,
        2,
        |stage, context, read| {
            for element in read {
                context.emit(&stage.outlet, element);
            }
            context.complete_stage();
        },
        |_, _, _| {},
    );
}

fn read_six(stage: &mut Scripted, context: &mut Context) {
    context.read_n::<Scripted, i64>(
        &stage.inlet,
        6,
        |stage, context, read| context.emit_multiple(&stage.outlet, read.into_iter()),
        |_, _, _| {},
    );
}

fn read_six_emit_what_came(stage: &mut Scripted, context: &mut Context) {
    context.read_n::<Scripted, i64>(
        &stage.inlet,
        6,
        |_, _, _| {},
        |stage, context, read| context.emit_multiple(&stage.outlet, read.into_iter()),
    );
}

#[test]
fn so_many_are_read() {
    for mode in all_modes() {
        let (mut chain, log) = scripted(&mode, read_two_emit_both);
        assert_eq!(drive(&mut chain, &[1, 2, 3], complete), (vec![1, 2], "Complete sink".to_owned()));
        assert_eq!(log.take().last().map(String::as_str), Some("stop"));

        let (mut chain, _) = scripted(&mode, read_six);
        assert_eq!(drive(&mut chain, &[1, 2, 3, 4, 5], complete), (vec![], "Complete sink".to_owned()));

        let (mut chain, _) = scripted(&mode, read_six);
        assert_eq!(drive(&mut chain, &[1, 2, 3, 4, 5], fail), (vec![], "Failure sink boom".to_owned()));

        let (mut chain, _) = scripted(&mode, read_six);
        let seven = drive(&mut chain, &[1, 2, 3, 4, 5, 6, 7], complete);
        assert_eq!(seven, (vec![1, 2, 3, 4, 5, 6, 7], "Complete sink".to_owned()));

        let (mut chain, _) = scripted(&mode, read_six_emit_what_came);
        let five = drive(&mut chain, &[1, 2, 3, 4, 5], complete);
        assert_eq!(five, (vec![1, 2, 3, 4, 5], "Complete sink".to_owned()));

        let (mut chain, _) = scripted(&mode, read_six_emit_what_came);
        assert_eq!(drive(&mut chain, &[1, 2, 3, 4, 5], fail), (vec![], "Failure sink boom".to_owned()));
    }
}

#[test]
fn one_after_the_other_is_read() {
    fn chained(stage: &mut Scripted, context: &mut Context) {
        context.read::<Scripted, i64>(
            &stage.inlet,
            |stage, context, first| {
                context.read::<Scripted, i64>(
                    &stage.inlet,
                    move |stage, context, second| context.emit(&stage.outlet, first * 10 + second),
                    |stage, _| stage.log.add("closed"),
                );
            },
            |_, _| {},
        );
    }
    for mode in all_modes() {
        let (mut chain, _) = scripted(&mode, chained);
        assert_eq!(drive(&mut chain, &[1, 2, 3], complete), (vec![12, 3], "Complete sink".to_owned()));
        let (mut chain, log) = scripted(&mode, chained);
        assert_eq!(drive(&mut chain, &[1], complete), (vec![], "Complete sink".to_owned()));
        assert!(log.take().contains(&"closed".to_owned()));
    }
}

#[test]
fn reading_twice_at_once_is_illegal_and_reading_can_be_given_up() {
    fn twice(stage: &mut Scripted, context: &mut Context) {
        read_six(stage, context);
        read_six(stage, context);
    }
    fn given_up(stage: &mut Scripted, context: &mut Context) {
        read_six(stage, context);
        context.abort_reading(&stage.inlet);
    }
    for mode in all_modes() {
        let (mut chain, _) = scripted(&mode, twice);
        assert!(chain.events().contains("cannot read from an inlet that is being read already"));
        let (mut chain, _) = scripted(&mode, given_up);
        assert_eq!(drive(&mut chain, &[1, 2], complete), (vec![1, 2], "Complete sink".to_owned()));
    }
}

#[test]
fn what_is_emitted_comes_in_order_and_before_the_end() {
    fn nested(stage: &mut Scripted, context: &mut Context) {
        context.emit_then::<Scripted, i64>(&stage.outlet, 1, |stage, context| context.emit(&stage.outlet, 2));
        context.emit_then::<Scripted, i64>(&stage.outlet, 3, |stage, context| context.emit(&stage.outlet, 4));
    }
    for mode in all_modes() {
        let (mut chain, _) = scripted(&mode, nested);
        chain.source.complete(&mut chain.bench);
        let (received, end) = drive(&mut chain, &[], complete);
        assert!(received == [1, 2, 3, 4] || received == [1, 3, 2, 4], "{received:?}");
        assert_eq!(end, "Complete sink");
    }
}

#[test]
fn many_are_emitted_then_the_stage_goes_on() {
    type Script = fn(&mut Scripted, &mut Context);
    let none: Script = |stage, context| {
        context.emit_multiple(&stage.outlet, std::iter::empty());
        context.emit(&stage.outlet, 42);
    };
    let three: Script = |stage, context| {
        context.emit_multiple_then::<Scripted, i64>(&stage.outlet, 1..=3, |stage, context| {
            context.emit(&stage.outlet, 42);
        });
    };
    let only_empty: Script = |stage, context| context.emit_multiple(&stage.outlet, std::iter::empty());
    for mode in all_modes() {
        for (script, expected) in [(none, vec![42, 7, 8]), (three, vec![1, 2, 3, 42, 7, 8]), (only_empty, vec![7, 8])] {
            let (mut chain, _) = scripted(&mode, script);
            assert_eq!(drive(&mut chain, &[7, 8], complete), (expected.clone(), "Complete sink".to_owned()));
            // The same when the end comes before any demand.
            let (mut chain, _) = scripted(&mode, script);
            chain.source.complete(&mut chain.bench);
            let emitted = expected[..expected.len() - 2].to_vec();
            assert_eq!(drive(&mut chain, &[], complete), (emitted, "Complete sink".to_owned()));
        }
    }
}

#[test]
fn a_failure_or_cancellation_drops_what_is_to_be_emitted() {
    let script = |stage: &mut Scripted, context: &mut Context| context.emit_multiple(&stage.outlet, 1..=3);
    for mode in all_modes() {
        let (mut chain, _) = scripted(&mode, script);
        assert_eq!(chain.pull(), "Next sink 1");
        assert_eq!(chain.fail(), "Failure sink boom");
        let (mut chain, log) = scripted(&mode, script);
        assert_eq!(chain.pull(), "Next sink 1");
        assert_eq!(chain.cancel(), "Cancel source: no more");
        assert_eq!(log.take(), ["stop"]);
        assert!(chain.bench.is_completed());
    }
}

#[test]
fn emitting_can_be_given_up() {
    for mode in all_modes() {
        let (mut chain, _) = scripted(&mode, |stage, context| {
            context.emit_multiple(&stage.outlet, 1..=3);
            assert!(context.is_emitting(&stage.outlet));
            context.abort_emitting(&stage.outlet);
        });
        assert_eq!(drive(&mut chain, &[7], complete), (vec![7], "Complete sink".to_owned()));
    }
}

#[test]
fn hooks_are_called() {
    for mode in exact_modes() {
        let (mut chain, log) = scripted(&mode, |stage, _| stage.log.add("start"));
        chain.pull();
        chain.push(1);
        chain.complete();
        assert_eq!(log.take(), ["start", "pulled", "stop"]);
    }
}

/// Two inlets that end at once: the stage stops once, its neighbour does not.
#[test]
fn a_stage_that_two_events_complete_is_stopped_once() {
    struct Once {
        log: Log,
    }
    impl Logic for Once {
        fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
            context.complete_stage();
        }
        fn on_downstream_finish(&mut self, context: &mut Context, _: usize, _: atoll::stream::Cancellation) {
            context.complete_stage();
        }
        fn on_push(&mut self, _: &mut Context, _: usize) {}
        fn on_pull(&mut self, _: &mut Context, _: usize) {}
        fn post_stop(&mut self, _: &mut Context) {
            self.log.add("stop");
        }
    }
    for mode in all_modes() {
        let (log, neighbour) = (Log::default(), Log::default());
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| {
            let (log, other) = (log.clone(), neighbour.clone());
            let stage = flow::<i64, i64, _>(bench, "once", move |_| Once { log });
            let (from, to) = (
                bench.stage("from", SourceShape::<i64>::new(), {
                    let log = other.clone();
                    move |_, _| Once { log }
                }),
                bench.stage("to", SinkShape::<i64>::new(), move |_, _| Once { log: other }),
            );
            bench.connect(from.outlet(0), to.inlet(0));
            vec![stage]
        });
        chain.bench.set_event_limit(0);
        chain.source.complete(&mut chain.bench);
        chain.sink.cancel(&mut chain.bench);
        chain.bench.step(100);
        assert_eq!(log.take(), ["stop"]);
        assert_eq!(neighbour.take(), [""; 0]);
    }
}

// ---- timers ----

struct Timed {
    outlet: Outlet<u64>,
    at_start: fn(&mut Context),
    log: Log,
}

impl Logic for Timed {
    fn pre_start(&mut self, context: &mut Context) {
        (self.at_start)(context);
    }

    fn on_pull(&mut self, _: &mut Context, _: usize) {}

    fn on_timer(&mut self, context: &mut Context, key: TimerKey) {
        self.log.add(format!("{} at {}", key.0, context.now().0 / 1_000_000));
        match key.0 {
            8 => context.cancel_timer(TimerKey(9)),
            66 => throw("TE"),
            _ => self.outlet.push(context, key.0),
        }
    }
}

fn timed(at_start: fn(&mut Context)) -> (InterpreterBench, atoll::stream::testkit::DownstreamProbe<u64>, Log) {
    let log = Log::default();
    let logged = log.clone();
    let mut bench = InterpreterBench::new();
    let source =
        bench.stage("timed", SourceShape::<u64>::new(), move |outlet, _| Timed { outlet, at_start, log: logged });
    let sink = bench.downstream::<u64>("sink");
    bench.connect(source.outlet(0), sink.inlet());
    bench.start().unwrap();
    (bench, sink, log)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn timers_fire_when_they_are_due() {
    let (mut bench, sink, log) = timed(|context| context.schedule_once(TimerKey(1), ms(50)));
    sink.pull(&mut bench).unwrap();
    bench.advance(ms(49));
    assert_eq!(bench.events_text(), "");
    bench.advance(ms(1));
    assert_eq!(bench.events_text(), "Next sink 1");
    bench.advance(ms(1000));
    assert_eq!(log.take(), ["1 at 50"]);
}

#[test]
fn the_same_key_replaces_and_a_cancelled_timer_is_silent_even_when_due() {
    let (mut bench, sink, log) = timed(|context| {
        context.schedule_once(TimerKey(1), ms(10));
        context.schedule_once(TimerKey(1), ms(30));
        context.schedule_once(TimerKey(8), ms(40));
        context.schedule_once(TimerKey(9), ms(40));
        context.schedule_once(TimerKey(10), ms(5));
        context.cancel_timer(TimerKey(10));
        assert!(context.is_timer_active(TimerKey(9)) && !context.is_timer_active(TimerKey(10)));
    });
    sink.pull(&mut bench).unwrap();
    bench.advance(ms(20));
    assert_eq!(log.take(), [""; 0]);
    bench.advance(ms(10));
    bench.advance(ms(100));
    assert_eq!(log.take(), ["1 at 30", "8 at 130"]);
}

#[test]
fn repeated_timers_repeat_as_they_say() {
    let (mut bench, sink, log) = timed(|context| {
        context.schedule_with_fixed_delay(TimerKey(8), ms(10), ms(10));
    });
    drop(sink);
    for step in [10, 15, 10, 5] {
        bench.advance(ms(step));
    }
    // Ten after it ran, not after it was due.
    assert_eq!(log.take(), ["8 at 10", "8 at 25", "8 at 35"]);

    let (mut bench, _, log) = timed(|context| context.schedule_at_fixed_rate(TimerKey(8), ms(10), ms(10)));
    for step in [10, 15, 5, 20] {
        bench.advance(ms(step));
    }
    bench.run();
    assert_eq!(log.take(), ["8 at 10", "8 at 25", "8 at 30", "8 at 50", "8 at 50"]);
}

#[test]
fn a_timer_that_throws_fails_the_stage() {
    let (mut bench, _, _) = timed(|context| context.schedule_once(TimerKey(66), ms(1)));
    bench.advance(ms(1));
    assert_eq!(bench.events_text(), "Failure sink TE");
    assert!(bench.is_completed());
}

#[test]
fn no_timer_outlives_its_stage() {
    let (mut bench, sink, log) = timed(|context| context.schedule_once(TimerKey(1), ms(50)));
    sink.cancel(&mut bench);
    assert!(bench.is_completed());
    bench.advance(ms(100));
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(bench.island().next_deadline(), atoll::base::Nanos::NEVER);
}
