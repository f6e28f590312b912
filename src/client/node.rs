//! The cores of one pod or client: made, started, reached from other threads, stopped.
//!
//! Called by `pod` and `client`. Invariants: every ordered pair of cores has one queue; a node is listed for handles
//! from before its cores run until after they are joined; nothing waits for a core without a timeout.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::adapter::LoopEngine;
use crate::base::limits::{FOREIGN_INBOX_CAPACITY, MESH_CAPACITY};
use crate::base::{ClusterError, CoreIndex, PodUid};
use crate::engine::{
    Command, Core, CoreParts, CoreQueues, EngineCounters, Identity, Inspector, LinkLimits, Parcel, Released,
};
use crate::entity::foreign::{ForeignPort, Job, forget_node, next_node_number, register_node};
use crate::entity::{EntityDefaults, HostCounters, HostOptions, TypeHost, WakeTarget};
use crate::mesh::{Consumer, Doorbell, ForeignInbox, Producer, channel};
use crate::runtime::{CoreContext, CoresHandle, CoresPlan, StartError, Watchdog};
use crate::stream::dsl::RunnableGraph;
use crate::stream::host::HostInbox;
use crate::stream::materializer::MaterializationError;

/// Pause before a command is offered again to a core whose inbox is full.
const FULL_INBOX_PAUSE: Duration = Duration::from_millis(1);
/// How long a core may take to answer a question from another thread.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes an entity type on a core: the position, the defaults.
pub(crate) type TypeMaker = Arc<dyn Fn(u16, &EntityDefaults) -> TypeHost + Send + Sync>;

