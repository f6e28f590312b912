//! One link: what the engine knows of a connection to a core of another process.
//!
//! Called by `routes`, `frames` and `handshake`. The bytes move in `transport`; here are the decoder, the send buffer
//! and the agreement with the peer. Invariants: frames other than control frames are handled only while `Open`;
//! `in_flight` counts requests that the peer has not answered, whatever their lane: what it bounds is entries in tables,
//! and those cost the same for each. Bytes are counted for each lane by itself.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use super::lanes::{Incoming, LANES, Outgoing};
use crate::base::hash::WordMap;
use crate::base::{ClusterError, CoreIndex, LinkId, Nanos, PodUid, ShardId, Token};
use crate::wire::control::LaneLimits;
use crate::wire::{FrameDecoder, FrameFlags, FrameKind, Lane, PROTOCOL_VERSIONS, SendBuffer};

/// Part of the credit after which new credit is granted, so that one frame serves many small requests.
const CREDIT_PARTS: u64 = 4;

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
    /// Bytes of requests that a peer may send on the lane of messages before it gets new credit.
    pub credit_bytes: u32,
    /// The same on the lane of streams.
    pub streams_credit_bytes: u32,
    /// The same on the lane of large bodies; at least `body_bytes_max` and a routing block.
    pub bulk_credit_bytes: u32,
    /// Largest body, in however many parts.
    pub body_bytes_max: u32,
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
            streams_credit_bytes: limits::LINK_STREAMS_CREDIT_BYTES,
            bulk_credit_bytes: limits::LINK_BULK_CREDIT_BYTES,
            body_bytes_max: limits::LINK_BODY_BYTES_MAX,
            body_checksum: true,
            hello_timeout: limits::HELLO_TIMEOUT,
        }
    }
}

