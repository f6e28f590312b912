//! Streams without a pod: for tests, tools and programs that only process.
//!
//! [`StreamRuntime::single`] runs everything on the calling thread, [`StreamRuntime::with_cores`] adds threads that
//! islands can be placed on. The calling thread works while it is in [`StreamRuntime::block_on`] or
//! [`StreamRuntime::run_until_idle`]; the others work by themselves. Invariants: a thread sleeps only after it has
//! announced that and found nothing; a wake-up is one ring for a thread that sleeps and none for one that is awake.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use super::Clock;
use crate::base::Nanos;
use crate::mesh::Doorbell;
use crate::mesh::doorbell::Bell;
use crate::stream::dsl::RunnableGraph;
use crate::stream::host::{HostInbox, StreamHost, current};
use crate::stream::materializer::MaterializationError;

/// Most threads of a runtime: more than any machine has cores.
pub const CORES_MAX: usize = 1024;
/// How long a thread looks for work before it sleeps: about what a wake-up costs.
const SPIN: Duration = Duration::from_micros(50);
/// Islands that run between two looks at the clock and the inbox.
const RUNS_PER_TURN: u32 = 32;

struct Unpark(Thread);

impl Bell for Unpark {
    fn ring(&self) {
        self.0.unpark();
    }
}

/// One thread's streams.
struct Worker {
    host: Rc<StreamHost>,
    doorbell: Arc<Doorbell>,
    clock: Clock,
}

impl Worker {
    /// Must be called on the thread that works.
    fn new(inbox: Arc<HostInbox>, clock: Clock) -> Worker {
        let doorbell = Arc::new(Doorbell::new(Unpark(std::thread::current())));
        let bell = Arc::clone(&doorbell);
        inbox.set_bell(move || {
            bell.ring_if_sleeping();
        });
        Worker { host: StreamHost::new(inbox), doorbell, clock }
    }

    /// Does what is ready, for a while. False if there was nothing.
    fn turn(&self) -> bool {
        let now = self.clock.now();
        if !self.host.take_events(now) {
            return false;
        }
        for _ in 0..RUNS_PER_TURN {
            if !self.host.run_one(now) {
                break;
            }
        }
        true
    }

    /// Sleeps until something comes, a timer is due, or `is_done`.
    fn sleep(&self, is_done: impl Fn() -> bool) {
        let spin_until = self.clock.now() + SPIN;
        while self.clock.now() < spin_until {
            if self.host.has_work() || is_done() || self.host.next_deadline() <= self.clock.now() {
                return;
            }
            std::hint::spin_loop();
        }
        self.doorbell.announce_sleep();
        if !self.host.has_work() && !is_done() {
            match self.host.next_deadline() {
                Nanos::NEVER => std::thread::park(),
                deadline => std::thread::park_timeout(deadline.since(self.clock.now())),
            }
        }
        self.doorbell.cancel_sleep();
    }
}

struct Woken {
    flag: AtomicBool,
    doorbell: Arc<Doorbell>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.flag.store(true, Ordering::Release);
        self.doorbell.ring_if_sleeping();
    }
}

/// Runs streams on this thread, and on threads of its own.
///
/// ```
/// use atoll::runtime::StreamRuntime;
/// use atoll::stream::dsl::{Sink, Source};
/// use atoll::stream::operators::ElementwiseOps;
///
/// let runtime = StreamRuntime::single();
/// let graph = Source::from_iterator(|| 1..=10).map(|n| n * n).to_right(Sink::fold(0, |sum, n| sum + n));
/// let sum = runtime.run(&graph)?;
/// assert_eq!(runtime.block_on(sum)?, 385);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StreamRuntime {
    worker: Worker,
    threads: Vec<JoinHandle<()>>,
    inboxes: Vec<Arc<HostInbox>>,
    stop: Arc<AtomicBool>,
}