/// A graph was not started.
#[derive(Debug, thiserror::Error)]
pub enum StreamStartError {
    /// The graph cannot run.
    #[error(transparent)]
    Graph(#[from] MaterializationError),
    /// The core does not answer.
    #[error(transparent)]
    Core(#[from] ClusterError),
}

/// What a node is.
pub(crate) struct NodeOptions {
    pub uid: PodUid,
    pub cluster_name: String,
    pub role: String,
    pub version: String,
    pub is_pod: bool,
    pub hash_seed: u64,
    pub number_of_shards: u32,
    pub limits: LinkLimits,
    pub defaults: EntityDefaults,
    pub types: Vec<(&'static str, TypeMaker)>,
    pub inspector: Option<Inspector>,
    pub bootstrap: Vec<String>,
    pub stall: Duration,
    /// Until when the cores may serve; shared with the control thread.
    pub validity: Arc<AtomicU64>,
    pub released: Released,
}

/// Counters of one core that other threads read.
#[derive(Clone)]
pub(crate) struct CoreView {
    pub host: Arc<HostCounters>,
    pub engine: Arc<EngineCounters>,
}

/// The running cores of a pod or client.
pub(crate) struct Node {
    pub number: u32,
    pub type_names: Vec<&'static str>,
    port: Arc<Port>,
    handle: Mutex<Option<CoresHandle>>,
    views: Vec<CoreView>,
    watchdog: Mutex<Option<Watchdog>>,
}

struct Port {
    inboxes: Vec<Arc<ForeignInbox<Command>>>,
}

impl Port {
    fn push(&self, core: CoreIndex, command: Command) -> Result<(), (ClusterError, Command)> {
        let Some(inbox) = self.inboxes.get(usize::from(core.0)) else { return Err((ClusterError::Stopped, command)) };
        inbox.try_push(command).map_err(|command| {
            let error = if inbox.is_closed() { ClusterError::Stopped } else { ClusterError::Busy };
            (error, command)
        })
    }
}

impl ForeignPort for Port {
    fn submit(&self, core: CoreIndex, job: Job) -> Result<(), ClusterError> {
        self.push(core, Command::Job(job)).map_err(|(error, _)| error)
    }

    fn core_for(&self, entity_hash: u64) -> CoreIndex {
        CoreIndex((entity_hash % self.inboxes.len() as u64) as u16)
    }
}

impl Node {
    /// Starts the cores of a plan.
    pub(crate) fn start(plan: CoresPlan, options: NodeOptions) -> Result<Node, StartError> {
        let number = next_node_number();
        let doorbells: Vec<_> = plan.bells().iter().map(|bell| Arc::new(Doorbell::new(bell.clone()))).collect();
        let inboxes: Vec<_> = doorbells
            .iter()
            .map(|doorbell| Arc::new(ForeignInbox::new(FOREIGN_INBOX_CAPACITY, Arc::clone(doorbell))))
            .collect();
        let port = Arc::new(Port { inboxes: inboxes.clone() });
        register_node(number, port.clone());
        let type_names = options.types.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let stall = options.stall;
        let (clock, activities) = (plan.clock(), plan.activities().to_vec());
        let options = Arc::new(options);
        let (views, viewed) = mpsc::channel();
        let queues = connect_cores(&doorbells, &inboxes);
        let streams: Vec<_> = doorbells.iter().map(|_| HostInbox::new()).collect();
        let engines = queues.into_iter().zip(&doorbells).map(|(queues, doorbell)| {
            let (options, views, doorbell) = (Arc::clone(&options), views.clone(), Arc::clone(doorbell));
            let streams = streams.clone();
            move |context: CoreContext| {
                let core = make_core(number, &options, &context, queues, doorbell, streams);
                let view = CoreView { host: Arc::clone(core.host().counters()), engine: Arc::clone(core.counters()) };
                // The receiver waits until all cores run.
                let _ = views.send((context.core, view));
                let what = u64::from(context.core.0);
                Ok(LoopEngine::new(core, context.activity, what))
            }
        });
        let handle = match plan.start(engines.collect()) {
            Ok(handle) => handle,
            Err(error) => {
                forget_node(number);
                return Err(error);
            }
        };
        drop(views);
        let mut views: Vec<_> = viewed.into_iter().collect();
        views.sort_by_key(|(core, _)| *core);
        let views: Vec<CoreView> = views.into_iter().map(|(_, view)| view).collect();
        let hosts: Vec<_> = views.iter().map(|view| Arc::clone(&view.host)).collect();
        let names = type_names.clone();
        let watchdog = Watchdog::start(activities, clock, stall, move |core| what_runs(&hosts, &names, core))?;
        Ok(Node {
            number,
            type_names,
            port,
            handle: Mutex::new(Some(handle)),
            views,
            watchdog: Mutex::new(Some(watchdog)),
        })
    }

    /// How many cores there are.
    pub(crate) fn cores(&self) -> u16 {
        self.port.inboxes.len() as u16
    }

    /// Counters of each core.
    pub(crate) fn views(&self) -> &[CoreView] {
        &self.views
    }

    /// Counters of each core's loop.
    pub(crate) fn loop_counters(&self) -> Vec<crate::runtime::CounterValues> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.iter().flat_map(|handle| handle.counters()).map(|counters| counters.values()).collect()
    }

    /// Gives a core a command, waiting while its inbox is full. Not for threads that must not wait.
    pub(crate) fn command(&self, core: CoreIndex, mut command: Command) -> Result<(), ClusterError> {
        let give_up = Instant::now() + QUESTION_TIMEOUT;
        loop {
            match self.port.push(core, command) {
                Ok(()) => return Ok(()),
                Err((ClusterError::Busy, again)) if Instant::now() < give_up => command = again,
                Err((error, _)) => return Err(error),
            }
            std::thread::sleep(FULL_INBOX_PAUSE);
        }
    }

    /// Asks a core something, and waits for the answer.
    pub(crate) fn ask_core<T: Send + 'static>(
        &self,
        core: CoreIndex,
        question: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, ClusterError> {
        let (answer, answered) = mpsc::channel();
        self.command(
            core,
            Command::OnCore(Box::new(move |core| {
                // Whoever asked may have given up.
                let _ = answer.send(question(core));
            })),
        )?;
        answered.recv_timeout(QUESTION_TIMEOUT).map_err(|_| ClusterError::Stopped)
    }

    /// Runs a future on a core; `make` is called there.
    pub(crate) fn spawn_on<F>(
        &self,
        core: CoreIndex,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(), ClusterError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.command(core, Command::Job(Box::new(move |host| host.spawn(make()))))
    }

    /// Runs a graph on a core. From other threads than the cores', since it waits for the core.
    pub(crate) fn run_stream<Mat: Send + 'static>(
        &self,
        core: CoreIndex,
        graph: &RunnableGraph<Mat>,
    ) -> Result<Mat, StreamStartError> {
        let graph = graph.clone();
        Ok(self.ask_core(core, move |core| graph.run_on(core.streams()))??)
    }

    /// Gives all cores the same command.
    pub(crate) fn command_all(&self, mut make: impl FnMut() -> Command) {
        for core in 0..self.cores() {
            if let Err(error) = self.command(CoreIndex(core), make()) {
                tracing::debug!(core, %error, "a core took no command");
            }
        }
    }

    /// Whether no entity lives.
    pub(crate) fn is_empty(&self) -> bool {
        self.views.iter().all(|view| view.host.live.load(Ordering::Relaxed) == 0)
    }

    /// Waits until every core has taken its inbox so many times more; not for a core that does not answer.
    pub(crate) fn pass_turns(&self, turns: u32) {
        for _ in 0..turns {
            for core in 0..self.cores() {
                if let Err(error) = self.ask_core(CoreIndex(core), |_| ()) {
                    tracing::debug!(core, %error, "a core does not answer");
                    return;
                }
            }
        }
    }

    /// Ends the cores and waits for their threads.
    pub(crate) fn stop(&self) {
        self.command_all(|| Command::Stop);
        self.join();
    }

    /// Waits for the threads of cores that were told to stop.
    pub(crate) fn join(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            handle.join();
        }
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner).take();
        forget_node(self.number);
    }
}

