//! When stages start and stop: the table of `LifecycleInterpreterSpec`.
//!
//! Left out: nothing. The order of starts is the order in which stages are added.

use atoll::stream::StreamError;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{ClosedShape, Logic};
use atoll::stream::testkit::{InterpreterBench, StageHandle};

use super::bench_stages::*;
use super::bench_support::*;

struct Hooks {
    name: &'static str,
    log: Log,
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
    fails_at: &'static str,
}

impl Hooks {
    fn hook(&self, hook: &str) {
        self.log.add(format!("{hook} {}", self.name));
        if hook == self.fails_at {
            throw("boom");
        }
    }
}

impl Logic for Hooks {
    fn pre_start(&mut self, _: &mut Context) {
        self.hook("start");
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.hook("complete");
        context.complete_stage();
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        self.hook("fail");
        context.fail_stage(error);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.hook("stop");
    }
}

fn hooks(bench: &mut InterpreterBench, name: &'static str, log: &Log, fails_at: &'static str) -> StageHandle {
    let log = log.clone();
    flow(bench, name, move |ports| Hooks { name, log, inlet: ports.inlet, outlet: ports.outlet, fails_at })
}

fn three(mode: &atoll::stream::Attributes) -> (Chain<i64, i64>, Log) {
    let log = Log::default();
    let chain = Chain::of(mode, |bench| ["a", "b", "c"].map(|name| hooks(bench, name, &log, "")).to_vec());
    (chain, log)
}

#[test]
fn stages_start_in_order_and_stop_as_the_end_passes() {
    for mode in all_modes() {
        let (mut chain, log) = three(&mode);
        assert_eq!(log.take(), ["start a", "start b", "start c"]);
        assert_eq!(chain.complete(), "Complete sink");
        assert_eq!(log.take(), ["complete a", "stop a", "complete b", "stop b", "complete c", "stop c"]);
        assert!(chain.bench.is_completed());

        let (mut chain, log) = three(&mode);
        log.take();
        assert_eq!(chain.fail(), "Failure sink boom");
        assert_eq!(log.take(), ["fail a", "stop a", "fail b", "stop b", "fail c", "stop c"]);

        let (mut chain, log) = three(&mode);
        log.take();
        assert_eq!(chain.cancel(), "Cancel source: no more");
        assert_eq!(log.take(), ["stop c", "stop b", "stop a"]);
    }
}

#[test]
fn an_aborted_or_dropped_island_stops_each_stage_once() {
    for mode in exact_modes() {
        let (mut chain, log) = three(&mode);
        chain.pull();
        log.take();
        chain.bench.island().abort();
        assert_eq!(log.take(), ["stop a", "stop b", "stop c"]);
        assert!(chain.bench.is_completed());
        chain.bench.close();
        assert_eq!(log.take(), [""; 0]);

        let (mut chain, log) = three(&mode);
        log.take();
        chain.bench.close();
        assert_eq!(log.take(), ["stop a", "stop b", "stop c"]);
    }
}

struct NoPorts {
    name: &'static str,
    log: Log,
    keeps: bool,
}

impl Logic for NoPorts {
    fn pre_start(&mut self, context: &mut Context) {
        self.log.add(format!("start {}", self.name));
        context.set_keep_going(self.keeps);
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add(format!("stop {}", self.name));
    }
}

#[test]
fn a_stage_without_ports_stops_after_its_start_unless_it_keeps_going() {
    let log = Log::default();
    let run = |keeps: bool| {
        let mut bench = InterpreterBench::new();
        for name in ["a", "b"] {
            let log = log.clone();
            bench.stage(name, ClosedShape, move |(), _| NoPorts { name, log, keeps });
        }
        bench.start().unwrap();
        bench
    };
    assert!(run(false).is_completed());
    assert_eq!(log.take(), ["start a", "stop a", "start b", "stop b"]);
    let mut bench = run(true);
    assert!(!bench.is_completed());
    assert_eq!(log.take(), ["start a", "start b"]);
    drop(bench);
    assert_eq!(log.take(), ["stop a", "stop b"]);
}

#[test]
fn a_failure_at_the_start_fails_the_stage() {
    for mode in all_modes() {
        for maps in [0, 1] {
            let log = Log::default();
            let mut chain = Chain::<i64, i64>::of(&mode, |bench| {
                let mut stages: Vec<_> = (0..maps).map(|_| map(bench, |x: i64| x)).collect();
                stages.push(hooks(bench, "a", &log, "start"));
                stages.extend((0..maps).map(|_| map(bench, |x: i64| x)));
                stages
            });
            assert_eq!(chain.events(), "Cancel source: boom, Failure sink boom");
            assert_eq!(log.take(), ["start a", "stop a"]);
            assert!(chain.bench.is_completed());
        }
    }
}

#[test]
fn a_failure_at_the_stop_is_nobodys() {
    for mode in all_modes() {
        let log = Log::default();
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![hooks(bench, "a", &log, "stop")]);
        assert_eq!(chain.complete(), "Complete sink");
        assert_eq!(log.take(), ["start a", "complete a", "stop a"]);
        assert!(chain.bench.is_completed());
    }
}

#[test]
fn a_stage_that_pushes_and_finishes_is_stopped() {
    for mode in all_modes() {
        let log = Log::default();
        let stages: [fn(&mut InterpreterBench, Log) -> Vec<StageHandle>; 3] = [
            |bench, log| vec![push_and_finish::<i64>(bench, log)],
            |bench, log| vec![map(bench, |x: i64| x), push_and_finish::<i64>(bench, log), map(bench, |x: i64| x)],
            |bench, log| vec![push_and_finish::<i64>(bench, log), fold_sum(bench)],
        ];
        for stages in stages {
            let mut chain = Chain::<i64, i64>::of(&mode, |bench| stages(bench, log.clone()));
            assert_eq!(chain.pull(), "Request source");
            assert_eq!(chain.push_and_complete(7), "Complete sink, Next sink 7");
            assert_eq!(log.take(), ["stop"]);
            assert!(chain.bench.is_completed());
        }
    }
}
