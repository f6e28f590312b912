//! What the loop of a core drives: the engine as the loop sees it.
//!
//! The loop is generic over [`Engine`]; nothing here is an object. All methods take `&self`, because user code that the engine
//! polls calls back into it. The loop calls every method on the core's own thread and never from inside another one.

use std::net::SocketAddr;

use crate::base::{LinkId, Nanos};

/// Bytes that open every connection, in each direction of dialing. Exactly this many are read before anything is armed.
pub const HELLO_BYTES: usize = 64;

/// What the engine wants done with sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketCommand {
    /// Connect to `address` (`host:port`, a name is resolved off the loop) and send the hello first. Answered by
    /// [`Engine::connected`] or [`Engine::closed`].
    Connect {
        /// The link that this connection becomes; its index must be free.
        link: LinkId,
        /// Where to: `host:port`.
        address: String,
        /// The first bytes that the peer gets.
        hello: [u8; HELLO_BYTES],
    },
    /// Make a link of a descriptor that [`Engine::accepted`] handed out on some core of this process. Receiving starts at once;
    /// there is no call of [`Engine::connected`].
    Adopt {
        /// The link that this connection becomes; its index must be free.
        link: LinkId,
        /// The number from [`Engine::accepted`].
        descriptor: i32,
    },
    /// Close a descriptor from [`Engine::accepted`] that becomes no link.
    Discard {
        /// The number from [`Engine::accepted`].
        descriptor: i32,
    },
    /// Send what the link's output holds (for [`LinkLimits::linger`](super::LinkLimits) at most), then close. Answered by
    /// [`Engine::closed`].
    Close {
        /// The link.
        link: LinkId,
    },
    /// Take no more bytes from this peer. A bounded number of receive buffers that arrived before may still be delivered.
    PauseReceive {
        /// The link.
        link: LinkId,
    },
    /// Take bytes from this peer again.
    ResumeReceive {
        /// The link.
        link: LinkId,
    },
}

/// Why a link ended. The number is the error code of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The engine asked for it.
    #[error("closed on request")]
    Requested,
    /// The peer closed its side.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The connection could not be made.
    #[error("could not connect: {}", std::io::Error::from_raw_os_error(*.0))]
    ConnectFailed(i32),
    /// No answer to the attempt to connect within [`LinkLimits::connect_timeout`](super::LinkLimits).
    #[error("could not connect in time; is the address right and the peer up?")]
    ConnectTimeout,
    /// The address has no meaning or its name is unknown.
    #[error("the address is not `host:port`, or its name is unknown")]
    AddressUnknown,
    /// Sending or receiving failed.
    #[error("the connection failed: {}", std::io::Error::from_raw_os_error(*.0))]
    Failed(i32),
    /// The index of the link is in use or beyond [`LinkLimits::links_max`](super::LinkLimits), or too many operations are
    /// in flight.
    #[error("this core has no room for another link (`links_max`)")]
    NoRoom,
    /// The descriptor to adopt was never handed out, or was adopted before.
    #[error("the descriptor to adopt is not one that was accepted")]
    UnknownDescriptor,
    /// The core stopped.
    #[error("the core stopped")]
    Stopped,
}

/// One core's state machine, as the loop drives it.
pub trait Engine {
    /// A connection was accepted on this core and sent exactly its hello. The descriptor belongs to the engine until it comes
    /// back in an [`Adopt`](SocketCommand::Adopt) or [`Discard`](SocketCommand::Discard) command, of any core.
    fn accepted(&self, hello: [u8; HELLO_BYTES], descriptor: i32, peer: SocketAddr);

    /// The next bytes of a link, in order, in place in the receive buffer: the engine copies what it must keep.
    fn received(&self, link: LinkId, bytes: &[u8], now: Nanos);

    /// A [`Connect`](SocketCommand::Connect) succeeded; the hello goes out before any output.
    fn connected(&self, link: LinkId, now: Nanos);

    /// The link is gone: exactly once for each `Connect` and `Adopt`. Its index is free from here on.
    fn closed(&self, link: LinkId, reason: CloseReason, now: Nanos);

    /// Takes at most a batch from each peer core and from the inbox of foreign threads. True if it took something.
    fn inboxes(&self, now: Nanos) -> bool;

    /// Runs what is ready until `until` at most, and returns early at a checkpoint when `news` says so. True if it did something.
    fn work(&self, now: Nanos, until: Nanos, clock: &dyn Fn() -> Nanos, news: &dyn Fn() -> bool) -> bool;

    /// Did the last [`work`](Engine::work) leave some of what was ready when it began?
    fn has_more_to_run(&self) -> bool;

    /// Fires the timers that are due at `now`.
    fn advance(&self, now: Nanos);

    /// When [`advance`](Engine::advance) must be called next; [`Nanos::NEVER`] without timers. Cheap: asked each turn.
    fn next_deadline(&self) -> Nanos;

    /// Is anything runnable or in an inbox? Cheap: asked each turn, and between announcing sleep and sleeping.
    fn has_work(&self) -> bool;

    /// Publishes what this turn pushed to other cores and rings at most one doorbell per sleeping peer.
    fn flush_peers(&self);

    /// Appends the commands since the last call.
    fn take_commands(&self, into: &mut Vec<SocketCommand>);

    /// Appends the links that have had new output since the last call.
    fn take_dirty(&self, into: &mut Vec<LinkId>);

    /// Whether the output of a link may wait for more of it, for a time that only the loop knows.
    fn may_gather(&self, link: LinkId) -> bool;

    /// Swaps the pending output of a link with `into`, which is empty. Called only when the link has no send in flight, so
    /// what piles up meanwhile stays with the engine, which is where its limit is.
    fn take_output(&self, link: LinkId, into: &mut Vec<u8>);

    /// Other cores and threads must ring this core's bell from here on.
    fn announce_sleep(&self);

    /// They need not any more.
    fn cancel_sleep(&self);

    /// True when the engine is done: the loop ends as soon as all output is sent (or its time for that is over).
    fn stopped(&self) -> bool;
}
