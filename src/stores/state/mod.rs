//! A small store for what entities save, which refuses a writer that no longer owns its shard.
//!
//! Called by entity code through [`StateStore`]: [`StateStore::embedded`] keeps the state in the data directory of the
//! pod, [`StateStore::served`] at an `atoll manager`, beside the control records. Requests run on a thread of their own;
//! their futures may be awaited anywhere and are woken from there.
//!
//! How to use it so that nothing is lost: [load](StateStore::load) the state with `scope.fence()` when the entity
//! starts, which shuts out every earlier owner, and [apply](StateStore::apply) changes with the same token. After an
//! error other than [`StateError::Busy`] and [`StateError::OutOfBounds`] the entity does not know what is stored: it
//! stops, and the next message loads again.

mod file;
mod model;
mod remote;
mod worker;

use core::net::SocketAddr;
use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

pub use file::FILE_NAME;
pub(crate) use file::StateFile;
pub use model::{
    APPLY_OPERATIONS_MAX, Applied, Apply, KEY_BYTES_MAX, REQUEST_BYTES_MAX, Saved, StateChange, StateCompare,
    StateError, StateLimit, StateStatistics, VALUE_BYTES_MAX,
};
pub(crate) use model::{STATE_SCHEMA, StateAnswer, StateAsked, StateRequest, StateTold};
pub(crate) use worker::Worker;

use tokio::sync::Semaphore;

use crate::base::Token;
use crate::stores::OpenError;
use remote::Remote;

/// Time after which a request counts as failed, by default.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of requests that wait for their answer, in KiB: 64 MiB.
const ROOM_KIB: usize = 64 << 10;

/// The way to saved state. Clones share it.
#[derive(Clone)]
pub struct StateStore {
    place: Place,
    room: Arc<Semaphore>,
}

#[derive(Clone)]
enum Place {
    Here(Worker),
    There(Arc<Remote>),
}

impl core::fmt::Debug for StateStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StateStore").finish_non_exhaustive()
    }
}

impl StateStore {
    /// Keeps state in a file of a data directory, which this process alone may use; `None` keeps it in memory.
    ///
    /// # Errors
    /// If another process uses the directory, or it cannot be used.
    pub fn embedded(directory: Option<&Path>) -> Result<StateStore, OpenError> {
        let shown = directory.unwrap_or(Path::new("memory")).to_owned();
        let damaged = |reason: String| OpenError::Damaged { file: shown.clone(), reason };
        let file = match directory {
            Some(directory) => StateFile::open(directory)?,
            None => StateFile::in_memory().map_err(|error| damaged(error.to_string()))?,
        };
        let worker = Worker::start(file).map_err(OpenError::Thread)?;
        Ok(StateStore::at(Place::Here(worker)))
    }

    /// Keeps state at an `atoll manager`. Returns at once: requests wait for the connection, `timeout` at most.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn served(address: SocketAddr, timeout: Duration) -> std::io::Result<StateStore> {
        Ok(StateStore::at(Place::There(Arc::new(Remote::start(address, timeout)?))))
    }

    fn at(place: Place) -> StateStore {
        StateStore { place, room: Arc::new(Semaphore::new(ROOM_KIB)) }
    }

    async fn ask(&self, request: StateRequest) -> Result<StateAnswer, StateError> {
        request.check()?;
        let kib = u32::try_from(request.bytes() / 1024 + 1).unwrap_or(u32::MAX);
        let _room = self.room.try_acquire_many(kib).map_err(|_| StateError::Busy)?;
        let (answer, answered) = tokio::sync::oneshot::channel();
        match &self.place {
            Place::Here(worker) => worker.submit(
                request,
                Box::new(move |outcome| {
                    // Nobody waits if the future was dropped.
                    let _ = answer.send(outcome);
                }),
            ),
            Place::There(remote) => remote.submit(request, answer)?,
        }
        answered.await.unwrap_or_else(|_| Err(StateError::Unavailable("the state store has stopped".to_owned())))
    }

    /// The value of a key, whoever owns it.
    ///
    /// # Errors
    /// [`StateError`]; nothing was changed.
    pub async fn get(&self, key: &str) -> Result<Option<Saved>, StateError> {
        value(self.ask(StateRequest::Get { key: key.to_owned() }).await?)
    }

    /// The value of a key for its owner: from now on every owner with an older token is refused, also if there is no
    /// value yet.
    ///
    /// # Errors
    /// [`StateError::StaleToken`] if a later owner was here.
    pub async fn load(&self, key: &str, token: Token) -> Result<Option<Saved>, StateError> {
        value(self.ask(StateRequest::Load { key: key.to_owned(), token: token.0 }).await?)
    }

    /// Saves a value. It is durable when this returns.
    ///
    /// # Errors
    /// [`StateError::StaleToken`] if a later owner was here.
    pub async fn put(&self, key: &str, value: &[u8], token: Token) -> Result<(), StateError> {
        let change = StateChange::Put { key: key.to_owned(), value: value.to_vec() };
        // Without compares there is none that does not hold.
        self.apply(Apply { token: token.0, compares: Vec::new(), changes: vec![change] }).await.map(|_| ())
    }

    /// Makes several changes at once, if all conditions hold and no key that is named has a newer token.
    ///
    /// # Errors
    /// [`StateError::StaleToken`] if a later owner was here.
    pub async fn apply(&self, apply: Apply) -> Result<Applied, StateError> {
        match self.ask(StateRequest::Apply(apply)).await? {
            StateAnswer::Applied(applied) => Ok(applied),
            _ => Err(unexpected()),
        }
    }

    /// What the store did for all its users, counted over restarts.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be asked.
    pub async fn statistics(&self) -> Result<StateStatistics, StateError> {
        match self.ask(StateRequest::Statistics).await? {
            StateAnswer::Statistics(statistics) => Ok(statistics),
            _ => Err(unexpected()),
        }
    }

    /// Lets go of the store. With the last clone of an embedded one the file is closed when this returns.
    pub fn close(self) {
        if let Place::Here(worker) = self.place {
            worker.close();
        }
    }
}

fn value(answer: StateAnswer) -> Result<Option<Saved>, StateError> {
    match answer {
        StateAnswer::Value(saved) => Ok(saved),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> StateError {
    StateError::Unavailable("it gave an answer of another kind".to_owned())
}
