//! A pod: a process that hosts entities.
//!
//! [`Pod::builder`] takes the configuration and the entity types and starts the cores and the control thread. Called by
//! user programs and by `atoll pod`. Invariants: the pod owns its shards before its cores accept; entities stop before
//! shards are given up; what is shared between threads is in `Inner` and nowhere else.

mod admin;
mod builder;
mod cluster;
pub mod config;
mod control_port;
mod control_thread;
mod orders;
mod state;
mod stopping;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{ClusterError, CoreIndex, EntityId, PodUid, ShardId};
use crate::client::node::Node;
pub use crate::client::node::StreamStartError;
use crate::entity::{EntityRef, Messenger, Protocol};
use crate::runtime::CounterValues;
use crate::sharding::ShardTable;
use crate::stream::dsl::RunnableGraph;
pub use builder::{PodBuilder, StartError};
pub use cluster::RegisteredPod;
use cluster::Shared;
use control_port::{ControlHandle, Stop};
pub use state::open_state;

/// A running pod. Clones share it; it stops when the last one is dropped.
#[derive(Clone)]
pub struct Pod {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    control: ControlHandle,
    shared: Arc<Shared>,
    address: SocketAddr,
    hash_seed: u64,
    drain_timeout: Duration,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.control.stop(Stop::Now);
    }
}

impl Pod {
    /// Describes a pod to start.
    #[must_use]
    pub fn builder() -> PodBuilder {
        PodBuilder::default()
    }

    /// Sends messages to the entities of one type, here or at other pods.
    #[must_use]
    pub fn messenger<R: EntityRef>(&self) -> Messenger<R> {
        let name = <R::Protocol as Protocol>::NAME;
        let index = self.inner.node.type_names.iter().position(|known| *known == name);
        Messenger::new(self.inner.node.number, index.map(|index| index as u16), self.inner.hash_seed)
    }

    /// Where the pod accepts links.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Which run of which pod this is. A pod that lost its lease goes on with another one.
    #[must_use]
    pub fn uid(&self) -> PodUid {
        self.inner.shared.uid()
    }

    /// How many cores it has.
    #[must_use]
    pub fn cores(&self) -> u16 {
        self.inner.node.cores()
    }

    /// The shard of an entity id.
    #[must_use]
    pub fn shard_of(&self, id: &str) -> ShardId {
        let table = self.assignments();
        table.shard_of(crate::base::hash::entity_hash(self.inner.hash_seed, id.as_bytes()))
    }

    /// Which pod and core own which shard.
    #[must_use]
    pub fn assignments(&self) -> Arc<ShardTable> {
        self.inner.shared.table()
    }

    /// The pods of this pod's role that own shards, in the order of their registration.
    #[must_use]
    pub fn pods(&self) -> Vec<RegisteredPod> {
        let (table, registered) = (self.assignments(), self.registered_pods());
        registered.into_iter().filter(|pod| pod.role == table.role() && pod.shards > 0).collect()
    }

    /// All pods of the cluster, of every role, in the order of their registration.
    #[must_use]
    pub fn registered_pods(&self) -> Vec<RegisteredPod> {
        self.inner.shared.registered().to_vec()
    }

    /// Ids of the running entities of a type on this pod, at most `limit` for each core. Blocks the calling thread.
    ///
    /// # Errors
    /// If a core does not answer.
    pub fn local_entities(&self, type_name: &str, limit: usize) -> Result<Vec<EntityId>, ClusterError> {
        admin::local_entities(&self.inner.node, type_name, limit)
    }

    /// Runs a future on a core, where asks take the shortest way. `make` is called there.
    ///
    /// # Errors
    /// If the pod is stopped, or too much waits for the core.
    pub fn spawn_on<F>(&self, core: CoreIndex, make: impl FnOnce() -> F + Send + 'static) -> Result<(), ClusterError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.inner.node.spawn_on(core, make)
    }

    /// Runs a graph on a core of the pod, beside its entities, and waits until it is started. Not for code that runs on a
    /// core: there, [`RunnableGraph::run`] does it at once.
    ///
    /// # Errors
    /// If the graph is not complete or asks for what does not exist, or the core does not answer.
    pub fn run_stream<Mat: Send + 'static>(
        &self,
        core: CoreIndex,
        graph: &RunnableGraph<Mat>,
    ) -> Result<Mat, StreamStartError> {
        self.inner.node.run_stream(core, graph)
    }

    /// Counters of the loop of each core.
    #[must_use]
    pub fn loop_counters(&self) -> Vec<CounterValues> {
        self.inner.node.loop_counters()
    }

    /// Stops cleanly: its shards go to other pods, entities finish what they received, then the pod leaves; all that takes
    /// `pod.drain_timeout` at most.
    pub fn stop(&self) {
        self.inner.control.stop(Stop::Drain(self.inner.drain_timeout));
    }

    /// Stops at once, also a stop that is under way: what runs is dropped, and its senders are told where that is
    /// possible.
    pub fn stop_now(&self) {
        self.inner.control.stop(Stop::Now);
    }

    /// Waits for SIGTERM or SIGINT, then stops cleanly and returns. A second signal stops at once.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub fn wait(&self) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!(
                "stopping: shards are handed over and entities finish what they received; a second signal stops at once"
            );
            let pod = self.clone();
            let (stopped, mut done) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                pod.stop();
                // The receiver is gone after a second signal.
                let _ = stopped.send(());
            });
            tokio::select! {
                _ = &mut done => return Ok(()),
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let pod = self.clone();
            std::thread::spawn(move || pod.stop_now());
            // Giving the lease back spares the others the wait for it, but a handler that does not return is not waited for.
            let _ = tokio::time::timeout(STOP_NOW_MAX, &mut done).await;
            std::process::exit(SECOND_SIGNAL_EXIT)
        })
    }
}

/// Longest time for a stop at once.
const STOP_NOW_MAX: Duration = Duration::from_millis(500);
/// Exit code after a second signal: something was left undone (`EX_TEMPFAIL`).
const SECOND_SIGNAL_EXIT: i32 = 75;
