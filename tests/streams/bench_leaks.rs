//! However a stream ends, no element and no stage is left: both are counted while they live.

use std::cell::Cell;
use std::rc::Rc;

use atoll::stream::Attributes;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::elementwise::Step;
use atoll::stream::stage::{FlowShape, Logic};
use atoll::stream::testkit::{InterpreterBench, StageHandle};

use super::bench_stages::*;
use super::bench_support::*;

/// Counts how many of it live.
struct Live(Rc<Cell<i64>>, Box<i64>);

impl Live {
    fn new(count: &Rc<Cell<i64>>, value: i64) -> Live {
        count.set(count.get() + 1);
        Live(Rc::clone(count), Box::new(value))
    }
}

impl Clone for Live {
    fn clone(&self) -> Live {
        Live::new(&self.0, *self.1)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.1.fmt(formatter)
    }
}

/// Passes on; is itself counted; throws at a negative element.
struct Counted {
    inlet: Inlet<Live>,
    outlet: Outlet<Live>,
    _alive: Live,
}

impl Logic for Counted {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if *element.1 < 0 {
            throw("TE");
        }
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

fn counted(bench: &mut InterpreterBench, count: &Rc<Cell<i64>>) -> StageHandle {
    let alive = Live::new(count, 0);
    bench.stage("counted", FlowShape::<Live, Live>::new(), move |ports, _| Counted {
        inlet: ports.inlet,
        outlet: ports.outlet,
        _alive: alive,
    })
}

/// Puts two elements ahead of what comes.
struct Emits {
    inlet: Inlet<Live>,
    outlet: Outlet<Live>,
    ahead: Option<[Live; 2]>,
}

impl Logic for Emits {
    fn pre_start(&mut self, context: &mut Context) {
        if let Some([first, second]) = self.ahead.take() {
            context.emit_then::<Emits, Live>(&self.outlet, first, |_, _| {});
            context.emit_multiple(&self.outlet, std::iter::once(second));
        }
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.try_pull(context);
    }
}

/// Reads three at once, and pushes the first.
struct Reads {
    inlet: Inlet<Live>,
    outlet: Outlet<Live>,
}

impl Logic for Reads {
    fn on_push(&mut self, _: &mut Context, _: usize) {}

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        context.read_n::<Reads, Live>(
            &self.inlet,
            3,
            |stage, context, mut read| context.emit(&stage.outlet, read.remove(0)),
            |_, _, _| {},
        );
    }
}

const STAGES: usize = 8;

/// A bit of everything between the counted stages.
fn stages(bench: &mut InterpreterBench, count: &Rc<Cell<i64>>, which: usize) -> Vec<StageHandle> {
    let mut stages = vec![counted(bench, count)];
    let live = Rc::clone(count);
    stages.extend(match which {
        0 => vec![],
        1 => vec![detacher::<Live>(bench)],
        2 => vec![doubler::<Live>(bench)],
        3 => vec![map(bench, |live: Live| live), map(bench, |live: Live| live.clone())],
        4 => vec![each(bench, "odd", |live: Live| if *live.1 % 2 == 0 { Step::Skip } else { Step::Emit(live) })],
        5 => vec![take::<Live>(bench, 2)],
        6 => vec![flow(bench, "emits", move |ports| Emits {
            inlet: ports.inlet,
            outlet: ports.outlet,
            ahead: Some([Live::new(&live, 1), Live::new(&live, 2)]),
        })],
        _ => vec![flow(bench, "reads", |ports| Reads { inlet: ports.inlet, outlet: ports.outlet })],
    });
    stages.push(counted(bench, count));
    stages
}

#[derive(Clone, Copy, Debug)]
enum End {
    Complete,
    PushAndComplete,
    Fail,
    PushAndFail,
    Cancel,
    PushAndCancel,
    Throw,
    Abort,
    Close,
    Nothing,
}

