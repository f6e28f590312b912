//! What safe code can do wrong: ports that are another stage's, callbacks that name another type, shapes that lie,
//! destructors that panic, hosts that are run by their own stages. The stage at fault fails, or an error names it; nothing
//! else is touched. Under Miri these are checks for undefined behaviour.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::rc::Rc;

use atoll::base::Nanos;
use atoll::stream::attributes::Placement;
use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::error::AbruptTermination;
use atoll::stream::host::{HostInbox, StreamHost, current};
use atoll::stream::interpreter::{Context, Inlet, Outlet, PortWiring, WiringError};
use atoll::stream::operators::ElementwiseOps;
use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};
use atoll::stream::stage::{FlowPorts, FlowShape, GraphStage, Logic, Setup, Shape, SinkShape, SourceShape};
use atoll::stream::testkit::InterpreterBench;
use atoll::stream::{Attributes, Cancellation};

use crate::running::{Running, all};

type Stolen<T> = Rc<RefCell<Option<T>>>;

struct Idle;

impl Logic for Idle {}

struct Same<T>(std::marker::PhantomData<T>);

impl<T: 'static> Elementwise for Same<T> {
    type In = T;
    type Out = T;

    fn step(&mut self, element: T) -> Step<T> {
        Step::Emit(element)
    }
}

fn same<T>() -> Same<T> {
    Same(std::marker::PhantomData)
}

// ---- ports ----

#[test]
fn an_elementwise_stage_with_the_inlet_of_another_type_fails() {
    let mut bench = InterpreterBench::new();
    let stolen: Stolen<Inlet<String>> = Rc::default();
    let (strings, numbers) = (bench.upstream::<String>("strings"), bench.upstream::<u64>("numbers"));
    let sink = bench.downstream::<String>("sink");
    let kept = Rc::clone(&stolen);
    let victim = bench.stage("victim", SinkShape::<String>::new(), move |inlet, _| {
        *kept.borrow_mut() = Some(inlet);
        Idle
    });
    let thief = bench.stage("thief", FlowShape::<u64, String>::new(), move |ports, _| {
        let inlet = stolen.borrow_mut().take().unwrap();
        ElementwiseStage::new(FlowPorts { inlet, outlet: ports.outlet }, same::<String>())
    });
    bench.connect(strings.outlet(), victim.inlet(0));
    bench.connect(numbers.outlet(), thief.inlet(0));
    bench.connect(thief.outlet(0), sink.inlet());
    bench.start().unwrap();
    sink.pull(&mut bench).unwrap();
    let _ = numbers.push(&mut bench, 0x7fff_1234_5678);
    let events = bench.events_text();
    assert!(!events.contains("Next"), "{events}");
}

#[test]
fn an_elementwise_stage_with_the_outlet_of_an_island_that_is_gone_fails() {
    let stolen: Stolen<Outlet<u64>> = Rc::default();
    {
        let mut gone = InterpreterBench::new();
        let kept = Rc::clone(&stolen);
        let source = gone.stage("source", SourceShape::<u64>::new(), move |outlet, _| {
            *kept.borrow_mut() = Some(outlet);
            Idle
        });
        let sink = gone.downstream::<u64>("sink");
        gone.connect(source.outlet(0), sink.inlet());
        gone.start().unwrap();
    }
    let mut bench = InterpreterBench::new();
    let (source, sink) = (bench.upstream::<u64>("source"), bench.downstream::<u64>("sink"));
    let thief = bench.stage("thief", FlowShape::<u64, u64>::new(), move |ports, _| {
        let outlet = stolen.borrow_mut().take().unwrap();
        ElementwiseStage::new(FlowPorts { inlet: ports.inlet, outlet }, same::<u64>())
    });
    bench.connect(source.outlet(), thief.inlet(0));
    bench.connect(thief.outlet(0), sink.inlet());
    bench.start().unwrap();
    sink.pull(&mut bench).unwrap();
    source.push(&mut bench, 1).unwrap();
    let events = bench.events_text();
    assert!(events.contains("Failure sink"), "{events}");
}

/// Uses a port, whoever it belongs to, when it is asked.
struct Uses {
    outlet: Outlet<u64>,
    inlet: Inlet<u64>,
}

impl Logic for Uses {
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        assert!(self.outlet.is_available(context));
        self.inlet.pull(context);
    }
}