pub(super) struct Link {
    pub id: LinkId,
    pub peer: Peer,
    pub phase: Cell<Phase>,
    /// Version of the protocol that both sides speak.
    pub version: Cell<u16>,
    /// When the handshake must be over.
    pub greeting_until: Nanos,
    pub decoder: RefCell<FrameDecoder>,
    pub send: RefCell<SendBuffer>,
    /// In the list of links with new output.
    pub dirty: Cell<bool>,
    /// Requests that wait for their answer.
    pub in_flight: Cell<u32>,
    /// Schemas of the messages that the peer knows, by tag.
    pub schemas: RefCell<WordMap<u32, u64>>,
    /// The last of them that was found to be ours too.
    pub agreed: Cell<Option<(u32, u64)>>,
    /// Requests that we sent, by lane.
    outgoing: [Outgoing; LANES],
    /// Requests of the peer, by lane.
    incoming: [Incoming; LANES],
    /// Requests of the peer on the lane of messages that wait for our answer.
    serving: Cell<u32>,
    /// Those on the lane of large bodies: their bytes, by correlation.
    serving_bulk: RefCell<WordMap<u64, u64>>,
    /// The peer is not read because it does not take its answers.
    pub paused: Cell<bool>,
    /// Wants every new table.
    pub wants_tables: Cell<bool>,
    /// Questions of the peer that the control thread has not answered.
    pub questions: Cell<u32>,
    /// The pod at the other end, once it has said so.
    pub peer_uid: Cell<Option<PodUid>>,
    /// The send buffer holds something besides control frames.
    pub has_messages: Cell<bool>,
    /// Nothing goes out any more.
    pub muted: Cell<bool>,
    /// When it is closed, since its pod has left.
    pub orphaned_until: Cell<Nanos>,
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
            version: Cell::new(PROTOCOL_VERSIONS.min),
            greeting_until,
            decoder: RefCell::new(decoder),
            send: RefCell::new(send),
            dirty: Cell::new(false),
            in_flight: Cell::new(0),
            schemas: RefCell::default(),
            agreed: Cell::new(None),
            outgoing: Default::default(),
            incoming: incoming(&limits),
            serving: Cell::new(0),
            serving_bulk: RefCell::default(),
            paused: Cell::new(false),
            wants_tables: Cell::new(false),
            questions: Cell::new(0),
            peer_uid: Cell::new(None),
            has_messages: Cell::new(false),
            muted: Cell::new(false),
            orphaned_until: Cell::new(Nanos::NEVER),
            frame_bytes_max: Cell::new(limits.frame_bytes_max),
            limits,
        })
    }

    pub fn is_open(&self) -> bool {
        self.phase.get() == Phase::Open
    }

    /// The peer says what it takes.
    pub fn peer_takes(&self, lanes: &LaneLimits) {
        self.outgoing(Lane::Streams).grant(u64::from(lanes.streams_credit_bytes));
        self.outgoing(Lane::Bulk).grant(u64::from(lanes.bulk_credit_bytes));
        self.frame_bytes_max.set(lanes.frame_bytes_max);
        self.send.borrow_mut().set_frame_bytes_max(lanes.frame_bytes_max);
    }

    /// What we send on a lane.
    #[inline]
    pub fn outgoing(&self, lane: Lane) -> &Outgoing {
        &self.outgoing[lane as usize]
    }

    /// What the peer sends on a lane.
    #[inline]
    pub fn incoming(&self, lane: Lane) -> &Incoming {
        &self.incoming[lane as usize]
    }

    /// Whether one more request may be sent now on the lane of messages.
    pub fn has_room(&self) -> bool {
        self.outgoing(Lane::Messages).may_begin() && self.may_send()
    }

    /// Whether one more request may be sent, if its lane has credit.
    pub fn may_send(&self) -> bool {
        self.in_flight.get() < self.limits.in_flight_max && !self.send.borrow().is_over_limit()
    }

    /// Whether the peer understands a message the way we do.
    #[inline]
    pub fn agrees(&self, tag: u32, schema: u64) -> Result<(), ClusterError> {
        if self.agreed.get() == Some((tag, schema)) {
            return Ok(());
        }
        match self.schemas.borrow().get(&tag) {
            Some(theirs) if *theirs == schema => {
                self.agreed.set(Some((tag, schema)));
                Ok(())
            }
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
        self.outgoing(Lane::Messages).add(frame_bytes as u64);
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

    /// Announces new credit on a lane.
    ///
    /// # Errors
    /// Never: a small frame always fits.
    pub fn write_credit(&self, lane: Lane, grant: u64) -> Result<(), ClusterError> {
        self.write_frame(FrameKind::Credit, FrameFlags::new(lane), 0, Token(0), grant, |_, _| Ok(()))
    }

    /// The peer sent a request of so many bytes on the lane of messages.
    ///
    /// # Errors
    /// What it did wrong, if it may not send it.
    #[inline]
    pub fn take_request(&self, correlation: u64, bytes: u64) -> Result<(), &'static str> {
        self.serving.set(self.serving.get() + 1);
        if !self.incoming(Lane::Messages).begin(bytes) {
            return Err("credit");
        }
        self.is_new(correlation)
    }

    /// The same on the lane of large bodies, as a whole.
    ///
    /// # Errors
    /// See there.
    pub fn take_bulk_request(&self, correlation: u64, bytes: u64) -> Result<(), &'static str> {
        if !self.incoming(Lane::Bulk).reserve(bytes) {
            return Err("credit");
        }
        self.is_new(correlation)?;
        self.serving_bulk.borrow_mut().insert(correlation, bytes);
        Ok(())
    }

    /// The answer of a large request is known by its correlation, so no other request may have that.
    #[inline]
    fn is_new(&self, correlation: u64) -> Result<(), &'static str> {
        let serving = self.serving_bulk.borrow();
        if !serving.is_empty() && serving.contains_key(&correlation) { Err("correlation") } else { Ok(()) }
    }

    /// A request of the peer is answered: returns the lane and its new grant, if it is time for one.
    ///
    /// What one small request had is not remembered; each releases its part of what is open, and the last one the rest.
    #[inline]
    pub fn release_request(&self, correlation: u64) -> Option<(Lane, u64)> {
        if !self.serving_bulk.borrow().is_empty()
            && let Some(bytes) = self.serving_bulk.borrow_mut().remove(&correlation)
        {
            return Some((Lane::Bulk, self.incoming(Lane::Bulk).release(bytes)?));
        }
        let serving = self.serving.get();
        if serving == 0 {
            return None;
        }
        self.serving.set(serving - 1);
        Some((Lane::Messages, self.incoming(Lane::Messages).release_one_of(serving)?))
    }

    /// Whether the peer may have one more request served.
    #[inline]
    pub fn may_serve(&self) -> bool {
        self.serving.get() as usize + self.serving_bulk.borrow().len() < self.limits.in_flight_max as usize
    }

    /// The peer answered a request.
    pub fn answered(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
    }
}

