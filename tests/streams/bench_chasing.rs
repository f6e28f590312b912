//! Several things in one handler, and stages that live on without ports: the tables of `ChasingEventsSpec` and
//! `KeepGoingStageSpec`.

use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{AsyncCallback, Logic, SinkShape};
use atoll::stream::testkit::InterpreterBench;
use atoll::stream::{Attributes, Cancellation};

use super::bench_support::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    PullAndCancel,
    PushAndComplete,
    PushAndFail,
}

struct Both {
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
    does: Does,
}

impl Logic for Both {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
        match self.does {
            Does::PullAndCancel => {}
            Does::PushAndComplete => self.outlet.complete(context),
            Does::PushAndFail => self.outlet.fail(context, boom()),
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
        if self.does == Does::PullAndCancel {
            self.inlet.cancel(context);
        }
    }
}

fn both(mode: &Attributes, does: Does, around: bool) -> Chain<i64, i64> {
    Chain::of(mode, |bench| {
        let mut stages = Vec::new();
        if around {
            stages.push(pass::<i64>(bench));
        }
        stages.push(flow(bench, "both", move |ports| Both { inlet: ports.inlet, outlet: ports.outlet, does }));
        if around {
            stages.push(pass::<i64>(bench));
        }
        stages
    })
}

#[test]
fn an_end_right_after_an_event_is_not_lost() {
    for mode in all_modes() {
        for around in [false, true] {
            let mut chain = both(&mode, Does::PullAndCancel, around);
            assert_eq!(chain.pull(), "Cancel source: no more");

            let mut chain = both(&mode, Does::PushAndComplete, around);
            assert_eq!(chain.pull(), "Request source");
            assert_eq!(chain.push(1), "Complete sink, Next sink 1");

            let mut chain = both(&mode, Does::PushAndFail, around);
            assert_eq!(chain.pull(), "Request source");
            assert_eq!(chain.push(1), "Failure sink boom, Next sink 1");
        }
    }
}

enum Command {
    Ping,
    Complete,
    Fail,
    Throw,
    StopKeeping,
}

struct Pingable {
    inlet: Inlet<i64>,
    log: Log,
    keeps: bool,
}

impl Pingable {
    fn command(&mut self, context: &mut Context, command: Command) {
        match command {
            Command::Ping => self.log.add("pong"),
            Command::Complete => context.complete_stage(),
            Command::Fail => context.fail_stage(boom()),
            Command::StopKeeping => context.set_keep_going(false),
            Command::Throw => {
                self.log.add("end of handler");
                throw("boom")
            }
        }
        self.log.add("end of handler");
    }
}

impl Logic for Pingable {
    fn pre_start(&mut self, context: &mut Context) {
        context.set_keep_going(self.keeps);
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.inlet.grab(context);
        self.inlet.pull(context);
    }

    // Nothing is said about the stage: it goes on if it was told to.
    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.log.add("upstream completed");
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add("stop");
    }
}

fn pingable(mode: &Attributes, keeps: bool) -> (InterpreterBench, AsyncCallback<Pingable, Command>, Log) {
    let log = Log::default();
    let mut bench = InterpreterBench::with_attributes(mode.clone());
    let source = bench.upstream::<i64>("source");
    let callback = std::rc::Rc::new(std::cell::OnceCell::new());
    let (given, logged) = (std::rc::Rc::clone(&callback), log.clone());
    let sink = bench.stage("pingable", SinkShape::<i64>::new(), move |inlet, setup| {
        let _ = given.set(setup.callback(Pingable::command));
        Pingable { inlet, log: logged, keeps }
    });
    bench.connect(source.outlet(), sink.inlet(0));
    bench.start().unwrap();
    assert_eq!(bench.events_text(), "Request source");
    let callback = callback.get().unwrap().clone();
    callback.invoke(Command::Ping).unwrap();
    bench.run();
    assert_eq!(log.take(), ["pong", "end of handler"]);
    source.complete(&mut bench);
    (bench, callback, log)
}

#[test]
fn a_stage_that_keeps_going_ends_when_it_says_so() {
    for mode in all_modes() {
        for command in [Command::Complete, Command::Fail, Command::Throw, Command::StopKeeping] {
            let (mut bench, callback, log) = pingable(&mode, true);
            assert_eq!(log.take(), ["upstream completed"]);
            callback.invoke(Command::Ping).unwrap();
            callback.invoke(Command::Ping).unwrap();
            bench.run();
            assert_eq!(log.take(), ["pong", "end of handler", "pong", "end of handler"]);
            assert!(!bench.is_completed());
            callback.invoke(command).unwrap();
            bench.run();
            assert_eq!(log.take(), ["end of handler", "stop"]);
            assert!(bench.is_completed());
        }
    }
}

#[test]
fn a_stage_that_does_not_keep_going_stops_with_its_last_port() {
    for mode in all_modes() {
        let (mut bench, _, log) = pingable(&mode, false);
        assert_eq!(log.take(), ["upstream completed", "stop"]);
        assert!(bench.is_completed());
    }
}

/// A stage may decide to go on in the very handler that tells it of its last port.
struct Late {
    inlet: Inlet<i64>,
    log: Log,
}

impl Logic for Late {
    fn on_push(&mut self, _: &mut Context, _: usize) {}

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        assert!(self.inlet.is_closed(context));
        context.set_keep_going(true);
        context.schedule_once(atoll::stream::interpreter::TimerKey(1), std::time::Duration::from_secs(1));
    }

    fn on_timer(&mut self, context: &mut Context, _: atoll::stream::interpreter::TimerKey) {
        self.log.add("timer");
        context.complete_stage();
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add("stop");
    }
}

#[test]
fn a_stage_may_go_on_when_its_last_port_closes() {
    let log = Log::default();
    let logged = log.clone();
    let mut bench = InterpreterBench::new();
    let source = bench.upstream::<i64>("source");
    let sink = bench.stage("late", SinkShape::<i64>::new(), move |inlet, _| Late { inlet, log: logged });
    bench.connect(source.outlet(), sink.inlet(0));
    bench.start().unwrap();
    source.complete(&mut bench);
    assert!(!bench.is_completed());
    assert_eq!(log.take(), [""; 0]);
    bench.advance(std::time::Duration::from_secs(1));
    assert_eq!(log.take(), ["timer", "stop"]);
    assert!(bench.is_completed());
}

/// Used by the table of cancellations, too.
#[test]
fn causes_have_texts() {
    assert_eq!(cause_text(&Cancellation::Failed(boom())), "boom");
}
