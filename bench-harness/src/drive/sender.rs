//! What runs on the core that sends: tasks in a closed loop, or one that follows a schedule.
//!
//! Called by the drive, which spawns [`run`] there. Invariant: everything of a round is on one core, so plain cells
//! count it; the round ends by the clock, and reports once all its tasks have ended.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::rc::Rc;
use std::sync::mpsc;

use atoll::Messenger;
use atoll::services::echo::EchoRef;

use crate::floors::ids;
use crate::measure::{Clock, Latencies, Mark, RoundLength, Sampler, Usage, Watch};
use crate::scenario::{Handler, OPEN_LOOP_IN_FLIGHT_MAX, Operation, Pace, Place, Scenario};
use crate::schedule::{OpenLoop, Schedule, Tally};

/// Starts between two looks at the clock, for the longest pause.
const STARTS_PER_LOOK: u64 = 64;

/// One round to run.
#[derive(Clone)]
pub struct Job {
    operation: Operation,
    handler: Handler,
    pub pace: Pace,
    payload_bytes: u32,
    entities: u32,
    pub outstanding: u32,
    pub length: RoundLength,
    /// Ends the round after so many operations, whatever the clock says.
    pub operations_max: Option<u64>,
    sampler: Sampler,
    watch: Watch,
}

impl Job {
    pub fn new(scenario: &Scenario, length: RoundLength, watch: Watch) -> Self {
        let outstanding = scenario.outstanding();
        let every = match (scenario.place, scenario.pace) {
            (Place::Local, _) => Sampler::for_local(outstanding),
            (Place::Remote, Pace::Closed { .. }) => Sampler::for_remote(outstanding),
            _ => Sampler::one_in(1),
        };
        Job {
            operation: scenario.operation,
            handler: scenario.handler,
            pace: scenario.pace,
            payload_bytes: scenario.payload_bytes,
            entities: scenario.entities,
            outstanding,
            length,
            operations_max: None,
            sampler: every,
            watch,
        }
    }

    /// Between the end of the warm-up and the first latency that counts. In a closed loop only what is in flight waits
    /// for the harness there.
    fn settling_time(&self) -> Duration {
        match self.pace {
            Pace::Closed { .. } => Duration::ZERO,
            Pace::Open { .. } => self.length.settling_time(),
        }
    }
}

/// What a round measured.
pub struct RoundResult {
    pub operations: u64,
    pub warm_up_operations: u64,
    pub errors: u64,
    pub elapsed: Duration,
    pub latencies: Latencies,
    pub usage: Usage,
    pub sends: Option<Tally>,
    pub longest_pause_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    WarmUp,
    Measure,
    Over,
}

/// The state of a round, shared by its tasks.
struct Round {
    job: Job,
    messenger: Messenger<EchoRef>,
    ids: Vec<String>,
    clock: &'static Clock,
    phase: Cell<Phase>,
    phase_ends: Cell<u64>,
    measured_from: Cell<u64>,
    /// Latencies count of what starts at this time or later.
    recorded_from: Cell<u64>,
    measured_until: Cell<u64>,
    next: Cell<usize>,
    operations: Cell<u64>,
    warm_up_operations: Cell<u64>,
    errors: Cell<u64>,
    running: Cell<u32>,
    sampler: RefCell<Sampler>,
    latencies: RefCell<Latencies>,
    marks: RefCell<Vec<Mark>>,
}

impl Round {
    fn new(job: Job, messenger: Messenger<EchoRef>, ids: Vec<String>) -> Rc<Round> {
        let clock = Clock::get();
        Rc::new(Round {
            phase_ends: Cell::new(clock.ticks() + clock.ticks_in(job.length.warm_up)),
            sampler: RefCell::new(job.sampler),
            job,
            messenger,
            ids,
            clock,
            phase: Cell::new(Phase::WarmUp),
            measured_from: Cell::new(0),
            recorded_from: Cell::new(u64::MAX),
            measured_until: Cell::new(0),
            next: Cell::new(0),
            operations: Cell::new(0),
            warm_up_operations: Cell::new(0),
            errors: Cell::new(0),
            running: Cell::new(0),
            latencies: RefCell::new(Latencies::new()),
            marks: RefCell::default(),
        })
    }