const ENDS: [End; 10] = [
    End::Complete,
    End::PushAndComplete,
    End::Fail,
    End::PushAndFail,
    End::Cancel,
    End::PushAndCancel,
    End::Throw,
    End::Abort,
    End::Close,
    End::Nothing,
];

fn end(chain: &mut Chain<Live, Live>, count: &Rc<Cell<i64>>, end: End) {
    let Chain { bench, source, sink } = chain;
    let may_push = source.is_available(bench);
    match end {
        End::Complete => source.complete(bench),
        End::PushAndComplete if may_push => source.push_and_complete(bench, Live::new(count, 5)).unwrap(),
        End::PushAndFail if may_push => source.push_and_fail(bench, Live::new(count, 5), boom()).unwrap(),
        End::PushAndCancel if may_push => {
            source.push(bench, Live::new(count, 5)).unwrap();
            sink.cancel(bench);
        }
        End::Throw if may_push => source.push(bench, Live::new(count, -1)).unwrap(),
        End::Fail => source.fail(bench, boom()),
        End::Cancel => sink.cancel(bench),
        End::Abort => bench.island().abort(),
        End::Close => bench.close(),
        _ => {}
    }
}

/// Runs a stream for so many rounds, with so many events after each action, and ends it so.
fn run(mode: &Attributes, which: usize, rounds: usize, events: u32, how: End) -> Rc<Cell<i64>> {
    let count = Rc::new(Cell::new(0));
    let mut chain = Chain::<Live, Live>::of(mode, |bench| stages(bench, &count, which));
    chain.bench.set_event_limit(events);
    for round in 0..rounds {
        let Chain { bench, source, sink } = &mut chain;
        if sink.check_pull(bench).is_ok() {
            sink.pull(bench).unwrap();
        }
        if source.is_available(bench) {
            source.push(bench, Live::new(&count, round as i64)).unwrap();
        }
    }
    end(&mut chain, &count, how);
    if !matches!(how, End::Close) {
        chain.bench.step(1000);
        drop(chain.sink.received());
        chain.bench.last_events();
        if chain.bench.is_completed() {
            assert_eq!(count.get(), 0, "completed, but alive: {mode:?} {which} {rounds} {events} {how:?}");
        }
    }
    drop(chain);
    count
}

#[test]
fn nothing_is_left() {
    let modes = if cfg!(miri) { exact_modes() } else { all_modes() };
    for mode in &modes {
        for which in 0..STAGES {
            for rounds in if cfg!(miri) { 2..4 } else { 0..8 } {
                for events in [0, 1, 2, 3, 1000] {
                    for how in ENDS {
                        let count = run(mode, which, rounds, events, how);
                        assert_eq!(count.get(), 0, "{mode:?} {which} {rounds} {events} {how:?}");
                    }
                }
            }
        }
    }
}

/// The counter sees what lives on.
#[test]
fn a_leak_is_seen() {
    let count = Rc::new(Cell::new(0));
    std::mem::forget(Live::new(&count, 1));
    assert_eq!(count.get(), 1);
    // What is forgotten is given back, so that a tool that looks for leaks is content.
    count.set(0);
}

/// An island that cannot be built drops the stages that it has.
#[test]
fn an_island_that_is_given_up_drops_its_stages() {
    let count = Rc::new(Cell::new(0));
    let mut bench = InterpreterBench::new();
    let source = bench.upstream::<Live>("source");
    let stage = counted(&mut bench, &count);
    bench.connect(source.outlet(), stage.inlet(0));
    let error = bench.start().unwrap_err();
    assert_eq!(error.to_string(), "stage [counted]: out0 is not connected");
    assert_eq!(count.get(), 0);

    let mut bench = InterpreterBench::new();
    let (source, sink) = (bench.upstream::<u8>("source"), bench.downstream::<u16>("sink"));
    bench.connect(source.outlet(), sink.inlet());
    let error = bench.start().unwrap_err();
    assert_eq!(error.to_string(), "stage [sink]: a port takes elements of u16, the other end of its wire has u8");
}
