//! The life of an entity apart from its messages: how it starts and how it stops.

use core::fmt;
use core::future::Future;

use super::message::Serves;
use super::scope::Scope;
use crate::base::EntityId;

/// An entity type: plain Rust state, one instance for each id, all its messages one at a time unless it says otherwise.
///
/// The protocol is a trait with `#[atoll::protocol]`; the state implements it and this.
pub trait Entity: Sized + 'static {
    /// The messages that it handles.
    type Protocol: Serves<Self>;

    /// Makes the state when the first message arrives: load what you need here. While it runs, messages wait.
    ///
    /// # Errors
    /// All who wait get [`EntityDefect`](crate::ClusterError::EntityDefect); the next message tries again.
    fn start(id: &EntityId, scope: Scope<Self>) -> impl Future<Output = Result<Self, StartError>>;

    /// Runs after the last message; save state here. It has what is left of the termination timeout.
    fn stop(&mut self, reason: StopReason) -> impl Future<Output = ()> {
        let _ = reason;
        async {}
    }
}

/// Why an entity stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// No message for `max_idle`.
    Idle,
    /// `scope.stop()` or an operator asked for it.
    Requested,
    /// Its shard moves to another pod.
    Moved,
    /// The pod stops.
    Shutdown,
}

/// Why an entity could not start: a text for the log of the pod.
#[derive(Debug)]
pub struct StartError(String);

impl StartError {
    /// An error with a reason.
    pub fn new(reason: impl fmt::Display) -> StartError {
        StartError(reason.to_string())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: core::error::Error> From<E> for StartError {
    fn from(error: E) -> Self {
        StartError(error.to_string())
    }
}
