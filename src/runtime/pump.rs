//! The loop of a core: completions, inboxes, work, flush; then the executor's share, and sleep when there is nothing.
//!
//! It is one task of the core's executor and leaves its inner loop only for that executor's reactor or to sleep. Every source of
//! work is bounded per turn, so none starves another. No wake-up is lost: the core announces its sleep and switches the bell on,
//! fences, looks once more at everything, and only then waits for the bell.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use glommio::io::BufferedFile;
use glommio::timer::Timer;

use crate::base::{LinkId, Nanos};

use super::clock::Clock;
use super::counters::CoreCounters;
use super::engine_port::Engine;
use super::helpers::Helpers;
use super::options::{PumpOptions, Spin};
use super::reactor::Reactor;
use super::uring::bell::EventBell;

/// The executor may sleep although a task is ready (glommio 0.9.0); a timer of this period bounds for how long.
const WATCHDOG_PERIOD: Duration = Duration::from_millis(10);
/// Passes of the executor's reactor are this much rarer while no helper task runs: by default one each 5 ms, so that they do not
/// show in the 99th percentile of round trips.
const IDLE_PASS_FACTOR: u32 = 50;
/// Longest time that output is kept while more is ready: half of what a round trip with a full window takes.
const HOLD: Duration = Duration::from_micros(50);
/// Looks for news between two idle turns. Timers wait for their end, some tenths of a microsecond.
const LOOKS: u32 = 16;
/// Names that are resolved at the same time; the others wait for the next turn.
const RESOLVING_MAX: usize = 16;
/// Rounds of 100 µs for links to end when the core stops.
const STOP_ROUNDS: u32 = 2000;

type Resolved = Rc<RefCell<Vec<(LinkId, Option<SocketAddr>)>>>;

/// What the inner loop stopped for.
enum Next {
    Pass,
    Park,
    Stop,
}

/// The loop of one core.
pub(crate) struct Pump<E: Engine> {
    engine: E,
    reactor: Reactor,
    clock: Clock,
    bell: EventBell,
    counters: Arc<CoreCounters>,
    spin: Option<Duration>,
    slice: Duration,
    pass: Duration,
    linger: Duration,
    last_pass: Nanos,
    idle_since: Nanos,
    /// Since when output is kept for the sake of what is ready.
    held_since: Option<Nanos>,
    stop_by: Option<Nanos>,
    unresolved: VecDeque<(LinkId, String)>,
    resolved: Resolved,
    helpers: Helpers,
    /// Lookups among the helpers.
    resolving: usize,
}

impl<E: Engine> Pump<E> {
    /// A loop for this thread.
    pub fn new(
        engine: E,
        reactor: Reactor,
        clock: Clock,
        bell: EventBell,
        counters: Arc<CoreCounters>,
        helpers: Helpers,
        options: &PumpOptions,
    ) -> Pump<E> {
        let now = clock.now();
        Pump {
            engine,
            reactor,
            clock,
            bell,
            counters,
            spin: match options.spin {
                Spin::Always => None,
                Spin::Micros(micros) => Some(Duration::from_micros(micros)),
            },
            slice: Duration::from_micros(options.slice_us),
            pass: Duration::from_micros(options.glommio_pass_us),
            linger: options.limits.linger,
            last_pass: now,
            idle_since: now,
            held_since: None,
            stop_by: None,
            unresolved: VecDeque::new(),
            resolved: Resolved::default(),
            helpers,
            resolving: 0,
        }
    }

    /// Runs until the engine is stopped and its output is sent.
    ///
    /// # Errors
    /// Only such that leave the ring unusable.
    pub async fn run(mut self) -> io::Result<()> {
        let sleeper = self.bell.sleeper()?;
        let watchdog = glommio::spawn_local(async {
            loop {
                Timer::new(WATCHDOG_PERIOD).await;
            }
        });
        let result = self.cycle(&sleeper).await;
        watchdog.cancel().await;
        let _ = sleeper.close().await;
        result
    }

    async fn cycle(&mut self, sleeper: &BufferedFile) -> io::Result<()> {
        loop {
            match self.turns()? {
                Next::Pass => self.executor_pass().await,
                Next::Park => self.park(sleeper).await?,
                Next::Stop => return self.end_links(),
            }
        }
    }

    /// Turns until there is a reason to leave the hot loop.
    fn turns(&mut self) -> io::Result<Next> {
        let executor = glommio::executor();
        let mut now = self.clock.now();
        loop {
            let busy = self.turn(now)?;
            let end = self.clock.now();
            self.counters.turns(1);
            if busy {
                self.counters.busy_turns(1);
                self.counters.busy_nanos(end.0.saturating_sub(now.0));
                self.idle_since = end;
            } else {
                self.look();
            }
            if self.engine.stopped() && self.may_stop(end) {
                return Ok(Next::Stop);
            }
            if end.since(self.last_pass) >= self.pass_after() || executor.need_preempt() {
                return Ok(Next::Pass);
            }
            if !busy && self.spin.is_some_and(|spin| end.since(self.idle_since) >= spin) {
                return Ok(Next::Park);
            }
            now = end;
        }
    }

