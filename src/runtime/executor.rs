//! The threads of a process's cores: made in two steps, so that engines can be given each other's bells.
//!
//! [`prepare`] binds the listening socket and makes what cores share; [`CoresPlan::start`] makes one thread per core, builds its
//! engine there, and lets all of them run only when all of them could start. A core that fails later ends the process: half a
//! pod would be worse than none.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};

use crate::base::CoreIndex;

use super::clock::Clock;
use super::counters::CoreCounters;
use super::engine_port::Engine;
use super::helpers::Helpers;
use super::options::PumpOptions;
use super::pump::Pump;
use super::reactor::Reactor;
use super::transit::Transit;
use super::uring::bell::EventBell;
use super::uring::error::RingError;
use super::uring::ring::Ring;
use super::uring::sockets;
use super::watchdog::Activity;

/// Memory that an executor registers for its file work: small, so that the default limit of locked memory is enough.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// The executor must spin for longer than the 1 µs timer with which the loop asks for a pass.
const SPIN_BEFORE_PARK: Duration = Duration::from_micros(5);

/// How long helper tasks (see [`Helpers`]) have to end after the loop has: 250 ms, enough to close a file. What takes longer
/// is left behind.
const HELPERS_END_LOOKS: u32 = 250;
const HELPERS_END_LOOK: Duration = Duration::from_millis(1);

/// Where the cores run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorePlacement {
    /// One core on each of these processors.
    Pinned(Vec<usize>),
    /// So many cores, wherever the scheduler likes.
    Unpinned(usize),
}

impl CorePlacement {
    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        match self {
            CorePlacement::Pinned(processors) => processors.len(),
            CorePlacement::Unpinned(cores) => *cores,
        }
    }

    fn of(&self, core: usize) -> Placement {
        match self {
            CorePlacement::Pinned(processors) => Placement::Fixed(processors[core]),
            CorePlacement::Unpinned(_) => Placement::Unbound,
        }
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub struct CoresOptions {
    /// Where the cores run.
    pub placement: CorePlacement,
    /// Where core 0 accepts connections, if anywhere.
    pub listen: Option<SocketAddr>,
    /// Options of each loop.
    pub pump: PumpOptions,
}

/// Why the cores could not start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another process listens there.
    #[error("port {} is in use: stop the other process or pass --listen with another one", .0.port())]
    AddressInUse(SocketAddr),
    /// Listening failed in another way.
    #[error("cannot listen on {address}: {reason}; pass --listen with an address of this host and a port above 1023")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        reason: io::Error,
    },
    /// The number of cores, or of engines for them, makes no sense.
    #[error("{engines} engines for {cores} cores: there must be one for each of 1 to 65535 cores")]
    Cores {
        /// Cores.
        cores: usize,
        /// Engines.
        engines: usize,
    },
    /// The ring of a core could not be set up.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The executor of a core could not be made.
    #[error(
        "core {core} could not start: {message}; check that its processor exists, `ulimit -l` (512 KiB per core) and `ulimit -n`"
    )]
    Executor {
        /// The core.
        core: usize,
        /// What the executor says.
        message: String,
    },
    /// The engine of a core could not be made.
    #[error("the engine of core {core} could not start: {reason}")]
    Engine {
        /// The core.
        core: usize,
        /// Its own error.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No thread, descriptor or the like left.
    #[error("the operating system refused what a core needs ({0}); check `ulimit -u` and `ulimit -n`")]
    System(#[from] io::Error),
}

/// What the engine of a core is given when it is made, on its own thread.
#[derive(Clone, Debug)]
pub struct CoreContext {
    /// The core.
    pub core: CoreIndex,
    /// How many cores there are.
    pub cores: u16,
    /// The clock of the process.
    pub clock: Clock,
    /// Wakes this core. Also for tasks of the core's own executor that gave the engine something to do.
    pub bell: EventBell,
    /// What this core polls, for the watchdog.
    pub activity: Arc<Activity>,
    /// What this core counts.
    pub counters: Arc<CoreCounters>,
    /// To be told of tasks that the engine's shell spawns on the core's executor.
    pub helpers: Helpers,
}

/// Cores that are prepared and not started.
#[derive(Debug)]
pub struct CoresPlan {
    options: CoresOptions,
    listener: Option<TcpListener>,
    listen_address: Option<SocketAddr>,
    clock: Clock,
    bells: Vec<EventBell>,
    activities: Vec<Arc<Activity>>,
    counters: Vec<Arc<CoreCounters>>,
}

/// Binds the listening socket and makes what the cores share.
///
/// # Errors
/// When the address is taken, or the numbers make no sense.
pub fn prepare(options: CoresOptions) -> Result<CoresPlan, StartError> {
    let cores = options.placement.cores();
    if cores == 0 || cores > usize::from(u16::MAX) {
        return Err(StartError::Cores { cores, engines: cores });
    }
    // The executor of a core would panic where io_uring cannot be used.
    Ring::<()>::new(2, 4096, 16)?;
    let listener = options.listen.map(listen).transpose()?;
    let listen_address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
    Ok(CoresPlan {
        listener,
        listen_address,
        clock: Clock::new(),
        bells: (0..cores).map(|_| EventBell::new()).collect::<io::Result<_>>()?,
        activities: (0..cores).map(|_| Arc::default()).collect(),
        counters: (0..cores).map(|_| Arc::default()).collect(),
        options,
    })
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    sockets::listen(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse(address),
        _ => StartError::Listen { address, reason: source },
    })
}

