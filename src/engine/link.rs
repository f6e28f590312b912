//! One link: what the engine knows of a connection to a core of another process.
//!
//! Called by `routes`, `frames` and `handshake`. The bytes move in `transport`; here are the decoder, the send buffer
//! and the agreement with the peer. Invariants: frames other than control frames are handled only while `Open`;
//! `in_flight` counts requests that the peer has not answered.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::base::hash::WordMap;
use crate::base::limits::LINK_GATHER_BYTES;
use crate::base::{ClusterError, CoreIndex, LinkId, Nanos, PodUid, ShardId, Token};
use crate::wire::{FrameDecoder, FrameFlags, FrameKind, SendBuffer};

/// Part of the credit after which new credit is granted.
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
    /// Those of them that are in the send buffer.
    unsent_requests: Cell<u32>,
    /// The send buffer holds something besides requests.
    has_answers: Cell<bool>,
    /// Schemas of the messages that the peer knows, by tag.
    pub schemas: RefCell<WordMap<u32, u64>>,
    /// The last of them that was found to be ours too.
    pub agreed: Cell<Option<(u32, u64)>>,
    /// Bytes of requests that we sent, and up to which number we may.
    pub sent_bytes: Cell<u64>,
    pub credit: Cell<u64>,
    /// Requests of the peer that wait for our answer.
    pub serving: Cell<u32>,
    /// Bytes of requests that we took, how many of them are answered, and what we last granted.
    taken_bytes: Cell<u64>,
    released_bytes: Cell<u64>,
    granted: Cell<u64>,
    /// The peer is not read because it does not take its answers.
    pub paused: Cell<bool>,
    /// Wants every new table.
    pub wants_tables: Cell<bool>,
    /// Questions of the peer that the control thread or an entity has not answered.
    pub questions: Cell<u32>,
    /// Our questions that the peer has not answered.
    pub asked: Cell<u32>,
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
            greeting_until,
            decoder: RefCell::new(decoder),
            send: RefCell::new(send),
            dirty: Cell::new(false),
            in_flight: Cell::new(0),
            unsent_requests: Cell::new(0),
            has_answers: Cell::new(false),
            schemas: RefCell::default(),
            agreed: Cell::new(None),
            sent_bytes: Cell::new(0),
            credit: Cell::new(0),
            serving: Cell::new(0),
            taken_bytes: Cell::new(0),
            released_bytes: Cell::new(0),
            granted: Cell::new(u64::from(limits.credit_bytes)),
            paused: Cell::new(false),
            wants_tables: Cell::new(false),
            questions: Cell::new(0),
            asked: Cell::new(0),
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

    /// Whether one more request may be sent now.
    pub fn has_room(&self) -> bool {
        self.in_flight.get() < self.limits.in_flight_max
            && self.sent_bytes.get() < self.credit.get()
            && !self.send.borrow().is_over_limit()
    }

    /// Whether the output may wait for more: it is a few requests, while the peer has others to answer. Who has one
    /// request in flight never waits.
    pub fn may_gather(&self) -> bool {
        !self.has_answers.get()
            && self.in_flight.get() > self.unsent_requests.get()
            && self.send.borrow().len() < LINK_GATHER_BYTES
    }

    /// Takes the output.
    pub fn take_output(&self, into: &mut Vec<u8>) {
        self.send.borrow_mut().take(into);
        self.has_messages.set(false);
        self.has_answers.set(false);
        self.unsent_requests.set(0);
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
        self.sent_bytes.set(self.sent_bytes.get() + frame_bytes as u64);
        self.in_flight.set(self.in_flight.get() + 1);
        self.unsent_requests.set(self.unsent_requests.get() + 1);
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
        self.has_answers.set(true);
        let mut send = self.send.borrow_mut();
        let start = send.begin_frame(kind, flags, tag, ShardId(0), token, correlation);
        if let Err(error) = body(send.bytes_mut(), self.frame_bytes_max.get() as usize) {
            send.cancel_frame(start);
            return Err(error);
        }
        send.finish_frame(start, 0).map_err(|_| ClusterError::PayloadTooLarge)
    }

    /// The peer sent a request of so many bytes. False if it sends more than it was granted.
    #[must_use]
    pub fn take_request(&self, bytes: u64) -> bool {
        self.serving.set(self.serving.get() + 1);
        // The last request within the credit may exceed it: its sender looks at the credit before, not at its length.
        let within = self.taken_bytes.get() <= self.granted.get();
        self.taken_bytes.set(self.taken_bytes.get() + bytes);
        within
    }

    /// A request of the peer is answered: returns the new grant, if it is time for one.
    ///
    /// What one request had is not remembered; each releases its part of what is open, and the last one the rest.
    pub fn release_request(&self) -> Option<u64> {
        let serving = self.serving.get();
        if serving == 0 {
            return None;
        }
        let open = self.taken_bytes.get() - self.released_bytes.get();
        self.released_bytes.set(self.released_bytes.get() + open / u64::from(serving));
        self.serving.set(serving - 1);
        let window = u64::from(self.limits.credit_bytes);
        let grant = self.released_bytes.get() + window;
        if grant < self.granted.get() + window / CREDIT_PARTS {
            return None;
        }
        self.granted.set(grant);
        Some(grant)
    }

    /// Whether the peer may have one more request served.
    pub fn may_serve(&self) -> bool {
        self.serving.get() < self.limits.in_flight_max
    }

    /// The peer answered a request.
    pub fn answered(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Rc<Link> {
        let limits = LinkLimits { credit_bytes: 1000, in_flight_max: 8, ..LinkLimits::default() };
        Link::new(LinkId { index: 0, generation: 0 }, Peer::Dialer(PodUid(1)), Phase::Open, Nanos::NEVER, limits)
    }

    #[test]
    fn credit_comes_back_with_the_answers_and_not_before() {
        let link = link();
        for _ in 0..4 {
            assert!(link.take_request(300));
        }
        assert!(!link.take_request(300), "1,200 bytes are open, 1,000 were granted");
        let grants: Vec<_> = (0..5).filter_map(|_| link.release_request()).collect();
        assert_eq!(grants.last(), Some(&2500), "all is answered: a whole window beyond what was taken");
        assert_eq!(link.release_request(), None, "nothing is open");
        assert_eq!(link.serving.get(), 0);
    }

    #[test]
    fn a_peer_has_a_bounded_number_of_requests() {
        let link = link();
        for _ in 0..8 {
            assert!(link.may_serve());
            assert!(link.take_request(1));
        }
        assert!(!link.may_serve());
        link.release_request();
        assert!(link.may_serve());
    }

    fn ask(link: &Link, body_bytes: usize) {
        let head = RequestHead {
            kind: FrameKind::Ask,
            flags: FrameFlags::new(crate::wire::Lane::Messages),
            tag: 1,
            shard: ShardId(0),
            token: Token(1),
            correlation: 1,
            routing: crate::wire::Routing {
                remaining_us: 0,
                hops: 0,
                chain: &[],
                role: "default",
                entity_id: "e",
                sender_incarnation: 0,
                sender_sequence: 0,
            },
        };
        link.write_request(&head, |bytes, _| {
            bytes.resize(bytes.len() + body_bytes, 7);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn few_requests_gather_while_others_are_unanswered() {
        let (link, mut sent) = (link(), Vec::new());
        ask(&link, 1);
        assert!(!link.may_gather(), "nobody has anything to answer");
        link.take_output(&mut sent);
        ask(&link, 1);
        assert!(link.may_gather(), "the first is unanswered");
        link.answered();
        assert!(!link.may_gather(), "the only one left has not been sent");
    }

    #[test]
    fn answers_and_many_requests_do_not_wait() {
        let (link, mut sent) = (link(), Vec::new());
        ask(&link, 1);
        link.take_output(&mut sent);
        ask(&link, LINK_GATHER_BYTES);
        assert!(!link.may_gather(), "they cost more than their send");
        sent.clear();
        link.take_output(&mut sent);
        ask(&link, 1);
        let flags = FrameFlags::new(crate::wire::Lane::Messages);
        link.write_frame(FrameKind::Reply, flags, 0, Token(1), 9, |_, _| Ok(())).unwrap();
        assert!(!link.may_gather(), "somebody waits for the answer");
        sent.clear();
        link.take_output(&mut sent);
        ask(&link, 1);
        assert!(link.may_gather(), "the answer is sent");
    }
}
