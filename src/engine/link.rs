//! One link: what the engine knows of a connection to a core of another process.
//!
//! Called by `routes`, `frames` and `handshake`. The bytes move in `transport`; here are the decoder, the send buffer
//! and the agreement with the peer. Invariants: frames other than control frames are handled only while `Open`;
//! `in_flight` counts requests that the peer has not answered.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::base::{ClusterError, CoreIndex, LinkId, Nanos, PodUid, ShardId, Token};
use crate::wire::{FrameDecoder, FrameFlags, FrameKind, SendBuffer};

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The connection is being made.
    Connecting,
    /// Connected; we wait for the peer's introduction or welcome.
    Greeting,
    /// Both sides agreed.
    Open,
    /// No frame is handled any more; what is in the send buffer still goes out.
    Closing,
}

/// Who a link was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// We dialed a core of a pod in the table.
    Pod(PodUid, CoreIndex),
    /// We dialed an address to learn the table.
    Bootstrap(String),
    /// The peer dialed us.
    Dialer(PodUid),
}

/// Bounds of a link, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    /// Largest frame.
    pub frame_bytes_max: u32,
    /// Requests without an answer.
    pub in_flight_max: u32,
    /// Bytes that wait to be sent.
    pub send_bytes_max: usize,
    /// Bytes of requests that a peer may send before it gets new credit.
    pub credit_bytes: u32,
    /// Whether frames carry a checksum of their body.
    pub body_checksum: bool,
    /// Time for the handshake.
    pub hello_timeout: core::time::Duration,
}

impl Default for LinkLimits {
    fn default() -> Self {
        use crate::base::limits;
        LinkLimits {
            frame_bytes_max: limits::FRAME_BYTES_MAX as u32,
            in_flight_max: limits::LINK_IN_FLIGHT_MAX,
            send_bytes_max: limits::LINK_SEND_BYTES_MAX,
            credit_bytes: limits::LINK_CREDIT_BYTES,
            body_checksum: true,
            hello_timeout: limits::HELLO_TIMEOUT,
        }
    }
}

pub(super) struct Link {
    pub id: LinkId,
    pub peer: Peer,
    pub phase: Cell<Phase>,
    /// When the handshake must be over.
    pub greeting_until: Nanos,
    pub decoder: RefCell<FrameDecoder>,
    pub send: RefCell<SendBuffer>,
    /// In the list of links with new output.
    pub dirty: Cell<bool>,
    /// Requests that wait for their answer.
    pub in_flight: Cell<u32>,
    /// Schemas of the messages that the peer knows, by tag.
    pub schemas: RefCell<HashMap<u32, u64>>,
    /// Bytes of requests that we sent, and up to which number we may.
    pub sent_bytes: Cell<u64>,
    pub credit: Cell<u64>,
    /// Bytes of requests that we took, and what we last granted.
    pub taken_bytes: Cell<u64>,
    pub granted: Cell<u64>,
    /// The peer is not read because it does not take its answers.
    pub paused: Cell<bool>,
    /// Wants every new table.
    pub wants_tables: Cell<bool>,
    /// Questions of the peer that the control thread has not answered.
    pub questions: Cell<u32>,
    /// Largest body that the peer takes.
    pub frame_bytes_max: Cell<u32>,
    limits: LinkLimits,
}

/// A request frame's address.
pub(super) struct RequestHead<'a> {
    pub kind: FrameKind,
    pub flags: FrameFlags,
    pub tag: u32,
    pub shard: ShardId,
    pub token: Token,
    pub correlation: u64,
    pub routing: crate::wire::Routing<'a>,
}

impl Link {
    pub fn new(id: LinkId, peer: Peer, phase: Phase, greeting_until: Nanos, limits: LinkLimits) -> Rc<Link> {
        let mut send = SendBuffer::new(limits.send_bytes_max);
        send.set_body_checksum(limits.body_checksum);
        send.set_frame_bytes_max(limits.frame_bytes_max);
        let decoder = FrameDecoder::new(limits.frame_bytes_max).require_body_checksum(limits.body_checksum);
        Rc::new(Link {
            id,
            peer,
            phase: Cell::new(phase),
            greeting_until,
            decoder: RefCell::new(decoder),
            send: RefCell::new(send),
            dirty: Cell::new(false),
            in_flight: Cell::new(0),
            schemas: RefCell::default(),
            sent_bytes: Cell::new(0),
            credit: Cell::new(0),
            taken_bytes: Cell::new(0),
            granted: Cell::new(u64::from(limits.credit_bytes)),
            paused: Cell::new(false),
            wants_tables: Cell::new(false),
            questions: Cell::new(0),
            frame_bytes_max: Cell::new(limits.frame_bytes_max),
            limits,
        })
    }

    pub fn is_open(&self) -> bool {
        self.phase.get() == Phase::Open
    }

    /// Whether one more request may be sent now.
    pub fn has_room(&self) -> bool {
        self.in_flight.get() < self.limits.in_flight_max
            && self.sent_bytes.get() < self.credit.get()
            && !self.send.borrow().is_over_limit()
    }

    /// Whether the peer understands a message the way we do.
    pub fn agrees(&self, tag: u32, schema: u64) -> Result<(), ClusterError> {
        match self.schemas.borrow().get(&tag) {
            Some(theirs) if *theirs == schema => Ok(()),
            Some(_) => Err(ClusterError::SchemaMismatch),
            None => Err(ClusterError::NotServed),
        }
    }

    /// Writes a request; on an error nothing is sent.
    pub fn write_request(
        &self,
        head: &RequestHead<'_>,
        body: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), crate::wire::CodecError>,
    ) -> Result<(), ClusterError> {
        let mut send = self.send.borrow_mut();
        let start = send.begin_frame(head.kind, head.flags, head.tag, head.shard, head.token, head.correlation);
        let before = send.bytes_mut().len();
        let written = match head.routing.encode(send.bytes_mut()) {
            Ok(routing_length) => {
                body(send.bytes_mut(), self.frame_bytes_max.get() as usize).map(|()| routing_length)?
            }
            Err(_) => {
                send.cancel_frame(start);
                return Err(ClusterError::InvalidEntityId);
            }
        };
        let frame_bytes = send.bytes_mut().len() - before;
        send.finish_frame(start, written).map_err(|_| ClusterError::PayloadTooLarge)?;
        self.sent_bytes.set(self.sent_bytes.get() + frame_bytes as u64);
        self.in_flight.set(self.in_flight.get() + 1);
        Ok(())
    }

    /// Writes a frame without a routing block; on an error nothing is sent.
    pub fn write_frame(
        &self,
        kind: FrameKind,
        flags: FrameFlags,
        tag: u32,
        token: Token,
        correlation: u64,
        body: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        let mut send = self.send.borrow_mut();
        let start = send.begin_frame(kind, flags, tag, ShardId(0), token, correlation);
        if let Err(error) = body(send.bytes_mut(), self.frame_bytes_max.get() as usize) {
            send.cancel_frame(start);
            return Err(error);
        }
        send.finish_frame(start, 0).map_err(|_| ClusterError::PayloadTooLarge)
    }

    /// The peer answered a request.
    pub fn answered(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
    }
}
