use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::*;
use crate::base::Nanos;
use crate::stream::error::{AbruptTermination, Cancellation, StreamError};
use crate::stream::host::{HostInbox, StreamHost};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::{ErasedStage, GraphStage, Logic, Setup, SinkShape, SourceShape};
use std::rc::Rc;

// ---- what crosses, and what was seen of it ----

/// An element that is counted as long as it lives.
struct Counted(u64, Arc<Case>);

impl Counted {
    fn new(number: u64, case: &Arc<Case>) -> Counted {
        case.live.fetch_add(1, Ordering::Relaxed);
        Counted(number, Arc::clone(case))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.live.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Said {
    Completed,
    Failed(StreamError),
    Cancelled(Cancellation),
}

/// The plan of one stream, and what happened.
#[derive(Default)]
struct Case {
    count: u64,
    /// How the source ends after its elements.
    source_end: Option<Said>,
    /// After how many elements the sink cancels, and why.
    sink_cancels: Option<(u64, Said)>,
    /// Of 8 events, how many are put off to a later run.
    source_delays: u64,
    sink_delays: u64,
    /// The source gives nothing but what `permits` allow; the sink likewise.
    permits: Option<AtomicI64>,
    sink_permits: Option<AtomicI64>,
    wakers: Mutex<Vec<Waker>>,
    live: AtomicI64,
    pushed: AtomicUsize,
    taken: AtomicUsize,
    in_flight_max: AtomicUsize,
    received: Mutex<Vec<u64>>,
    sink_saw: Mutex<Option<Said>>,
    source_saw: Mutex<Option<Said>>,
    stopped: AtomicUsize,
}

impl Case {
    fn wake(&self) {
        let wakers = self.wakers.lock().unwrap();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    fn received(&self) -> Vec<u64> {
        self.received.lock().unwrap().clone()
    }

    fn sink_saw(&self) -> Option<Said> {
        self.sink_saw.lock().unwrap().clone()
    }

    fn source_saw(&self) -> Option<Said> {
        self.source_saw.lock().unwrap().clone()
    }
}

fn permitted(permits: &Option<AtomicI64>) -> bool {
    permits.as_ref().is_none_or(|permits| {
        permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| (left > 0).then(|| left - 1)).is_ok()
    })
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

// ---- a source and a sink ----

struct Numbers(Arc<Case>);

struct NumbersLogic {
    case: Arc<Case>,
    outlet: Outlet<Counted>,
    next: u64,
    random: Random,
    looking: bool,
}

impl NumbersLogic {
    fn give(&mut self, context: &mut Context) {
        if self.next == self.case.count {
            match &self.case.source_end {
                Some(Said::Failed(error)) => self.outlet.fail(context, error.clone()),
                Some(_) => self.outlet.complete(context),
                None => {}
            }
            return;
        }
        if !self.outlet.is_available(context) || self.looking {
            return;
        }
        if self.random.below(8) < self.case.source_delays {
            self.looking = true;
            context.look_again();
            return;
        }
        if !permitted(&self.case.permits) {
            return;
        }
        let pushed = self.case.pushed.fetch_add(1, Ordering::Relaxed) + 1;
        let in_flight = pushed - self.case.taken.load(Ordering::Relaxed);
        self.case.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        self.outlet.push(context, Counted::new(self.next, &self.case));
        self.next += 1;
        if self.next == self.case.count {
            self.give(context);
        }
    }
}

impl Logic for NumbersLogic {
    fn pre_start(&mut self, context: &mut Context) {
        if self.case.count == 0 {
            self.give(context);
        }
    }
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.give(context);
    }
    fn on_wake(&mut self, context: &mut Context) {
        self.give(context);
    }
    fn on_look(&mut self, context: &mut Context) {
        self.looking = false;
        self.give(context);
    }
    fn on_downstream_finish(&mut self, _: &mut Context, _: usize, cause: Cancellation) {
        *self.case.source_saw.lock().unwrap() = Some(Said::Cancelled(cause));
    }
    fn post_stop(&mut self, _: &mut Context) {
        self.case.stopped.fetch_add(1, Ordering::Relaxed);
    }
}

impl GraphStage for Numbers {
    type Shape = SourceShape<Counted>;
    type Seed = Arc<Case>;
    type Mat = ();
    type Logic = NumbersLogic;
    fn name(&self) -> &'static str {
        "numbers"
    }
    fn shape(&self) -> Self::Shape {
        SourceShape::new()
    }
    fn prepare(&self, _: &Attributes) -> (Arc<Case>, ()) {
        (Arc::clone(&self.0), ())
    }
    fn create(case: Arc<Case>, outlet: Outlet<Counted>, setup: &Setup<'_>) -> NumbersLogic {
        case.wakers.lock().unwrap().push(setup.waker());
        NumbersLogic { case, outlet, next: 0, random: Random(0x9e37_79b9_7f4a_7c15), looking: false }
    }
}

struct Gather(Arc<Case>);

struct GatherLogic {
    case: Arc<Case>,
    inlet: Inlet<Counted>,
    taken: u64,
    random: Random,
    looking: bool,
}

impl GatherLogic {
    fn ask(&mut self, context: &mut Context) {
        if self.inlet.is_closed(context) || self.inlet.has_been_pulled(context) || self.looking {
            return;
        }
        if let Some((after, why)) = &self.case.sink_cancels
            && self.taken == *after
        {
            match why {
                Said::Failed(error) => context.fail_stage(error.clone()),
                _ => self.inlet.cancel(context),
            }
            return;
        }
        if self.random.below(8) < self.case.sink_delays {
            self.looking = true;
            context.look_again();
        } else if permitted(&self.case.sink_permits) {
            self.inlet.pull(context);
        }
    }
}

impl Logic for GatherLogic {
    fn pre_start(&mut self, context: &mut Context) {
        self.ask(context);
    }
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.case.taken.fetch_add(1, Ordering::Relaxed);
        self.case.received.lock().unwrap().push(element.0);
        self.taken += 1;
        self.ask(context);
    }
    fn on_wake(&mut self, context: &mut Context) {
        self.ask(context);
    }
    fn on_look(&mut self, context: &mut Context) {
        self.looking = false;
        self.ask(context);
    }
    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        *self.case.sink_saw.lock().unwrap() = Some(Said::Completed);
    }
    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        *self.case.sink_saw.lock().unwrap() = Some(Said::Failed(error));
    }
    fn post_stop(&mut self, _: &mut Context) {
        self.case.stopped.fetch_add(1, Ordering::Relaxed);
    }
}