/// Prepares and starts: `engines` makes one constructor per core from the plan.
///
/// # Errors
/// As [`prepare`] and [`CoresPlan::start`].
pub fn start_cores<E, F>(
    options: CoresOptions,
    engines: impl FnOnce(&CoresPlan) -> Vec<F>,
) -> Result<CoresHandle, StartError>
where
    E: Engine + 'static,
    F: FnOnce(CoreContext) -> Result<E, Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let plan = prepare(options)?;
    let engines = engines(&plan);
    plan.start(engines)
}

impl CoresPlan {
    /// The bells of all cores, by index.
    #[must_use]
    pub fn bells(&self) -> &[EventBell] {
        &self.bells
    }

    /// The clock that all cores share.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Where core 0 will accept connections; tells the port when 0 was asked for.
    #[must_use]
    pub fn listen_address(&self) -> Option<SocketAddr> {
        self.listen_address
    }

    /// What each core polls, for a [`Watchdog`](super::Watchdog).
    #[must_use]
    pub fn activities(&self) -> &[Arc<Activity>] {
        &self.activities
    }

    /// Starts a thread per core and makes its engine there. Returns when all run, or none.
    ///
    /// # Errors
    /// The first reason why a core could not start.
    pub fn start<E, F>(mut self, engines: Vec<F>) -> Result<CoresHandle, StartError>
    where
        E: Engine + 'static,
        F: FnOnce(CoreContext) -> Result<E, Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let cores = self.bells.len();
        if engines.len() != cores {
            return Err(StartError::Cores { cores, engines: engines.len() });
        }
        let gate = Arc::new(Gate::default());
        let (reports, reported) = mpsc::channel();
        let transit = Transit::new();
        let mut threads = Vec::new();
        let mut failure = None;
        for (core, engine) in engines.into_iter().enumerate() {
            let thread = CoreThread {
                context: CoreContext {
                    core: CoreIndex(core as u16),
                    cores: cores as u16,
                    clock: self.clock,
                    bell: self.bells[core].clone(),
                    activity: Arc::clone(&self.activities[core]),
                    counters: Arc::clone(&self.counters[core]),
                    helpers: Helpers::default(),
                },
                placement: self.options.placement.of(core),
                options: self.options.pump,
                listener: self.listener.take(),
                transit: transit.clone(),
                gate: Arc::clone(&gate),
                reports: reports.clone(),
            };
            match std::thread::Builder::new().name(format!("core-{core}")).spawn(move || thread.run(engine)) {
                Ok(thread) => threads.push(thread),
                Err(error) => failure = Some(StartError::System(error)),
            }
        }
        drop(reports);
        // Each thread reports once, or ends without (it cannot: a panic ends the process).
        for report in reported {
            failure = failure.or(report.err());
        }
        gate.open(failure.is_none());
        match failure {
            None => Ok(CoresHandle { threads, plan: self }),
            Some(failure) => {
                for thread in threads {
                    let _ = thread.join();
                }
                Err(failure)
            }
        }
    }
}

/// Running cores. They stop when their engines say so.
#[derive(Debug)]
pub struct CoresHandle {
    threads: Vec<JoinHandle<()>>,
    plan: CoresPlan,
}

impl CoresHandle {
    /// Where core 0 accepts connections.
    #[must_use]
    pub fn listen_address(&self) -> Option<SocketAddr> {
        self.plan.listen_address
    }

    /// The counters of all cores, by index.
    #[must_use]
    pub fn counters(&self) -> &[Arc<CoreCounters>] {
        &self.plan.counters
    }

    /// What each core polls.
    #[must_use]
    pub fn activities(&self) -> &[Arc<Activity>] {
        &self.plan.activities
    }

