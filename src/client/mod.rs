//! A program that hosts nothing and talks to entities of a cluster.
//!
//! A [`Client`] has a core of its own (one thread, one ring) that holds the links. It learns the shard table from any
//! pod and follows its changes; it needs no access to the store. The pod shares `node` and `adapter`.

mod adapter;
pub(crate) mod node;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::limits::NUMBER_OF_SHARDS;
use crate::base::{ClusterError, CoreIndex};
use crate::engine::{Core, LinkLimits};
use crate::entity::{EntityDefaults, EntityRef, Messenger};
use crate::runtime::{CorePlacement, CoresOptions, CounterValues, PumpOptions, StartError, prepare};
use crate::wire::control::JsonCall;
use crate::wire::{Inspect, JsonOutcome};
use node::{Node, NodeOptions, fresh_uid};

/// How often a program that waits for its first table looks.
const TABLE_POLL: Duration = Duration::from_millis(2);

/// Why a client could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No address was given.
    #[error("no pod to connect to: give at least one address, such as 127.0.0.1:7400")]
    NoAddress,
    /// The client's own core could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A pod refused the client.
    #[error("the pod refused: {0}")]
    Refused(String),
    /// No pod answered in time.
    #[error(
        "no pod answered at {addresses} within {timeout:?}{}; is one running there (`atoll pod`), with this cluster name?",
        .outcome.as_ref().map(|outcome| format!(" ({outcome})")).unwrap_or_default()
    )]
    TimedOut {
        /// Where we looked.
        addresses: String,
        /// How long.
        timeout: Duration,
        /// What came of the last attempt, if that is known.
        outcome: Option<String>,
    },
}

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Role of the pods to talk to.
    pub role: String,
    /// How long to wait for the first pod.
    pub connect_timeout: Duration,
    /// How long asks wait unless they say otherwise.
    pub send_timeout: Duration,
    /// Where its cores run. One core is enough for most.
    pub placement: CorePlacement,
    /// Its loop.
    pub pump: PumpOptions,
    /// Bounds of its links.
    pub limits: LinkLimits,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            cluster_name: "atoll".to_owned(),
            role: "default".to_owned(),
            connect_timeout: Duration::from_secs(5),
            send_timeout: crate::base::limits::SEND_TIMEOUT,
            placement: CorePlacement::Unpinned(1),
            pump: PumpOptions::dev(),
            limits: LinkLimits::default(),
        }
    }
}

/// A connection to a cluster. Clones share it; it ends with the last one.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    hash_seed: u64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.stop();
    }
}