/// What a peer may have open, by lane. Control frames need no credit: each is at most a frame, and those that are asked
/// something are bounded in number (`LINK_QUESTIONS_MAX`).
fn incoming(limits: &LinkLimits) -> [Incoming; LANES] {
    let steps = |bytes: u32| Incoming::new(u64::from(bytes), u64::from(bytes) / CREDIT_PARTS);
    // A large body has to fit what is announced, so all of it is.
    let bulk = Incoming::new(u64::from(limits.bulk_credit_bytes), 1);
    [steps(0), steps(limits.credit_bytes), steps(limits.streams_credit_bytes), bulk]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Rc<Link> {
        let limits =
            LinkLimits { credit_bytes: 1000, bulk_credit_bytes: 4000, in_flight_max: 8, ..LinkLimits::default() };
        Link::new(LinkId { index: 0, generation: 0 }, Peer::Dialer(PodUid(1)), Phase::Open, Nanos::NEVER, limits)
    }

    #[test]
    fn credit_comes_back_with_the_answers_and_not_before() {
        let link = link();
        for at in 0..4 {
            assert_eq!(link.take_request(at, 300), Ok(()));
        }
        assert_eq!(link.take_request(4, 300), Err("credit"), "1,200 bytes are open, 1,000 were granted");
        let grants: Vec<_> = (0..5).filter_map(|at| link.release_request(at)).collect();
        assert_eq!(grants.last(), Some(&(Lane::Messages, 2500)), "all is answered: a window beyond what was taken");
        assert_eq!(link.release_request(5), None, "nothing is open");
        assert_eq!(link.serving.get(), 0);
    }

    #[test]
    fn a_peer_has_a_bounded_number_of_requests() {
        let link = link();
        for at in 0..8 {
            assert!(link.may_serve());
            let taken = if at % 2 == 0 { link.take_request(at, 1) } else { link.take_bulk_request(at, 1) };
            assert_eq!(taken, Ok(()));
        }
        assert!(!link.may_serve());
        link.release_request(1);
        assert!(link.may_serve());
    }

    #[test]
    fn each_lane_has_its_own_window() {
        let link = link();
        assert_eq!(link.take_request(0, 2000), Ok(()), "the last may exceed the credit");
        assert_eq!(link.take_bulk_request(1, 4001), Err("credit"), "the length of a large one is known before");
        for at in 1..=4 {
            assert_eq!(link.take_bulk_request(at, 1000), Ok(()));
        }
        assert_eq!(link.take_bulk_request(5, 1), Err("credit"));
        assert_eq!(link.take_request(3, 1), Err("credit"), "that of messages is used up too");
        assert!(link.incoming(Lane::Streams).begin(500), "that of streams is not");
        assert_eq!(link.release_request(3), Some((Lane::Bulk, 5000)), "exactly what this one had");
        assert_eq!(link.take_bulk_request(4, 1), Err("correlation"), "it could not be told from the other");
    }
}
