//! The way out of a core: what `host` asks of the layer above when an entity is not here.
//!
//! Implemented by `engine`; called by `ask` and `host`. Invariant: no method polls user code.

#![allow(unsafe_code)]

use core::time::Duration;

use super::call::{Call, PendingKey};
use super::dispatch::{AnswerVtable, MessageVtable};
use super::host::Host;
use super::messenger::EntityTarget;
use super::pending::Location;
use crate::base::{ClusterError, CoreIndex, LinkId, Token};
use crate::wire::codec::CodecError;

/// A message on its way out.
pub struct Outbound<'a> {
    /// The entity.
    pub target: &'a EntityTarget,
    /// The message type.
    pub message_type: &'static MessageVtable,
    /// The message. If the router moves it out it says so with [`Sent::taken`].
    pub message: *mut (),
    /// Who waits.
    pub key: PendingKey,
    /// Wants only to know that it is in the mailbox.
    pub discard: bool,
    /// What is left of the timeout.
    pub remaining: Option<Duration>,
    /// The chain of calls, the sender's own included.
    pub call: Call,
}

/// What became of an outbound message.
pub struct Sent {
    /// Where it is now.
    pub location: Location,
    /// The message was moved out; otherwise it still belongs to the sender, who may have to send it again.
    pub taken: bool,
}

/// Encodes something at the end of a buffer, at most so many bytes.
pub type Encode<'a> = &'a mut dyn FnMut(&mut Vec<u8>, usize) -> Result<(), CodecError>;

/// What lies between the cores.
pub trait Router {
    /// Sends a message to where its entity is.
    ///
    /// # Errors
    /// If it cannot be sent and waiting would not help; the message still belongs to the sender.
    fn send(&self, host: &Host, outbound: &Outbound<'_>) -> Result<Sent, ClusterError>;

    /// The sender stopped waiting; the location is one of another core, a link, or no way yet.
    fn cancel(&self, location: Location, key: PendingKey);

    /// Has an ask whose message found no way ([`Location::Unrouted`]) woken when it may be sent. Called once for each
    /// time that it is to be woken.
    fn wait_for_route(&self, key: PendingKey);

    /// Whether an ask that waits for a way is the next one to its shard: none waits that came before it, and nothing is
    /// under way to a former owner.
    fn is_next(&self, host: &Host, key: PendingKey, hash: u64) -> bool {
        let _ = (host, key, hash);
        true
    }

    /// An ask does not wait for a way any more: its message starts here, or it ends.
    fn leaves(&self, host: &Host, key: PendingKey, hash: u64) {
        let _ = (host, key, hash);
    }

    /// Everything has run that was ready at the last `Host::queue_barrier`.
    fn woken_have_run(&self, host: &Host) {
        let _ = host;
    }

    /// Moves an answer to another core.
    ///
    /// # Safety
    /// `answer` is initialised, of the given type, and moved out.
    unsafe fn answer_core(&self, core: CoreIndex, key: u64, answer_type: &'static AnswerVtable, answer: *mut ());
    /// Tells another core that a discard is in the mailbox.
    fn acknowledge_core(&self, core: CoreIndex, key: u64);
    /// Tells another core that its ask failed.
    fn fail_core(&self, core: CoreIndex, key: u64, error: ClusterError);

    /// Archives an answer into a link.
    fn answer_link(&self, link: LinkId, correlation: u64, token: Token, encode: Encode<'_>);
    /// Tells a link that a discard is in the mailbox.
    fn acknowledge_link(&self, link: LinkId, correlation: u64);
    /// Tells a link that its ask failed.
    fn fail_link(&self, link: LinkId, correlation: u64, error: ClusterError);
    /// Answers a call in JSON: reply, declared error, or why there is neither.
    fn answer_json(&self, link: LinkId, correlation: u64, outcome: Result<Result<String, String>, String>);
    /// A call in JSON failed in the cluster.
    fn fail_json(&self, link: LinkId, correlation: u64, error: ClusterError);
}