    /// Looks for news and nothing else, for a short time: what a core finds here it begins a dozen nanoseconds after it came,
    /// and not half an idle turn.
    #[inline]
    fn look(&self) {
        for _ in 0..LOOKS {
            if self.engine.has_work() || self.reactor.ready() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn pass_after(&self) -> Duration {
        if self.helpers.running() > 0 { self.pass } else { self.pass * IDLE_PASS_FACTOR }
    }

    /// One turn. True if it did something.
    #[inline]
    fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        let mut busy = self.reactor.complete(&self.engine, now)?;
        // One look for a turn that finds nothing, of which an idle core makes ten million each second: whatever it costs
        // there, a message from another core waits for half of it.
        if self.engine.has_work() {
            busy |= self.engine.inboxes(now);
            if self.engine.has_work() {
                busy |= self.work();
            }
        }
        if self.engine.next_deadline() <= now {
            self.engine.advance(now);
            busy = true;
        }
        busy |= self.reactor.sweep(now);
        busy |= self.resolve();
        if !self.holds_output(now) {
            busy |= self.reactor.flush(&self.engine, now);
        }
        self.engine.flush_peers();
        self.reactor.submit()?;
        Ok(busy)
    }

    /// Whether this turn keeps its output for the next one: what is ready still will add to it, and one send for all of it
    /// costs little more than one for a part. Only for a short time, so that a core which always has work sends too.
    #[inline]
    fn holds_output(&mut self, now: Nanos) -> bool {
        // A core that stops looks at what is sent after each turn: nothing may be kept then.
        if !self.engine.has_more_to_run() || self.engine.stopped() {
            self.held_since = None;
            return false;
        }
        let held_since = *self.held_since.get_or_insert(now);
        let holds = now.since(held_since) < HOLD;
        if !holds {
            self.held_since = None;
        }
        holds
    }

    fn work(&mut self) -> bool {
        let (clock, reactor) = (self.clock, &self.reactor);
        let started = clock.now();
        let busy = self.engine.work(started, started + self.slice, &|| clock.now(), &|| reactor.ready());
        if clock.now().since(started) > self.slice * 2 {
            self.counters.late_slices(1);
        }
        busy
    }

    /// Moves names to the helpers and addresses from them.
    #[inline]
    fn resolve(&mut self) -> bool {
        if self.resolving == 0 && self.unresolved.is_empty() && !self.reactor.has_unresolved() {
            return false;
        }
        self.unresolved.extend(self.reactor.take_unresolved());
        while self.resolving < RESOLVING_MAX
            && let Some((link, name)) = self.unresolved.pop_front()
        {
            self.spawn_resolver(link, name);
        }
        let done = std::mem::take(&mut *self.resolved.borrow_mut());
        let any = !done.is_empty();
        self.resolving -= done.len();
        for (link, address) in done {
            self.reactor.resolved(link, address);
        }
        any
    }

    fn spawn_resolver(&mut self, link: LinkId, name: String) {
        let (resolved, bell, helper) = (Rc::clone(&self.resolved), self.bell.clone(), self.helpers.enter());
        self.resolving += 1;
        glommio::spawn_local(async move {
            let lookup = move || name.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
            let address = glommio::executor().spawn_blocking(lookup).await;
            resolved.borrow_mut().push((link, address));
            drop(helper);
            bell.ring();
        })
        .detach();
    }

    /// Lets the executor look at its files, timers and tasks.
    async fn executor_pass(&mut self) {
        self.counters.passes(1);
        if glommio::executor().need_preempt() {
            glommio::executor().yield_now().await;
        } else {
            // Its queue runs dry, so it polls its reactor, and finds this timer due while it spins before sleeping. A timer of
            // zero would be ready at once and not yield at all.
            Timer::new(Duration::from_micros(1)).await;
        }
        self.last_pass = self.clock.now();
    }

    async fn park(&mut self, sleeper: &BufferedFile) -> io::Result<()> {
        let now = self.clock.now();
        let deadline = self.wake_by();
        self.reactor.arm_timer(deadline, now);
        self.reactor.submit()?;
        self.engine.announce_sleep();
        self.reactor.enable_bell(true);
        fence(Ordering::SeqCst);
        let news = self.reactor.ready()
            || self.reactor.has_submissions()
            || self.engine.has_work()
            || !self.resolved.borrow().is_empty()
            || self.engine.stopped()
            || self.wake_by() < deadline
            || deadline <= self.clock.now();
        if news {
            self.counters.parks_cancelled(1);
        } else {
            self.counters.parks(1);
            if let Err(error) = sleeper.read_at(0, size_of::<u64>()).await {
                tracing::error!(%error, "cannot sleep on the bell; the core polls each millisecond instead");
                Timer::new(Duration::from_millis(1)).await;
            }
        }
        self.engine.cancel_sleep();
        self.reactor.enable_bell(false);
        let now = self.clock.now();
        (self.last_pass, self.idle_since) = (now, now);
        Ok(())
    }

    fn wake_by(&self) -> Nanos {
        self.engine.next_deadline().min(self.reactor.next_deadline()).min(self.stop_by.unwrap_or(Nanos::NEVER))
    }

    /// The engine is done: is its output sent, or the time for that over?
    fn may_stop(&mut self, now: Nanos) -> bool {
        let stop_by = *self.stop_by.get_or_insert(now + self.linger);
        self.reactor.stop_accepting();
        self.reactor.all_sent() || now >= stop_by
    }

    /// Ends all links, for a bounded time.
    fn end_links(&mut self) -> io::Result<()> {
        self.reactor.close_all();
        for _ in 0..STOP_ROUNDS {
            let now = self.clock.now();
            self.reactor.flush(&self.engine, now);
            self.reactor.submit()?;
            if self.reactor.links() == 0 {
                return Ok(());
            }
            if !self.reactor.complete(&self.engine, now)? {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        self.reactor.abandon_all(&self.engine, self.clock.now());
        Ok(())
    }
}
