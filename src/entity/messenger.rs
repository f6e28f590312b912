//! How senders name an entity: messengers for a type, targets for one entity.
//!
//! Both are plain values without reference counts, so that they cost nothing to make and may cross threads: the node is
//! found again by its number. Called by user code and the generated references.

use core::marker::PhantomData;
use core::time::Duration;

use super::ask::Ask;
use super::message::{EntityRef, Message, Protocol, Tell};
use super::options::Timeout;
use crate::base::hash::entity_hash;
use crate::base::{ClusterError, EntityId};

/// Type index of a type that its node does not host.
pub(crate) const NOT_HOSTED: u16 = u16::MAX;

/// The address of one entity, with how long its senders wait.
#[derive(Clone, Debug)]
pub struct EntityTarget {
    /// The empty placeholder if the text was no valid id: every send fails then.
    pub(crate) id: EntityId,
    pub(crate) hash: u64,
    pub(crate) timeout: Timeout,
    pub(crate) node: u32,
    pub(crate) type_index: u16,
}

impl EntityTarget {
    /// The id.
    #[must_use]
    pub fn id(&self) -> &EntityId {
        &self.id
    }

    /// A message for this entity, to be awaited or discarded. The generated references call this.
    #[inline(always)]
    pub fn ask<M: Message>(&self, message: M) -> Ask<M> {
        Ask::new(self.clone(), message)
    }
}

/// Why a stream of messages ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{accepted} messages are in the mailbox, the next one was not accepted: {error}")]
pub struct SendStreamError {
    /// How many messages are in the mailbox.
    pub accepted: u64,
    /// Why the next one is not. After a timeout or a lost link it may be there all the same.
    pub error: ClusterError,
}

/// Sends messages to the entities of one type.
pub struct Messenger<R: EntityRef> {
    node: u32,
    type_index: u16,
    timeout: Timeout,
    hash_seed: u64,
    reference: PhantomData<fn() -> R>,
}

impl<R: EntityRef> Clone for Messenger<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: EntityRef> Copy for Messenger<R> {}

impl<R: EntityRef> Messenger<R> {
    pub(crate) fn new(node: u32, type_index: Option<u16>, hash_seed: u64) -> Messenger<R> {
        Messenger {
            node,
            type_index: type_index.unwrap_or(NOT_HOSTED),
            timeout: Timeout::INHERIT,
            hash_seed,
            reference: PhantomData,
        }
    }

    /// How long senders wait, instead of what the configuration says.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Timeout::after(timeout);
        self
    }

    /// Senders wait for ever.
    #[must_use]
    pub fn no_timeout(mut self) -> Self {
        self.timeout = Timeout::NEVER;
        self
    }

    /// The reference of one entity. An id that is empty or too long makes every send fail with `InvalidEntityId`.
    #[inline(always)]
    #[must_use]
    pub fn entity(&self, id: &str) -> R {
        R::from_target(self.target(id))
    }

    #[inline(always)]
    fn target(&self, id: &str) -> EntityTarget {
        EntityTarget {
            node: self.node,
            type_index: self.type_index,
            timeout: self.timeout,
            hash: entity_hash(self.hash_seed, id.as_bytes()),
            id: EntityId::new(id).unwrap_or_else(|_| EntityId::placeholder()),
        }
    }

    /// A message as a value, for code that is generic over messages.
    ///
    /// ```
    /// use atoll::entity::{EntityRef, Message};
    /// use atoll::{ClusterError, Messenger, SendError};
    ///
    /// /// Sends a message again while its entity has no room for it, at most so many times.
    /// async fn send_patiently<R: EntityRef, M: Message<Protocol = R::Protocol>>(
    ///     messenger: &Messenger<R>,
    ///     id: &str,
    ///     attempts: u32,
    ///     make: impl Fn() -> M,
    /// ) -> Result<M::Reply, SendError<M::Error>> {
    ///     for _ in 1..attempts {
    ///         match messenger.send(id, make()).await {
    ///             Err(SendError::Cluster(ClusterError::MailboxFull)) => {}
    ///             outcome => return outcome,
    ///         }
    ///     }
    ///     messenger.send(id, make()).await
    /// }
    /// ```
    #[inline]
    pub fn send<M: Message<Protocol = R::Protocol>>(&self, id: &str, message: M) -> Ask<M> {
        Ask::new(self.target(id), message)
    }

    /// Sends messages that reply with nothing, in order, and returns how many, once all are in the mailbox of the
    /// entity. Each waits for the one before it, which bounds what is on its way.
    ///
    /// # Errors
    /// At the first that did not get there, such as for a full mailbox. What comes after it is not sent.
    pub async fn send_stream<T: Into<<R::Protocol as Protocol>::Tell>>(
        &self,
        id: &str,
        messages: impl IntoIterator<Item = T>,
    ) -> Result<u64, SendStreamError> {
        let mut messages = messages.into_iter();
        self.send_stream_from(id, async move || messages.next()).await
    }

    /// As [`Messenger::send_stream`], of messages that come in time: `next` is awaited for each until it says `None`.
    ///
    /// # Errors
    /// See there.
    pub async fn send_stream_from<T: Into<<R::Protocol as Protocol>::Tell>>(
        &self,
        id: &str,
        mut next: impl AsyncFnMut() -> Option<T>,
    ) -> Result<u64, SendStreamError> {
        let to = self.entity(id);
        let mut accepted = 0;
        while let Some(message) = next().await {
            let message: <R::Protocol as Protocol>::Tell = message.into();
            match message.tell(&to).await {
                Ok(()) => accepted += 1,
                Err(error) => return Err(SendStreamError { accepted, error }),
            }
        }
        Ok(accepted)
    }

    /// The name of the entity type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        <R::Protocol as Protocol>::NAME
    }
}
