//! What a message, a protocol and an entity are to the compiler.
//!
//! `#[atoll::protocol]` writes the impls of [`Message`], [`Protocol`], [`Serves`] and [`HandledExclusive`] /
//! [`HandledShared`]; generic code (retries, gateways, interceptors) is written over [`Message`].
//! Invariant: `Protocol::METHODS[M::INDEX]` describes `M`.

use core::future::Future;

use super::dispatch::{Answer, Method};
use super::lifecycle::Entity;
use super::messenger::EntityTarget;
use crate::base::ClusterError;
use crate::wire::Wire;
use crate::wire::never::Never;

/// What a handler may do with the state of its entity, and what it excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `&mut self`: holds a permit and the state for itself.
    Exclusive,
    /// `&self`: holds a permit, reads the state beside others.
    Shared,
    /// `#[concurrent] &self`: reads the state, needs no permit.
    Concurrent,
}

/// A message of an entity: its arguments, its reply and its own error.
pub trait Message: Wire {
    /// What the handler answers; `()` if there is nothing to say.
    type Reply: Wire;
    /// The error that the handler may answer; [`Never`](crate::Never) if it cannot fail.
    type Error: Wire;
    /// The protocol that the message belongs to.
    type Protocol: Protocol;

    /// The name of the method.
    const NAME: &'static str;
    /// Stable hash of `entity::method`: what stands for the message on the wire.
    const TAG: u32;
    /// Position among the methods of the protocol.
    const INDEX: u16;
    /// What the handler does with the state.
    const ACCESS: Access;
    /// Whether the handler runs to its end when its sender stops waiting.
    const UNINTERRUPTIBLE: bool;
    /// Hash over the shape of message, reply and error: both sides compare it before any byte is decoded.
    const CALL_SCHEMA: u64 = crate::base::hash::mix(
        <Self as Wire>::SCHEMA,
        crate::base::hash::mix(<Self::Reply as Wire>::SCHEMA, <Self::Error as Wire>::SCHEMA),
    );

    /// The message as a case of the protocol's enum of borrowed messages.
    fn borrowed(&self) -> <Self::Protocol as Protocol>::Borrowed<'_>;

    /// What its handler answered, as a case of the protocol's enum of outcomes.
    fn outcome(answer: Answer<Self>) -> <Self::Protocol as Protocol>::Outcome;

    /// The answer in an outcome; `None` if it is the outcome of another message.
    fn answer(outcome: <Self::Protocol as Protocol>::Outcome) -> Option<Answer<Self>>;
}

/// What both sides know of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// The name of the method.
    pub name: &'static str,
    /// What stands for the message on the wire.
    pub tag: u32,
    /// Hash over the shape of message, reply and error.
    pub schema: u64,
    /// What the handler does with the state.
    pub access: Access,
    /// Whether the handler runs to its end when its sender stops waiting.
    pub uninterruptible: bool,
}

impl MethodInfo {
    /// The description of a message type.
    #[must_use]
    pub const fn of<M: Message>() -> MethodInfo {
        MethodInfo {
            name: M::NAME,
            tag: M::TAG,
            schema: M::CALL_SCHEMA,
            access: M::ACCESS,
            uninterruptible: M::UNINTERRUPTIBLE,
        }
    }
}

/// The messages of an entity type. Made by `#[atoll::protocol]`.
pub trait Protocol: Sized + 'static {
    /// The name of the entity type.
    const NAME: &'static str;
    /// Its messages, in the order of the trait.
    const METHODS: &'static [MethodInfo];
    /// The typed reference with one method for each message.
    type Ref: EntityRef<Protocol = Self>;
    /// All messages, borrowed, for matching.
    type Borrowed<'a>;
    /// The outcomes of all messages: what their handlers answer.
    type Outcome: Outcome;
    /// The messages that reply with nothing and cannot fail; [`Never`](crate::Never) if there are none.
    type Tell: Tell<Self::Ref>;
}

/// The outcome of a message. Made by `#[atoll::protocol]`.
pub trait Outcome: 'static {
    /// The name of the message.
    fn name(&self) -> &'static str;
    /// Whether it failed with its declared error.
    fn is_error(&self) -> bool;
}

/// A message that replies with nothing and cannot fail. Made by `#[atoll::protocol]`.
pub trait Tell<R: EntityRef>: Sized {
    /// Sends it; the future is ready once it is in the mailbox of the entity.
    ///
    /// # Errors
    /// If it did not get there.
    fn tell(self, to: &R) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

impl<R: EntityRef> Tell<R> for Never {
    async fn tell(self, _: &R) -> Result<(), ClusterError> {
        match self {}
    }
}

/// A typed reference to one entity. Made by `#[atoll::protocol]`.
pub trait EntityRef: Clone + Send + Sync + 'static {
    /// The protocol that it speaks.
    type Protocol: Protocol<Ref = Self>;
    /// Wraps the address.
    fn from_target(target: EntityTarget) -> Self;
    /// The address.
    fn target(&self) -> &EntityTarget;
}

/// A protocol whose messages the entity `S` handles. Made by `#[atoll::protocol]` for every `S` that implements the
/// trait.
pub trait Serves<S: Entity>: Protocol {
    /// How each message is handled, in the order of [`Protocol::METHODS`].
    const TABLE: &'static [Method];
    /// The same for a type with an interceptor.
    const INTERCEPTED: &'static [Method];
}

/// A message whose handler takes `&mut self`.
pub trait HandledExclusive<S>: Message {
    /// Runs the handler.
    fn handle(self, state: &mut S) -> impl Future<Output = Result<Self::Reply, Self::Error>>;
}

/// A message whose handler takes `&self`.
pub trait HandledShared<S>: Message {
    /// Runs the handler.
    fn handle(self, state: &S) -> impl Future<Output = Result<Self::Reply, Self::Error>>;
}