impl GraphStage for Gather {
    type Shape = SinkShape<Counted>;
    type Seed = Arc<Case>;
    type Mat = ();
    type Logic = GatherLogic;
    fn name(&self) -> &'static str {
        "gather"
    }
    fn shape(&self) -> Self::Shape {
        SinkShape::new()
    }
    fn prepare(&self, _: &Attributes) -> (Arc<Case>, ()) {
        (Arc::clone(&self.0), ())
    }
    fn create(case: Arc<Case>, inlet: Inlet<Counted>, setup: &Setup<'_>) -> GatherLogic {
        case.wakers.lock().unwrap().push(setup.waker());
        GatherLogic { case, inlet, taken: 0, random: Random(0x2545_f491_4f6c_dd1d), looking: false }
    }
}

/// The seeds of both islands.
type Seeds = Vec<Box<dyn Seed>>;

fn islands(case: &Arc<Case>, capacity: usize) -> (Seeds, Seeds) {
    let none = Attributes::none();
    let (output, input) = BoundaryType::of::<Counted>().make(capacity);
    let source = Numbers(Arc::clone(case)).prepare_elsewhere(&none).0;
    let sink = Gather(Arc::clone(case)).prepare_elsewhere(&none).0;
    (vec![source, output], vec![input, sink])
}

fn spawn(host: &Rc<StreamHost>, seeds: Seeds) {
    host.spawn(chain(seeds, &Attributes::none()).unwrap()).unwrap();
}

// ---- one thread ----