    /// The bells of all cores.
    #[must_use]
    pub fn bells(&self) -> &[EventBell] {
        &self.plan.bells
    }

    /// The clock of the process.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.plan.clock
    }

    /// Waits until all cores have stopped.
    pub fn join(self) {
        for thread in self.threads {
            // A panic has ended the process already.
            let _ = thread.join();
        }
    }
}

/// Holds the cores back until all of them are there.
#[derive(Debug, Default)]
struct Gate {
    decision: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, go: bool) {
        *self.decision.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
        self.changed.notify_all();
    }

    fn wait(&self) -> bool {
        let mut decision = self.decision.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *decision {
                Some(go) => return go,
                None => decision = self.changed.wait(decision).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Ends the process when its thread panics: user code is caught in the engine, so whatever comes here is a bug of ours.
struct AbortOnPanic(CoreIndex);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(self.0, "it panicked (see above)");
        }
    }
}

fn abort(core: CoreIndex, reason: &str) -> ! {
    tracing::error!(core = core.0, reason, "a core failed; the process ends");
    // Not `eprintln!`: it panics where standard error is closed.
    let _ = writeln!(io::stderr(), "core {} failed: {reason}. The process ends, so that its shards can move.", core.0);
    std::process::abort()
}

/// All that one thread needs.
struct CoreThread {
    context: CoreContext,
    placement: Placement,
    options: PumpOptions,
    listener: Option<TcpListener>,
    transit: Transit,
    gate: Arc<Gate>,
    reports: mpsc::Sender<Result<(), StartError>>,
}

impl CoreThread {
    fn run<E, F>(self, engine: F)
    where
        E: Engine + 'static,
        F: FnOnce(CoreContext) -> Result<E, Box<dyn std::error::Error + Send + Sync>>,
    {
        let core = self.context.core;
        let _guard = AbortOnPanic(core);
        let executor = LocalExecutorBuilder::new(self.placement.clone())
            .name(&format!("core-{}", core.0))
            .io_memory(IO_MEMORY_BYTES)
            .spin_before_park(SPIN_BEFORE_PARK)
            .make();
        let executor = match executor {
            Ok(executor) => executor,
            Err(error) => {
                let failure = StartError::Executor { core: usize::from(core.0), message: error.to_string() };
                let _ = self.reports.send(Err(failure));
                return;
            }
        };
        executor.run(self.serve(engine));
    }

    async fn serve<E, F>(mut self, engine: F)
    where
        E: Engine + 'static,
        F: FnOnce(CoreContext) -> Result<E, Box<dyn std::error::Error + Send + Sync>>,
    {
        let core = self.context.core;
        self.context.helpers.serve_this_core();
        let pump = match self.pump(engine) {
            Ok(pump) => pump,
            Err(failure) => {
                let _ = self.reports.send(Err(failure));
                return;
            }
        };
        let _ = self.reports.send(Ok(()));
        drop(self.reports);
        if self.gate.wait()
            && let Err(error) = pump.run().await
        {
            abort(core, &format!("its ring is unusable: {error}"));
        }
        // The engine is gone, and whoever worked for it has been woken.
        for _ in 0..HELPERS_END_LOOKS {
            if self.context.helpers.running() == 0 {
                break;
            }
            glommio::timer::sleep(HELPERS_END_LOOK).await;
        }
    }

    fn pump<E, F>(&mut self, engine: F) -> Result<Pump<E>, StartError>
    where
        E: Engine + 'static,
        F: FnOnce(CoreContext) -> Result<E, Box<dyn std::error::Error + Send + Sync>>,
    {
        use std::os::fd::AsFd;
        let context = self.context.clone();
        let (clock, bell, counters) = (context.clock, context.bell.clone(), Arc::clone(&context.counters));
        let (listener, transit) = (self.listener.take(), self.transit.clone());
        let reactor = Reactor::new(&self.options, listener, bell.as_fd(), transit, Arc::clone(&counters))?;
        let (core, helpers) = (usize::from(context.core.0), context.helpers.clone());
        let engine = engine(context).map_err(|reason| StartError::Engine { core, reason })?;
        Ok(Pump::new(engine, reactor, clock, bell, counters, helpers, &self.options))
    }
}

/// The processors that this process may run on, in order.
#[must_use]
pub fn usable_processors() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    list.trim().split(',').flat_map(processor_range).collect()
}

fn processor_range(range: &str) -> std::ops::RangeInclusive<usize> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => first..=last,
        _ => 0..=0,
    }
}
