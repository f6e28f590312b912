//! What can go wrong with a message besides the error that it declares.

use core::fmt;

/// Why a call failed in the cluster. The numeric [code](ClusterError::code) is part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The mailbox of the entity is full; the message was not processed. Send slower, or raise `mailbox_capacity`.
    #[error("the mailbox of the entity is full; the message was not processed")]
    MailboxFull,
    /// No reply (or acknowledgement of a discard) within the timeout. It may have been processed.
    #[error("no reply within the timeout; the message may have been processed")]
    SendTimeout,
    /// The pod is not responsive (broadcasts only: messages to entities are sent again).
    #[error("the pod is not responsive")]
    PodUnavailable,
    /// A stream of replies was interrupted after it started.
    #[error("the stream of replies was interrupted; restart it from its last element")]
    StreamCancelled,
    /// The shard computed for the entity does not exist.
    #[error("the shard computed for the entity does not exist")]
    InvalidShardId,
    /// The entity was stopped before the message was fully processed. It may have been partially processed.
    #[error("the entity was stopped before the message was processed; it may be partially done")]
    EntityInterrupted,
    /// The entity was not running and `load_entity` rejected the message.
    #[error("the entity was not running, and this message does not start it")]
    MessageDiscarded,
    /// The entity panicked while processing the message, or failed to start.
    #[error("the entity panicked on the message or failed to start; the next message starts a new one")]
    EntityDefect,
    /// A message or reply could not be encoded or decoded.
    #[error("a message or reply could not be encoded or decoded")]
    Serialization,
    /// The two sides were built with different definitions of the message; nothing was decoded.
    #[error("both sides have different definitions of this message; build them from the same protocol")]
    SchemaMismatch,
    /// A message or reply is larger than the receiver takes.
    #[error("the message or reply is larger than the receiver takes; send less at once")]
    PayloadTooLarge,
    /// An unexpected failure of the transport between pods.
    #[error("the connection to the pod failed")]
    Transport,
    /// The call would wait for a call of its own chain, so it would never end.
    #[error("the call would wait for a call that waits for it (a cycle of asks)")]
    Cycle,
    /// The entity type is not registered at the pod that owns the shard.
    #[error("the pod that owns the shard does not serve this entity type or message")]
    NotServed,
    /// The entity id is empty or too long.
    #[error("an entity id has 1 to 255 bytes")]
    InvalidEntityId,
    /// Too much is waiting for the receiver already; try again later.
    #[error("too much is waiting for the receiver already; try again later")]
    Busy,
    /// The pod or client behind this handle was stopped, or the ask was moved to another thread after its first poll.
    #[error("the pod or client behind this handle was stopped")]
    Stopped,
}

const CODES: [ClusterError; 17] = [
    ClusterError::MailboxFull,
    ClusterError::SendTimeout,
    ClusterError::PodUnavailable,
    ClusterError::StreamCancelled,
    ClusterError::InvalidShardId,
    ClusterError::EntityInterrupted,
    ClusterError::MessageDiscarded,
    ClusterError::EntityDefect,
    ClusterError::Serialization,
    ClusterError::SchemaMismatch,
    ClusterError::PayloadTooLarge,
    ClusterError::Transport,
    ClusterError::Cycle,
    ClusterError::NotServed,
    ClusterError::InvalidEntityId,
    ClusterError::Busy,
    ClusterError::Stopped,
];

impl ClusterError {
    /// The number that stands for this error on the wire (1 and up).
    #[must_use]
    pub fn code(self) -> u32 {
        CODES.iter().position(|known| *known == self).map_or(0, |at| at as u32 + 1)
    }

    /// The error of a number; `None` for one that this version does not know.
    #[must_use]
    pub fn from_code(code: u32) -> Option<ClusterError> {
        CODES.get((code as usize).checked_sub(1)?).copied()
    }
}

/// How a call failed: with the error that its message declares, or in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError<E> {
    /// The error that the message declares.
    Declared(E),
    /// Everything else.
    Cluster(ClusterError),
}

impl<E> From<ClusterError> for SendError<E> {
    fn from(error: ClusterError) -> Self {
        SendError::Cluster(error)
    }
}

impl<E: fmt::Debug> fmt::Display for SendError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Declared(error) => write!(f, "the entity answered with {error:?}"),
            SendError::Cluster(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for SendError<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_fixed_and_go_both_ways() {
        for (at, error) in CODES.into_iter().enumerate() {
            assert_eq!(error.code(), at as u32 + 1);
            assert_eq!(ClusterError::from_code(error.code()), Some(error));
        }
        assert_eq!(ClusterError::MailboxFull.code(), 1);
        assert_eq!(ClusterError::Stopped.code(), 17);
        assert_eq!(ClusterError::from_code(0), None);
        assert_eq!(ClusterError::from_code(18), None);
    }
}