/// The clock stands still, so that sides look for each other as often as they can. Miri has no time for that.
fn now() -> Nanos {
    thread_local! {
        static TURNS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    TURNS.set(TURNS.get() + 1);
    if cfg!(miri) { Nanos(TURNS.get() * 20_000) } else { Nanos(1) }
}

struct Pair {
    case: Arc<Case>,
    up: Rc<StreamHost>,
    down: Rc<StreamHost>,
}

impl Pair {
    fn new(case: Case, capacity: usize) -> Pair {
        let case = Arc::new(case);
        let (up, down) = (StreamHost::new(HostInbox::new()), StreamHost::new(HostInbox::new()));
        let (source, sink) = islands(&case, capacity);
        spawn(&up, source);
        spawn(&down, sink);
        Pair { case, up, down }
    }

    fn step(host: &Rc<StreamHost>) -> bool {
        let now = now();
        host.take_events(now);
        host.run_one(now)
    }

    /// Until nobody has anything to do. What then does not happen never would.
    fn run(&self) {
        while Self::step(&self.up) | Self::step(&self.down) {}
    }

    fn is_over(&self) -> bool {
        self.up.islands() + self.down.islands() == 0
    }
}

fn is_abrupt(error: &StreamError) -> bool {
    error.downcast_ref::<AbruptTermination>().is_some()
}

/// What must hold at the end of any case.
fn judge(case: &Case, capacity: usize, up_aborted: bool, down_aborted: bool) {
    let (received, sink_saw, source_saw) = (case.received(), case.sink_saw(), case.source_saw());
    let in_order: Vec<u64> = (0..received.len() as u64).collect();
    assert_eq!(received, in_order, "order");
    assert!(received.len() as u64 <= case.count);
    // One is in the hands of the sink's island.
    assert!(case.in_flight_max.load(Ordering::Relaxed) <= capacity + 1, "back-pressure");
    match &sink_saw {
        Some(Said::Completed) => {
            assert!(matches!(case.source_end, Some(Said::Completed)));
            assert_eq!(received.len() as u64, case.count, "completion comes after all elements");
        }
        Some(Said::Failed(error)) => match &case.source_end {
            Some(Said::Failed(own)) if own.is_same(error) => {}
            _ => assert!(up_aborted && is_abrupt(error), "{error}"),
        },
        Some(Said::Cancelled(_)) => unreachable!(),
        None => assert!(down_aborted || case.sink_cancels.is_some(), "the sink has learned of the end"),
    }
    match (&source_saw, &case.sink_cancels) {
        (Some(Said::Cancelled(Cancellation::Failed(error))), why) => match why {
            Some((_, Said::Failed(own))) if own.is_same(error) => {}
            _ => assert!(down_aborted && is_abrupt(error), "{error}"),
        },
        (Some(Said::Cancelled(Cancellation::NoMoreElementsNeeded)), why) => {
            assert!(matches!(why, Some((_, Said::Completed))));
        }
        (Some(other), _) => panic!("{other:?}"),
        (None, _) => {}
    }
    assert_eq!(case.live.load(Ordering::Relaxed), 0, "each element is dropped once");
    assert_eq!(case.stopped.load(Ordering::Relaxed), 2, "each stage stops once");
}

fn random_case(random: &mut Random) -> Case {
    let count = [0, 1, 2, random.below(20), random.below(300)][random.below(5) as usize];
    let source_end = if random.below(3) == 0 { Said::Failed(StreamError::text("source")) } else { Said::Completed };
    let sink_cancels = (random.below(3) == 0).then(|| {
        let why = if random.below(2) == 0 { Said::Failed(StreamError::text("sink")) } else { Said::Completed };
        (random.below(count + 1), why)
    });
    let (source_delays, sink_delays) = (random.below(3) * random.below(4), random.below(3) * random.below(4));
    Case { count, source_end: Some(source_end), sink_cancels, source_delays, sink_delays, ..Case::default() }
}

#[test]
fn any_stream_ends_well_however_its_islands_take_turns() {
    let seeds = if cfg!(miri) { 40 } else { 6_000 };
    for seed in 1..=seeds {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let capacity = 1 << random.below(7);
        let aborts = (random.below(3) == 0).then(|| (random.below(60), random.below(2) == 0));
        let pair = Pair::new(random_case(&mut random), capacity);
        let events = 1 + random.below(12) as u32;
        pair.up.set_events_per_run(events);
        pair.down.set_events_per_run(events);
        let (mut up_aborted, mut down_aborted) = (false, false);
        for step in 0.. {
            if let Some((at, up)) = aborts
                && step == at
            {
                let host = if up { &pair.up } else { &pair.down };
                (up_aborted, down_aborted) = (up, !up);
                host.abort();
            }
            let host = if random.below(2) == 0 { &pair.up } else { &pair.down };
            let ran = Pair::step(host);
            if !ran && !pair.up.has_work() && !pair.down.has_work() && aborts.is_none_or(|(at, _)| step > at) {
                break;
            }
        }
        assert!(pair.is_over(), "seed {seed}: nobody has anything to do, but the stream has not ended");
        judge(&pair.case, capacity, up_aborted, down_aborted);
    }
}

#[test]
fn all_elements_come_before_the_completion() {
    for capacity in [1, 2, 16, 64] {
        let count = if cfg!(miri) { 5 } else { 1_000 };
        let pair = Pair::new(Case { count, source_end: Some(Said::Completed), ..Case::default() }, capacity);
        pair.run();
        assert!(pair.is_over() && matches!(pair.case.sink_saw(), Some(Said::Completed)));
        judge(&pair.case, capacity, false, false);
    }
}

#[test]
fn an_element_alone_does_not_wait_for_others() {
    let case = Case { count: 10_000, permits: Some(AtomicI64::new(0)), ..Case::default() };
    let pair = Pair::new(case, 64);
    pair.run();
    for arrived in 1..20 {
        // Both sides sleep. One permit wakes the source; what it gives wakes the sink.
        pair.case.permits.as_ref().unwrap().store(1, Ordering::Relaxed);
        pair.case.wake();
        pair.run();
        assert_eq!(pair.case.received().len(), arrived);
    }
}

#[test]
fn demand_bounds_what_is_under_way() {
    for capacity in [1, 2, 4, 64] {
        let case = Case { count: 10_000, sink_permits: Some(AtomicI64::new(0)), ..Case::default() };
        let pair = Pair::new(case, capacity);
        pair.run();
        assert_eq!(pair.case.pushed.load(Ordering::Relaxed), capacity, "filled, though nobody asks");
        for permits in [1_i64, 2, 1, 64, 3] {
            let before = pair.case.received().len();
            pair.case.sink_permits.as_ref().unwrap().store(permits, Ordering::Relaxed);
            pair.case.wake();
            pair.run();
            assert_eq!(pair.case.received().len(), before + permits as usize, "as much as asked for");
        }
        assert!(pair.case.in_flight_max.load(Ordering::Relaxed) <= capacity + 1);
        drop(pair.up);
        pair.down.abort();
        assert_eq!(pair.case.live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_failure_overtakes_what_is_buffered_and_needs_no_demand() {
    let error = StreamError::text("source");
    let case = Case {
        count: 10,
        source_end: Some(Said::Failed(error.clone())),
        permits: Some(AtomicI64::new(10)),
        sink_permits: Some(AtomicI64::new(3)),
        ..Case::default()
    };
    let pair = Pair::new(case, 16);
    pair.run();
    let Some(Said::Failed(seen)) = pair.case.sink_saw() else { panic!("{:?}", pair.case.sink_saw()) };
    assert!(seen.is_same(&error));
    assert!(pair.is_over() && pair.case.received().len() <= 3);
    judge(&pair.case, 16, false, false);
}

#[test]
fn completion_of_an_empty_boundary_needs_no_demand_but_elements_do() {
    let case =
        Case { count: 2, source_end: Some(Said::Completed), sink_permits: Some(AtomicI64::new(0)), ..Case::default() };
    let pair = Pair::new(case, 4);
    pair.run();
    assert!(pair.case.sink_saw().is_none());
    for seen in 1..=2 {
        pair.case.sink_permits.as_ref().unwrap().store(1, Ordering::Relaxed);
        pair.case.wake();
        pair.run();
        assert_eq!((pair.case.received().len(), pair.case.sink_saw().is_some()), (seen, seen == 2));
    }
    assert!(pair.is_over());
}

#[test]
fn a_cancellation_reaches_a_source_that_is_silent_or_full() {
    for (permits, cancel_after) in [(0, 0), (100, 0), (100, 3)] {
        let own = StreamError::text("sink");
        let case = Case {
            count: 10_000,
            permits: Some(AtomicI64::new(permits)),
            sink_cancels: Some((cancel_after, Said::Failed(own.clone()))),
            ..Case::default()
        };
        let pair = Pair::new(case, 8);
        pair.run();
        let Some(Said::Cancelled(Cancellation::Failed(seen))) = pair.case.source_saw() else { panic!() };
        assert!(seen.is_same(&own) && pair.is_over());
        assert_eq!(pair.case.live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_side_that_disappears_ends_the_other_one_at_once() {
    // The consuming island, while the source is silent.
    let silent = || Case { count: 10, permits: Some(AtomicI64::new(4)), ..Case::default() };
    let pair = Pair::new(silent(), 64);
    pair.run();
    pair.down.abort();
    pair.run();
    assert!(matches!(pair.case.source_saw(), Some(Said::Cancelled(Cancellation::Failed(error))) if is_abrupt(&error)));
    // The producing island, while the sink does not ask.
    let pair = Pair::new(Case { sink_permits: Some(AtomicI64::new(1)), ..silent() }, 64);
    pair.run();
    pair.up.abort();
    pair.run();
    assert!(matches!(pair.case.sink_saw(), Some(Said::Failed(error)) if is_abrupt(&error)));
    assert_eq!(pair.case.live.load(Ordering::Relaxed), 0);
    // A seed that never becomes a stage.
    let case = Arc::new(silent());
    let (source, sink) = islands(&case, 4);
    let down = StreamHost::new(HostInbox::new());
    spawn(&down, sink);
    drop(source);
    while Pair::step(&down) {}
    assert!(matches!(case.sink_saw(), Some(Said::Failed(error)) if is_abrupt(&error)));
}

// ---- two threads ----

/// Runs an island to its end on a thread that sleeps when there is nothing to do, or aborts it after so many turns.
fn run_on_thread(seeds: Seeds, abort_after: Option<u64>, aborted: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let inbox = HostInbox::new();
        let (own, bell) = (thread::current(), Arc::clone(&inbox));
        bell.set_bell(move || own.unpark());
        let host = StreamHost::new(inbox);
        host.set_events_per_run(16);
        spawn(&host, seeds);
        for turn in 0_u64.. {
            if abort_after == Some(turn) {
                aborted.store(host.islands() > 0, Ordering::Relaxed);
                host.abort();
            }
            host.take_events(Nanos(turn * 100));
            host.run_one(Nanos(turn * 100));
            if host.islands() == 0 {
                return;
            }
            if !host.has_work() && abort_after.is_none_or(|at| turn >= at) {
                let before = std::time::Instant::now();
                thread::park_timeout(Duration::from_secs(60));
                assert!(before.elapsed() < Duration::from_secs(59), "a wake-up was lost");
            }
        }
    })
}

fn cross(case: Case, capacity: usize, aborts: (Option<u64>, Option<u64>)) -> Arc<Case> {
    let case = Arc::new(case);
    let (source, sink) = islands(&case, capacity);
    let (up_aborted, down_aborted) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let up = run_on_thread(source, aborts.0, Arc::clone(&up_aborted));
    let down = run_on_thread(sink, aborts.1, Arc::clone(&down_aborted));
    up.join().unwrap();
    down.join().unwrap();
    judge(&case, capacity, up_aborted.load(Ordering::Relaxed), down_aborted.load(Ordering::Relaxed));
    case
}

#[test]
fn elements_cross_between_two_cores() {
    let count = if cfg!(miri) { 100 } else { 50_000 };
    for capacity in if cfg!(miri) { vec![4] } else { vec![1, 2, 4, 8, 16, 32, 64] } {
        let (count, source_end) = (count, Some(Said::Completed));
        let case = cross(Case { count, source_end, ..Case::default() }, capacity, (None, None));
        assert_eq!(case.received().len() as u64, count);
    }
}

#[test]
fn any_stream_between_two_cores_ends_well() {
    let seeds = if cfg!(miri) { 12 } else { 1_500 };
    for seed in 1..=seeds {
        let mut random = Random(0x2545_f491_4f6c_dd1d_u64.wrapping_mul(seed));
        let capacity = 1 << random.below(7);
        let case = random_case(&mut random);
        let turns = random.below(40);
        let aborts = match random.below(4) {
            0 => (Some(turns), None),
            1 => (None, Some(turns)),
            _ => (None, None),
        };
        cross(case, capacity, aborts);
    }
}

// ---- types ----

#[test]
fn element_types_are_found_by_their_id() {
    let attributes = Attributes::of(BoundaryElements::of::<u8>()).with(BoundaryElements::of::<u16>().and::<String>());
    for (id, name) in [(TypeId::of::<u8>(), "u8"), (TypeId::of::<u16>(), "u16"), (TypeId::of::<String>(), "String")] {
        let found = BoundaryElements::find_in(&attributes, id).unwrap();
        assert!(found.element() == id && found.element_name().ends_with(name));
    }
    assert!(BoundaryElements::find_in(&attributes, TypeId::of::<u32>()).is_none());
    assert_eq!(format!("{:?}", BoundaryElements::of::<u8>()), "BoundaryElements([BoundaryType(u8)])");
}

#[test]
fn a_boundary_of_another_type_does_not_fit() {
    let case = Arc::<Case>::default();
    let (output, _input) = BoundaryType::of::<u64>().make(4);
    let source = Numbers(case).prepare_elsewhere(&Attributes::none()).0;
    assert!(chain(vec![source, output], &Attributes::none()).is_err());
}