/// What the watchdog says of a core that does not return.
fn what_runs(hosts: &[Arc<HostCounters>], names: &[&'static str], core: u64) -> String {
    let polling = hosts.get(core as usize).map_or(0, |host| host.polling.load(Ordering::Relaxed));
    match (polling as usize).checked_sub(1).and_then(|index| names.get(index)) {
        Some(name) => format!("a handler of the entity type `{name}`"),
        None => "a task or a lifecycle hook".to_owned(),
    }
}

fn make_core(
    number: u32,
    options: &NodeOptions,
    context: &CoreContext,
    queues: CoreQueues,
    doorbell: Arc<Doorbell>,
    streams: Vec<Arc<HostInbox>>,
) -> Core {
    let types = options.types.iter().enumerate();
    let types = types.map(|(index, (_, make))| make(index as u16, &options.defaults)).collect();
    Core::new(CoreParts {
        identity: Identity {
            uid: options.uid,
            core: context.core,
            cores: context.cores,
            cluster_name: options.cluster_name.clone(),
            role: options.role.clone(),
            version: options.version.clone(),
            is_pod: options.is_pod,
        },
        host: HostOptions {
            node: number,
            core: context.core,
            hash_seed: options.hash_seed,
            number_of_shards: options.number_of_shards,
            call_id_base: (options.uid.0 as u64).wrapping_add(u64::from(context.core.0) << 48),
            defaults: options.defaults,
            wake_target: WakeTarget::new(doorbell),
        },
        limits: options.limits,
        queues,
        types,
        inspector: options.inspector.clone(),
        bootstrap: options.bootstrap.clone(),
        validity: Arc::clone(&options.validity),
        clock: {
            let clock = context.clock;
            Arc::new(move || clock.now())
        },
        released: Arc::clone(&options.released),
        streams,
    })
}

/// The sending end of a queue, and the doorbell at its other end.
type Outgoing = (Producer<Parcel>, Arc<Doorbell>);

/// A queue for each ordered pair of cores.
fn connect_cores(doorbells: &[Arc<Doorbell>], inboxes: &[Arc<ForeignInbox<Command>>]) -> Vec<CoreQueues> {
    let cores = doorbells.len();
    let mut to: Vec<Vec<Option<Outgoing>>> = empty(cores);
    let mut from: Vec<Vec<Option<Consumer<Parcel>>>> = empty(cores);
    for sender in 0..cores {
        for receiver in (0..cores).filter(|receiver| *receiver != sender) {
            let (producer, consumer) = channel(MESH_CAPACITY);
            to[sender][receiver] = Some((producer, Arc::clone(&doorbells[receiver])));
            from[receiver][sender] = Some(consumer);
        }
    }
    let queues = to.into_iter().zip(from).zip(inboxes);
    queues.map(|((to, from), foreign)| CoreQueues { to, from, foreign: Arc::clone(foreign) }).collect()
}

fn empty<T>(cores: usize) -> Vec<Vec<Option<T>>> {
    (0..cores).map(|_| (0..cores).map(|_| None).collect()).collect()
}

/// A number that no other run of any process has.
pub(crate) fn fresh_uid() -> PodUid {
    use std::hash::{BuildHasher, Hasher};
    // Two independently keyed hashers of the standard library, which takes its keys from the operating system.
    let half = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    PodUid((u128::from(half()) << 64 | u128::from(half())) ^ time ^ u128::from(std::process::id()) << 64)
}