impl Client {
    /// Connects to the cluster that any of the addresses belongs to, with the defaults.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use atoll::services::guild::GuildRef;
    /// let client = atoll::Client::connect(["127.0.0.1:7400"])?;
    /// let guild = client.messenger::<GuildRef>().entity("g1");
    /// # let _ = guild;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If no pod answers in time, or one refuses.
    pub fn connect<A: ToString>(addresses: impl IntoIterator<Item = A>) -> Result<Client, ConnectError> {
        Client::connect_with(addresses, ClientOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with<A: ToString>(
        addresses: impl IntoIterator<Item = A>,
        options: ClientOptions,
    ) -> Result<Client, ConnectError> {
        let addresses: Vec<String> = addresses.into_iter().map(|address| address.to_string()).collect();
        if addresses.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        let plan = prepare(CoresOptions { placement: options.placement, listen: None, pump: options.pump })?;
        let node = Node::start(
            plan,
            NodeOptions {
                uid: fresh_uid(),
                cluster_name: options.cluster_name,
                role: options.role,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                is_pod: false,
                hash_seed: 0,
                number_of_shards: NUMBER_OF_SHARDS,
                limits: options.limits,
                defaults: EntityDefaults { send_timeout: options.send_timeout, ..EntityDefaults::default() },
                types: Vec::new(),
                inspector: None,
                bootstrap: addresses.clone(),
                stall: Duration::from_secs(1),
                validity: Arc::new(AtomicU64::new(u64::MAX)),
                released: Arc::new(|_, _| ()),
            },
        )?;
        let hash_seed = wait_for_table(&node, &addresses, options.connect_timeout).inspect_err(|_| node.stop())?;
        Ok(Client { inner: Arc::new(Inner { node, hash_seed }) })
    }

    /// Sends messages to the entities of one type.
    #[must_use]
    pub fn messenger<R: EntityRef>(&self) -> Messenger<R> {
        Messenger::new(self.inner.node.number, None, self.inner.hash_seed)
    }

    /// Runs a future on one of the client's cores, where asks take the shortest way. `make` is called there.
    ///
    /// # Errors
    /// If the client is stopped.
    pub fn spawn_on<F>(&self, core: CoreIndex, make: impl FnOnce() -> F + Send + 'static) -> Result<(), ClusterError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.inner.node.spawn_on(core, make)
    }

    /// Calls a message of a `json` protocol by name. Blocks the calling thread. After the timeout the call is cancelled,
    /// as an ask is: its message leaves the mailbox, or its handler is dropped, unless it is uninterruptible.
    ///
    /// # Errors
    /// If the entity's pod cannot be reached or does not answer in time, or the call is larger than a frame may be.
    pub fn call_json(&self, call: JsonCall, timeout: Duration) -> Result<JsonOutcome, ClusterError> {
        let seed = self.inner.hash_seed;
        self.on_core(timeout, move |core| {
            let routes = core.routes();
            async move { routes.call_json(call, seed, timeout).await }
        })
    }

    /// Asks a pod about the cluster; the answer is JSON. Blocks the calling thread.
    ///
    /// # Errors
    /// If no pod can be reached or none answers in time.
    pub fn inspect(&self, question: Inspect, timeout: Duration) -> Result<String, ClusterError> {
        self.on_core(timeout, move |core| {
            let routes = core.routes();
            async move { routes.inspect(question, timeout).await }
        })
    }

    fn on_core<T, F>(
        &self,
        timeout: Duration,
        make: impl FnOnce(&Core) -> F + Send + 'static,
    ) -> Result<T, ClusterError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClusterError>> + 'static,
    {
        let (answer, answered) = std::sync::mpsc::channel();
        self.inner.node.command(
            CoreIndex(0),
            crate::engine::Command::OnCore(Box::new(move |core| {
                let future = make(core);
                core.host().spawn(async move {
                    // Whoever asked may have given up.
                    let _ = answer.send(future.await);
                });
            })),
        )?;
        // The core's own timeout comes first unless the core hangs.
        answered.recv_timeout(timeout.saturating_add(Duration::from_secs(1))).map_err(|_| ClusterError::SendTimeout)?
    }

    /// How many messages were sent again, since their shard had moved or their link had failed.
    #[must_use]
    pub fn resends(&self) -> u64 {
        self.inner.node.views().iter().map(|view| view.engine.resends.load(Ordering::Relaxed)).sum()
    }

    /// Counters of the loop of each core.
    #[must_use]
    pub fn loop_counters(&self) -> Vec<CounterValues> {
        self.inner.node.loop_counters()
    }
}

/// Waits until the first core has a table; the others get it from there. Returns the seed of the entity hash.
fn wait_for_table(node: &Node, addresses: &[String], timeout: Duration) -> Result<u64, ConnectError> {
    let give_up = Instant::now() + timeout;
    loop {
        let seen = node.ask_core(CoreIndex(0), |core| (core.table(), core.refusal()));
        match seen {
            Ok((Some(table), _)) => {
                for core in 1..node.cores() {
                    // A core that is gone needs no table.
                    let _ = node.command(CoreIndex(core), crate::engine::Command::Table(Arc::clone(&table)));
                }
                return Ok(table.hash_seed());
            }
            Ok((None, Some(refusal))) => return Err(ConnectError::Refused(refusal)),
            _ if Instant::now() >= give_up => {
                let outcome = node.ask_core(CoreIndex(0), |core| core.dial_outcome()).ok().flatten();
                return Err(ConnectError::TimedOut { addresses: addresses.join(", "), timeout, outcome });
            }
            _ => std::thread::sleep(TABLE_POLL),
        }
    }
}