#[test]
fn a_port_works_in_its_own_island_only_even_if_that_is_gone() {
    for is_gone in [false, true] {
        let stolen: Stolen<Inlet<u64>> = Rc::default();
        let mut other = InterpreterBench::new();
        let (source, kept) = (other.upstream::<u64>("source"), Rc::clone(&stolen));
        let victim = other.stage("victim", SinkShape::<u64>::new(), move |inlet, _| {
            *kept.borrow_mut() = Some(inlet);
            Idle
        });
        other.connect(source.outlet(), victim.inlet(0));
        other.start().unwrap();
        if is_gone {
            other.close();
        }
        let mut bench = InterpreterBench::new();
        let sink = bench.downstream::<u64>("sink");
        let thief = bench.stage("thief", SourceShape::<u64>::new(), move |outlet, _| {
            let inlet = stolen.borrow_mut().take().unwrap();
            Uses { outlet, inlet }
        });
        bench.connect(thief.outlet(0), sink.inlet());
        bench.start().unwrap();
        sink.pull(&mut bench).unwrap();
        let events = bench.events_text();
        assert!(events.contains("another island"), "{events}");
    }
}

#[test]
fn ports_and_islands_stay_on_their_thread() {
    // `is_send` is ambiguous, and does not compile, for types that are `Send`.
    trait NotSend<A> {
        fn stays() {}
    }
    impl<T: ?Sized> NotSend<()> for T {}
    struct IsSend;
    impl<T: ?Sized + Send> NotSend<IsSend> for T {}
    trait NotSync<A> {
        fn stays_unshared() {}
    }
    impl<T: ?Sized> NotSync<()> for T {}
    impl<T: ?Sized + Sync> NotSync<IsSend> for T {}
    <Inlet<u8> as NotSend<_>>::stays();
    <Outlet<u8> as NotSend<_>>::stays();
    <Context as NotSend<_>>::stays();
    <atoll::stream::interpreter::Island as NotSend<_>>::stays();
    <Inlet<u8> as NotSync<_>>::stays_unshared();
    <Outlet<u8> as NotSync<_>>::stays_unshared();
    <Context as NotSync<_>>::stays_unshared();
}

// ---- callbacks ----

#[test]
fn a_callback_that_names_another_stage_fails_the_stage() {
    let mut bench = InterpreterBench::new();
    let callback = Rc::new(RefCell::new(None));
    let (source, sink, kept) = (bench.upstream::<u64>("source"), bench.downstream::<u64>("sink"), Rc::clone(&callback));
    let stage = bench.stage("stage", FlowShape::<u64, u64>::new(), move |ports, setup: &Setup<'_>| {
        // Whoever got the stage could exchange its ports, which it uses without a check.
        *kept.borrow_mut() = Some(setup.callback(|_: &mut ElementwiseStage<Same<u64>>, _, ()| unreachable!()));
        ElementwiseStage::new(ports, same::<u64>())
    });
    bench.connect(source.outlet(), stage.inlet(0));
    bench.connect(stage.outlet(0), sink.inlet());
    bench.start().unwrap();
    callback.borrow().as_ref().unwrap().invoke(()).unwrap();
    bench.run();
    let events = bench.events_text();
    assert!(events.contains("Failure sink") && events.contains("names another type"), "{events}");
}

// ---- shapes ----