    fn next_id(&self) -> &str {
        let at = self.next.get();
        self.next.set(if at + 1 == self.ids.len() { 0 } else { at + 1 });
        &self.ids[at]
    }

    fn mark(&self) {
        // Without it the round is reported as undisturbed, which the operator sees in the other figures.
        if let Ok(mark) = Mark::now(&self.job.watch) {
            self.marks.borrow_mut().push(mark);
        }
    }

    /// Goes to the next phase when its time has come.
    fn look_at_clock(&self, now: u64) {
        if now < self.phase_ends.get() {
            return;
        }
        match self.phase.get() {
            Phase::WarmUp => {
                self.mark();
                self.warm_up_operations.set(self.operations.replace(0));
                self.errors.set(0);
                self.latencies.borrow_mut().clear();
                self.phase.set(Phase::Measure);
                let now = self.clock.ticks();
                self.measured_from.set(now);
                self.recorded_from.set(now + self.clock.ticks_in(self.job.settling_time()));
                self.phase_ends.set(now + self.clock.ticks_in(self.job.length.duration));
            }
            Phase::Measure => self.end(now),
            Phase::Over => {}
        }
    }

    /// Whether the latency counts of an operation that started at this time and is over now.
    fn is_recorded(&self, started: u64) -> bool {
        self.phase.get() == Phase::Measure && started >= self.recorded_from.get()
    }

    fn end(&self, now: u64) {
        self.measured_until.set(now);
        self.phase.set(Phase::Over);
        self.mark();
    }

    fn done(&self, failed: bool) {
        if failed {
            self.errors.set(self.errors.get() + 1);
        } else {
            self.operations.set(self.operations.get() + 1);
        }
        if self.job.operations_max.is_some_and(|most| self.operations.get() >= most) && self.phase.get() != Phase::Over
        {
            self.end(self.clock.ticks());
        }
    }

    fn result(&self, sends: Option<Tally>, longest_pause_ns: Option<u64>) -> RoundResult {
        let ticks = self.measured_until.get().saturating_sub(self.measured_from.get());
        let marks = self.marks.borrow();
        let usage = match &marks[..] {
            [.., from, until] => from.until(until),
            _ => Usage::default(),
        };
        RoundResult {
            operations: self.operations.get(),
            warm_up_operations: self.warm_up_operations.get(),
            errors: self.errors.get(),
            elapsed: Duration::from_nanos(self.clock.ns(ticks)),
            latencies: self.latencies.take(),
            usage,
            sends,
            longest_pause_ns,
        }
    }

    /// One operation; true if it failed.
    async fn operate(&self, id: &str) -> bool {
        let entity = self.messenger.entity(id);
        match (self.job.operation, self.job.handler, self.job.payload_bytes) {
            (Operation::Tell, ..) => entity.tell(1).discard().await.is_err(),
            (_, Handler::Yields, _) => entity.yields(1).await.is_err(),
            (_, Handler::Ready, 0) => entity.add(1).await.is_err(),
            (_, Handler::Ready, 64) => entity.block([1; 8]).await.is_err(),
            (_, Handler::Ready, bytes) => entity.echo(vec![7; bytes as usize]).await.is_err(),
        }
    }
}

/// Runs a round on this core and reports it.
pub async fn run(
    job: Job,
    messenger: Messenger<EchoRef>,
    ids: Vec<String>,
    report: mpsc::Sender<anyhow::Result<RoundResult>>,
) {
    let result = match (job.operation, job.pace) {
        (Operation::Start, _) => Ok(start_entities(job, messenger).await),
        (_, Pace::Closed { .. }) => Ok(closed(job, messenger, ids).await),
        (_, Pace::Open { rate_per_second }) => open(job, messenger, ids, rate_per_second).await,
    };
    // Whoever waits may have given up.
    let _ = report.send(result);
}

