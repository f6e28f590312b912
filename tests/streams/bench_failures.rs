//! A stage that fails in each of its handlers: the table of `GraphInterpreterFailureModesSpec`.
//!
//! Left out: that the failure of a stop is logged once (the log is not looked at).

use std::cell::Cell;
use std::rc::Rc;

use atoll::stream::attributes::TransparentPull;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::Logic;
use atoll::stream::{Attributes, Cancellation, StreamError};

use super::bench_support::*;

struct Failing {
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
    armed: Rc<Cell<bool>>,
    log: Log,
}

impl Failing {
    fn check(&self) {
        if self.armed.replace(false) {
            throw("TE");
        }
    }
}

impl Logic for Failing {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
        self.check();
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.check();
        self.outlet.push(context, element);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.check();
        context.complete_stage();
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        self.check();
        context.fail_stage(error);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.check();
        self.inlet.try_pull(context);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        self.check();
        context.cancel_stage(cause);
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add("stop");
        self.check();
    }
}

struct Setup {
    chain: Chain<i64, i64>,
    armed: Rc<Cell<bool>>,
    log: Log,
}

impl Setup {
    fn new(mode: &Attributes, at_start: bool) -> Setup {
        let (armed, log) = (Rc::new(Cell::new(at_start)), Log::default());
        let (there, logged) = (Rc::clone(&armed), log.clone());
        let mut chain = Chain::<i64, i64>::of(mode, |bench| {
            vec![flow(bench, "failing", move |ports| Failing {
                inlet: ports.inlet,
                outlet: ports.outlet,
                armed: there,
                log: logged,
            })]
        });
        if !at_start {
            assert_eq!(chain.events(), "Request source");
        }
        Setup { chain, armed, log }
    }

    /// Both sides do something before the stage sees either.
    fn together(
        &mut self,
        first: impl FnOnce(&mut Chain<i64, i64>),
        second: impl FnOnce(&mut Chain<i64, i64>),
    ) -> String {
        self.chain.bench.set_event_limit(0);
        first(&mut self.chain);
        second(&mut self.chain);
        self.armed.set(true);
        self.chain.bench.step(1000);
        self.chain.events()
    }

    fn ended(&mut self, events: String, expected: &str, at: &str) {
        assert_eq!(events, expected, "{at}");
        assert_eq!(self.log.take(), ["stop"], "{at}");
        assert!(self.chain.bench.is_completed(), "{at}");
    }
}

#[test]
fn failures_are_told_to_whom_the_table_says() {
    for mode in all_modes() {
        let both = "Cancel source: TE, Failure sink TE";
        let mut setup = Setup::new(&mode, false);
        setup.armed.set(true);
        let events = setup.chain.pull();
        setup.ended(events, both, "on_pull");

        let mut setup = Setup::new(&mode, false);
        setup.chain.pull();
        setup.armed.set(true);
        let events = setup.chain.push(0);
        setup.ended(events, both, "on_push");

        let mut setup = Setup::new(&mode, false);
        setup.armed.set(true);
        let events = setup.chain.complete();
        setup.ended(events, "Failure sink TE", "on_upstream_finish");

        let mut setup = Setup::new(&mode, false);
        setup.armed.set(true);
        let events = setup.chain.fail();
        setup.ended(events, "Failure sink TE", "on_upstream_failure");

        let mut setup = Setup::new(&mode, false);
        setup.armed.set(true);
        let events = setup.chain.cancel();
        setup.ended(events, "Cancel source: TE", "on_downstream_finish");

        let mut setup = Setup::new(&mode, true);
        let events = setup.chain.events();
        setup.ended(events, both, "pre_start");
    }
}

#[test]
fn failures_while_an_end_is_on_its_way() {
    for mode in [Attributes::none(), Attributes::of(TransparentPull(false))] {
        let mut setup = Setup::new(&mode, false);
        let events = setup
            .together(|chain| chain.sink.pull(&mut chain.bench).unwrap(), |chain| chain.sink.cancel(&mut chain.bench));
        setup.ended(events, "Cancel source: TE", "on_pull while a cancellation is pending");

        let mut setup = Setup::new(&mode, false);
        setup.chain.pull();
        let events = setup.together(
            |chain| chain.source.push(&mut chain.bench, 0).unwrap(),
            |chain| chain.source.complete(&mut chain.bench),
        );
        setup.ended(events, "Failure sink TE", "on_push while a completion is pending");
    }
}

#[test]
fn a_failure_when_both_sides_have_closed_is_nobodys() {
    for mode in all_modes() {
        let mut setup = Setup::new(&mode, false);
        let events = setup
            .together(|chain| chain.source.complete(&mut chain.bench), |chain| chain.sink.cancel(&mut chain.bench));
        setup.ended(events, "", "both sides closed");
    }
}