/// A flow whose ports are made as it says: `i` and `o`.
#[derive(Clone)]
struct Lying(&'static str);

impl Shape for Lying {
    type Ports = (Vec<Inlet<u64>>, Vec<Outlet<u64>>);

    fn inlets(&self) -> usize {
        1
    }

    fn outlets(&self) -> usize {
        1
    }

    fn connection_bytes(&self) -> usize {
        0
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Self::Ports {
        let (mut inlets, mut outlets) = (Vec::new(), Vec::new());
        for port in self.0.chars() {
            if port == 'i' { inlets.push(wiring.inlet()) } else { outlets.push(wiring.outlet()) }
        }
        (inlets, outlets)
    }
}

#[test]
fn a_shape_that_lies_is_an_error_that_names_the_stage() {
    for ports in ["", "i", "o", "oi", "iio", "ioo", "ioi", "ii", "oo"] {
        let mut bench = InterpreterBench::new();
        let (source, sink) = (bench.upstream::<u64>("source"), bench.downstream::<u64>("sink"));
        let liar = bench.stage("liar", Lying(ports), |_, _| Idle);
        bench.connect(source.outlet(), liar.inlet(0));
        bench.connect(liar.outlet(0), sink.inlet());
        let error = bench.start().unwrap_err();
        assert!(error.to_string().contains("[liar]"), "{ports}: {error}");
        assert_eq!(matches!(error, WiringError::PortOrder { .. }), ["oi", "ioi"].contains(&ports), "{ports}: {error}");
    }
}

// ---- destructors ----

thread_local! {
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

/// Panics when it is dropped, without the message of the hook.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
        if !std::thread::panicking() {
            resume_unwind(Box::new("an element panics when it is dropped"));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    /// Cancels and leaves the element in its inlet.
    Cancels,
    /// Pulls and leaves the element to be replaced.
    Pulls,
    /// Panics with a bomb.
    Panics,
    /// Has a bomb as its state.
    Keeps,
}

struct LeavingSink(Leaves);

struct LeavingLogic {
    inlet: Inlet<Bomb>,
    leaves: Leaves,
    kept: Option<Bomb>,
}

impl GraphStage for LeavingSink {
    type Shape = SinkShape<Bomb>;
    type Seed = Leaves;
    type Mat = ();
    type Logic = LeavingLogic;

    fn name(&self) -> &'static str {
        "leaving"
    }

    fn shape(&self) -> Self::Shape {
        SinkShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (Leaves, ()) {
        (self.0, ())
    }

    fn create(leaves: Leaves, inlet: Inlet<Bomb>, _: &Setup<'_>) -> LeavingLogic {
        LeavingLogic { inlet, leaves, kept: None }
    }
}

impl Logic for LeavingLogic {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        match self.leaves {
            Leaves::Cancels => self.inlet.cancel(context),
            Leaves::Pulls => self.inlet.pull(context),
            Leaves::Panics => resume_unwind(Box::new(self.inlet.grab(context))),
            Leaves::Keeps => {
                self.kept = Some(self.inlet.grab(context));
                self.inlet.cancel_because(context, Cancellation::NoMoreElementsNeeded);
            }
        }
    }

    fn post_stop(&mut self, _: &mut Context) {
        if self.leaves == Leaves::Keeps {
            resume_unwind(Box::new(Bomb));
        }
    }
}

#[test]
fn a_destructor_that_panics_ends_no_more_than_its_stream() {
    for leaves in [Leaves::Cancels, Leaves::Pulls, Leaves::Panics, Leaves::Keeps] {
        for aborts in [false, true] {
            let running = Running::new();
            let mut beside = running.start(&Source::from_iterator(|| 0..5).to_right(all()));
            let bombs = Source::from_iterator(|| (0..3).map(|_| Bomb));
            running.start(&bombs.to(Sink::from_stage(LeavingSink(leaves))));
            if aborts {
                running.host.run_one(Nanos::ZERO);
                running.host.abort();
            } else {
                running.settle();
                assert_eq!(beside.try_take().unwrap().unwrap().len(), 5);
            }
            assert_eq!(running.host.islands(), 0, "{leaves:?}");
            assert_eq!(running.host.running_stages(), 0);
        }
    }
}

// ---- hosts ----

/// Does something with its host at the first element.
struct Meddling(fn(&Rc<StreamHost>));

struct MeddlingLogic {
    ports: FlowPorts<u32, u32>,
    meddle: fn(&Rc<StreamHost>),
}

impl GraphStage for Meddling {
    type Shape = FlowShape<u32, u32>;
    type Seed = fn(&Rc<StreamHost>);
    type Mat = ();
    type Logic = MeddlingLogic;

    fn name(&self) -> &'static str {
        "meddling"
    }

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (Self::Seed, ()) {
        (self.0, ())
    }

    fn create(meddle: Self::Seed, ports: FlowPorts<u32, u32>, _: &Setup<'_>) -> MeddlingLogic {
        MeddlingLogic { ports, meddle }
    }
}

impl Logic for MeddlingLogic {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        (self.meddle)(&current::host().unwrap());
        self.ports.outlet.push(context, element);
        // The wake-up comes while the island runs.
        context.waker().wake();
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.ports.inlet.pull(context);
    }
}

