//! The way into a core from threads that are not its own.
//!
//! Nodes (pods and clients) of this process are listed by number; a job for one of their cores goes through its foreign
//! inbox. An ask made elsewhere becomes a task of a core that does the real ask and hands back its outcome. None of this
//! is on the hot path: waking a core costs more than a lock. Called by `ask` and the shells.

use core::task::{Context, Poll, Waker};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::ask::Ask;
use super::dispatch::Answer;
use super::host::Host;
use super::message::Message;
use super::messenger::EntityTarget;
use crate::base::{ClusterError, CoreIndex, SendError};

/// Something to do on a core.
pub type Job = Box<dyn FnOnce(&Host) + Send>;

/// How threads reach the cores of a node.
pub trait ForeignPort: Send + Sync {
    /// Has a core do something.
    ///
    /// # Errors
    /// `Busy` if too much waits for it, `Stopped` if it is gone.
    fn submit(&self, core: CoreIndex, job: Job) -> Result<(), ClusterError>;

    /// The core through which messages to an entity go: always the same one, so that they keep their order.
    fn core_for(&self, entity_hash: u64) -> CoreIndex;
}

type Nodes = HashMap<u32, Arc<dyn ForeignPort>>;

static NODES: RwLock<Option<Nodes>> = RwLock::new(None);
static NEXT_NODE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

/// A number for a new node of this process.
pub fn next_node_number() -> u32 {
    NEXT_NODE.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Makes a node reachable.
pub fn register_node(number: u32, port: Arc<dyn ForeignPort>) {
    NODES.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(number, port);
}

/// Forgets a node; handles to it fail from now on.
pub fn forget_node(number: u32) {
    let mut nodes = NODES.write().unwrap_or_else(PoisonError::into_inner);
    let gone = nodes.as_mut().and_then(|nodes| nodes.remove(&number));
    drop(nodes);
    drop(gone);
}

fn node(number: u32) -> Option<Arc<dyn ForeignPort>> {
    NODES.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&number).map(Arc::clone)
}

/// Has a core do something; a core that is gone does nothing, which is right for clean-up.
pub(super) fn submit_to(number: u32, core: CoreIndex, job: Job) {
    if let Some(port) = node(number)
        && let Err(error) = port.submit(core, job)
    {
        tracing::debug!(%error, "a core did not take a clean-up");
    }
}

struct Shared<M: Message> {
    outcome: Option<Result<Option<Answer<M>>, ClusterError>>,
    asker: Option<Waker>,
    /// Wakes the task on the core, to tell it that nobody waits any more.
    task: Option<Waker>,
    abandoned: bool,
}

/// An ask made on a thread that is no core of the node.
pub(super) struct ForeignAsk<M: Message>(Arc<Mutex<Shared<M>>>);

fn lock<M: Message>(shared: &Mutex<Shared<M>>) -> MutexGuard<'_, Shared<M>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Message> ForeignAsk<M> {
    pub(super) fn start(target: EntityTarget, message: M, discard: bool) -> Result<ForeignAsk<M>, ClusterError> {
        let port = node(target.node).ok_or(ClusterError::Stopped)?;
        let shared = Arc::new(Mutex::new(Shared { outcome: None, asker: None, task: None, abandoned: false }));
        let for_task = ReportOnDrop(Arc::clone(&shared));
        port.submit(
            port.core_for(target.hash),
            Box::new(move |host| {
                host.spawn(async move {
                    let outcome = ask_until_abandoned(&for_task.0, target, message, discard).await;
                    if let Some(outcome) = outcome {
                        report(&for_task.0, outcome);
                    }
                });
            }),
        )?;
        Ok(ForeignAsk(shared))
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        let mut shared = lock(&self.0);
        match shared.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                shared.asker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<M: Message> Drop for ForeignAsk<M> {
    fn drop(&mut self) {
        let task = {
            let mut shared = lock(&self.0);
            shared.abandoned = true;
            shared.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// If the job or its task is dropped with its core, the asker learns it.
struct ReportOnDrop<M: Message>(Arc<Mutex<Shared<M>>>);

impl<M: Message> Drop for ReportOnDrop<M> {
    fn drop(&mut self) {
        report(&self.0, Err(ClusterError::Stopped));
    }
}

/// The first report counts.
fn report<M: Message>(shared: &Mutex<Shared<M>>, outcome: Result<Option<Answer<M>>, ClusterError>) {
    let asker = {
        let mut shared = lock(shared);
        if shared.abandoned || shared.outcome.is_some() {
            return;
        }
        shared.outcome = Some(outcome);
        // The outcome may be taken at once; a later report must not replace it.
        shared.abandoned = true;
        shared.asker.take()
    };
    if let Some(asker) = asker {
        asker.wake();
    }
}

async fn ask_until_abandoned<M: Message>(
    shared: &Mutex<Shared<M>>,
    target: EntityTarget,
    message: M,
    discard: bool,
) -> Option<Result<Option<Answer<M>>, ClusterError>> {
    let mut ask = core::pin::pin!(async move {
        let ask = Ask::new(target, message);
        if discard {
            return ask.discard().await.map(|()| None);
        }
        match ask.await {
            Ok(reply) => Ok(Some(Ok(reply))),
            Err(SendError::Declared(error)) => Ok(Some(Err(error))),
            Err(SendError::Cluster(error)) => Err(error),
        }
    });
    core::future::poll_fn(|context| {
        {
            let mut shared = lock(shared);
            if shared.abandoned {
                return Poll::Ready(None);
            }
            shared.task = Some(context.waker().clone());
        }
        ask.as_mut().poll(context).map(Some)
    })
    .await
}