/// The runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum StreamRuntimeError {
    /// The number of cores makes no sense.
    #[error("a stream runtime has 1 to {CORES_MAX} cores, not {0}")]
    Cores(usize),
    /// A thread could not be started.
    #[error("a thread for streams could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl StreamRuntime {
    /// Everything on the calling thread.
    #[must_use]
    pub fn single() -> StreamRuntime {
        StreamRuntime {
            worker: Worker::new(HostInbox::new(), Clock::new()),
            threads: Vec::new(),
            inboxes: Vec::new(),
            stop: Arc::default(),
        }
    }

    /// The calling thread as core 0, and threads for the other cores.
    ///
    /// # Errors
    /// If the number is not 1 to [`CORES_MAX`], or a thread could not be started.
    pub fn with_cores(cores: usize) -> Result<StreamRuntime, StreamRuntimeError> {
        StreamRuntime::with_cores_started_by(cores, |_| {})
    }

    /// As [`StreamRuntime::with_cores`]; each thread that is started first calls `on_start` with its core, for example
    /// to pin itself. The calling thread is not started, so it is not called there.
    ///
    /// # Errors
    /// As [`StreamRuntime::with_cores`].
    pub fn with_cores_started_by(
        cores: usize,
        on_start: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<StreamRuntime, StreamRuntimeError> {
        let on_start = Arc::new(on_start);
        if cores == 0 || cores > CORES_MAX {
            return Err(StreamRuntimeError::Cores(cores));
        }
        let inboxes: Vec<Arc<HostInbox>> = (0..cores).map(|_| HostInbox::new()).collect();
        let clock = Clock::new();
        let mut runtime = StreamRuntime {
            worker: Worker::new(Arc::clone(&inboxes[0]), clock),
            threads: Vec::new(),
            inboxes: inboxes.clone(),
            stop: Arc::default(),
        };
        runtime.worker.host.set_cores(0, inboxes.clone());
        for core in 1..cores {
            let (inboxes, clock, stop) = (inboxes.clone(), clock, Arc::clone(&runtime.stop));
            let thread = std::thread::Builder::new().name(format!("stream-{core}"));
            let on_start = Arc::clone(&on_start);
            runtime.threads.push(thread.spawn(move || {
                on_start(core);
                let worker = Worker::new(Arc::clone(&inboxes[core]), clock);
                worker.host.set_cores(core as u16, inboxes);
                while !stop.load(Ordering::Acquire) {
                    if !worker.turn() {
                        worker.sleep(|| stop.load(Ordering::Acquire));
                    }
                }
                worker.host.abort();
            })?);
        }
        Ok(runtime)
    }

    /// Runs a graph; its islands work while the runtime does.
    ///
    /// # Errors
    /// If the graph is not complete, or asks for what does not exist.
    pub fn run<Mat: 'static>(&self, graph: &RunnableGraph<Mat>) -> Result<Mat, MaterializationError> {
        graph.run_on(&self.worker.host)
    }

    /// Works until the future is ready. Inside of it [`RunnableGraph::run`] works, too.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let woken = Arc::new(Woken { flag: AtomicBool::new(true), doorbell: Arc::clone(&self.worker.doorbell) });
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if woken.flag.swap(false, Ordering::AcqRel) {
                let _entered = current::enter(&self.worker.host);
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
            }
            if !self.worker.turn() {
                self.worker.sleep(|| woken.flag.load(Ordering::Acquire));
            }
        }
    }

    /// Works until nothing on this thread is ready any more. Other cores may still work.
    pub fn run_until_idle(&self) {
        while self.worker.turn() {}
    }

    /// The islands of the calling thread.
    #[must_use]
    pub fn host(&self) -> &Rc<StreamHost> {
        &self.worker.host
    }
}

impl Drop for StreamRuntime {
    fn drop(&mut self) {
        self.worker.host.abort();
        self.stop.store(true, Ordering::Release);
        for inbox in self.inboxes.iter().skip(1) {
            // Any job wakes the thread, which then sees that it has to stop.
            inbox.send(Box::new(|_| {}));
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a stream thread panicked");
            }
        }
    }
}