fn numbers(to: u32) -> Source<u32> {
    Source::from_iterator(move || 0..to).seal()
}

#[test]
fn a_stage_cannot_run_the_islands_of_its_host() {
    let running = Running::new();
    let runs = Meddling(|host| {
        host.take_events(Nanos::ZERO);
        assert!(!host.run_one(Nanos::ZERO));
    });
    let mut given = running.start(&numbers(10).via_stage(runs).to_right(all()));
    let mut beside = running.start(&numbers(20).to_right(all()));
    running.settle();
    assert_eq!(given.try_take().unwrap().unwrap().len(), 10);
    assert_eq!(beside.try_take().unwrap().unwrap().len(), 20);
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn a_stage_that_stops_its_host_stops_with_it() {
    for events in [1, if cfg!(miri) { 10 } else { 1000 }] {
        let running = Running::new();
        running.host.set_events_per_run(events);
        let mut beside = running.start(&numbers(1 << 20).to_right(all()));
        let mut given = running.start(&numbers(10).via_stage(Meddling(StreamHost::abort)).to_right(all()));
        running.settle();
        assert_eq!(running.host.islands(), 0);
        assert_eq!(running.host.running_stages(), 0);
        assert!(given.try_take().is_some() && beside.try_take().is_some(), "nobody waits");
        assert!(numbers(1).to_right(all()).run_on(&running.host).is_err());
    }
}

/// Asks for its end of run at each of them.
struct Restless;

impl Logic for Restless {
    fn pre_start(&mut self, context: &mut Context) {
        context.call_at_run_end();
    }

    fn on_pull(&mut self, _: &mut Context, _: usize) {}

    fn on_run_end(&mut self, context: &mut Context) {
        context.call_at_run_end();
    }
}

#[test]
fn the_end_of_a_run_comes_even_if_a_stage_asks_for_it_again() {
    let mut bench = InterpreterBench::new();
    let sink = bench.downstream::<u64>("sink");
    let restless = bench.stage("restless", SourceShape::<u64>::new(), |_, _| Restless);
    bench.connect(restless.outlet(0), sink.inlet());
    bench.start().unwrap();
    bench.run();
    bench.run();
}

#[test]
fn a_function_that_panics_on_another_core_leaves_that_core_running() {
    let (own, other) = (HostInbox::new(), HostInbox::new());
    let cores = vec![own.clone(), other.clone()];
    let (here, there) = (StreamHost::new(own), StreamHost::new(other));
    here.set_cores(0, cores.clone());
    there.set_cores(1, cores);
    let panics = Source::from_iterator(|| -> std::ops::Range<u32> { resume_unwind(Box::new("no iterator")) });
    let mut given = panics.on(Placement::Index(1)).to_right(all()).run_on(&here).unwrap();
    let mut now = Nanos::ZERO;
    for _ in 0..100 {
        now = now + core::time::Duration::from_micros(30);
        for host in [&here, &there] {
            host.take_events(now);
            host.run_one(now);
        }
    }
    let error = given.try_take().unwrap().unwrap_err();
    assert!(error.downcast_ref::<AbruptTermination>().is_some(), "{error}");
    assert_eq!((here.islands(), there.islands()), (0, 0));
    let mut next = numbers(3).map(|n| n).seal().on(Placement::Index(1)).to_right(all()).run_on(&here).unwrap();
    for _ in 0..100 {
        now = now + core::time::Duration::from_micros(30);
        for host in [&here, &there] {
            host.take_events(now);
            host.run_one(now);
        }
    }
    assert_eq!(next.try_take().unwrap().unwrap(), [0, 1, 2]);
}

// It has room for more jobs than Miri gets through.
#[cfg(not(miri))]
#[test]
fn an_inbox_that_was_full_takes_jobs_again() {
    let inbox = HostInbox::new();
    let host = StreamHost::new(inbox.clone());
    let mut accepted = 0;
    while inbox.send(Box::new(|_| {})) {
        accepted += 1;
    }
    (0..accepted).for_each(|_| assert!(!inbox.send(Box::new(|_| {}))));
    while !inbox.is_empty() {
        host.take_events(Nanos::ZERO);
    }
    assert!(inbox.send(Box::new(|_| {})));
    drop(host);
    assert!(!inbox.send(Box::new(|_| {})), "nobody takes it any more");
}