async fn closed(job: Job, messenger: Messenger<EchoRef>, ids: Vec<String>) -> RoundResult {
    let round = Round::new(job, messenger, ids);
    for _ in 0..round.job.outstanding {
        round.running.set(round.running.get() + 1);
        if atoll::entity::spawn(ask_until_over(Rc::clone(&round))).is_err() {
            break;
        }
    }
    wait_until_idle(&round).await;
    round.result(None, None)
}

async fn ask_until_over(round: Rc<Round>) {
    while round.phase.get() != Phase::Over {
        let sample = round.sampler.borrow_mut().pick();
        if !sample {
            let failed = round.operate(round.next_id()).await;
            round.done(failed);
            continue;
        }
        let started = round.clock.ticks();
        let failed = round.operate(round.next_id()).await;
        let now = round.clock.ticks();
        if round.is_recorded(started) && !failed {
            round.latencies.borrow_mut().record(round.clock.ns(now - started));
        }
        round.done(failed);
        round.look_at_clock(now);
    }
    round.running.set(round.running.get() - 1);
}

/// Lets everything else run, again and again, until all tasks of the round have ended.
async fn wait_until_idle(round: &Round) {
    while round.running.get() > 0 {
        atoll::entity::sleep(Duration::from_millis(1)).await;
    }
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn open(
    job: Job,
    messenger: Messenger<EchoRef>,
    ids: Vec<String>,
    rate_per_second: f64,
) -> anyhow::Result<RoundResult> {
    let whole = job.length.warm_up + job.length.duration;
    let mut schedule = OpenLoop::new(Schedule::constant(rate_per_second, whole)?);
    let round = Round::new(job, messenger, ids);
    let started = round.clock.ticks();
    let now_ns = |round: &Round| round.clock.ns(round.clock.ticks() - started);
    let mut counts = false;
    while schedule.next_at_ns().is_some() {
        round.look_at_clock(round.clock.ticks());
        let now = now_ns(&round);
        if !counts && round.is_recorded(round.clock.ticks()) {
            counts = true;
            schedule.count_from(now);
        }
        if round.running.get() >= OPEN_LOOP_IN_FLIGHT_MAX {
            schedule.held_back(now);
        } else if let Some(send) = schedule.next(now) {
            round.running.set(round.running.get() + 1);
            let task = Rc::clone(&round);
            let sent = atoll::entity::spawn(async move {
                let failed = task.operate(task.next_id()).await;
                let now = task.clock.ns(task.clock.ticks() - started);
                if task.is_recorded(started + task.clock.ticks_in(Duration::from_nanos(send.intended_ns))) && !failed {
                    task.latencies.borrow_mut().record(OpenLoop::latency_ns(send, now));
                }
                task.done(failed);
                task.running.set(task.running.get() - 1);
            });
            if sent.is_err() {
                break;
            }
            // The next send may be due as well.
            if schedule.due(now) > 0 {
                continue;
            }
        }
        yield_once().await;
    }
    if round.phase.get() != Phase::Over {
        round.end(round.clock.ticks());
    }
    let tally = schedule.tally(now_ns(&round));
    wait_until_idle(&round).await;
    Ok(round.result(Some(tally), None))
}

async fn start_entities(job: Job, messenger: Messenger<EchoRef>) -> RoundResult {
    let entities = job.entities;
    let round = Round::new(job, messenger, Vec::new());
    round.phase.set(Phase::Measure);
    round.mark();
    let started = round.clock.ticks();
    round.measured_from.set(started);
    let (mut id, mut last, mut longest_pause) = (String::new(), started, 0);
    for index in 0..entities {
        ids::write_id(index, &mut id);
        let failed = round.operate(&id).await;
        round.done(failed);
        if u64::from(index) % STARTS_PER_LOOK == 0 {
            let now = round.clock.ticks();
            longest_pause = longest_pause.max(now - last);
            last = now;
        }
    }
    let now = round.clock.ticks();
    round.latencies.borrow_mut().record_many(round.clock.ns(now - started) / u64::from(entities.max(1)), 1);
    round.end(now);
    let pause = round.clock.ns(longest_pause);
    round.result(None, Some(pause))
}
