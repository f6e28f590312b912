//! One link: what the engine knows of a connection to a core of another process.
//!
//! Called by `routes`, `frames` and `handshake`. The bytes move in `transport`; here are the decoder, the send buffer
//! and the agreement with the peer. Invariants: frames other than control frames are handled only while `Open`;
//! `in_flight` counts requests that the peer has not answered, whatever their lane: what it bounds is entries in tables,
//! and those cost the same for each. Bytes are counted for each lane by itself.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use super::bulk::{Arriving, GivenUp, Leaving, LeavingQueue, Left, PartError};
use super::lanes::{Incoming, LANES, Outgoing};
use crate::base::hash::WordMap;
use crate::base::limits::{BODY_PART_TIMEOUT, BULK_BODY_BYTES, BULK_PART_BYTES, BULK_SEND_BYTES, LINK_GATHER_BYTES};
use crate::base::{ClusterError, CoreIndex, LinkId, Nanos, PodUid, ShardId, Token};
use crate::wire::control::LaneLimits;
use crate::wire::{
    Frame, FrameDecoder, FrameFlags, FrameKind, FrameStart, HEADER_BYTES, Lane, PROTOCOL_VERSIONS, ROUTING_BYTES_MAX,
    SendBuffer,
};

/// Part of the credit after which new credit is granted, so that one frame serves many small requests.
const CREDIT_PARTS: u64 = 4;
/// As [`Link::wants_bulk`]: no large request waits.
const NOBODY_WAITS: u64 = u64::MAX;
/// A peer that takes only shorter frames gets no parts: half of this is for header and routing block. It is also the least
/// that can be configured.
const FRAME_BYTES_LEAST: usize = 4 << 10;
const _: () = assert!(HEADER_BYTES + ROUTING_BYTES_MAX + 4 <= FRAME_BYTES_LEAST / 2);

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
    /// Those of them that are in the send buffer.
    unsent_requests: Cell<u32>,
    /// The send buffer holds something besides requests.
    has_answers: Cell<bool>,
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
    body_bytes_max: Cell<usize>,
    /// Bodies above this go by the lane of large bodies.
    bulk_above: Cell<usize>,
    /// Bytes of a large body in one frame.
    part_bytes: Cell<usize>,
    /// Large bodies that wait to be sent.
    pub leaving: LeavingQueue,
    /// Bytes of large bodies in the send buffer.
    pub bulk_in_send: Cell<usize>,
    /// The large body that arrives.
    pub arriving: RefCell<Option<Arriving>>,
    /// Some request waits for credit of the lane of messages, and some large one for so many bytes of its lane.
    wants_room: Cell<bool>,
    wants_bulk: Cell<u64>,
    limits: LinkLimits,
}

/// What became of a message that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it is in the send buffer.
    Sent,
    /// It waits to be sent in parts.
    Leaving,
    /// Nothing: its lane has no credit.
    NoRoom,
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
            unsent_requests: Cell::new(0),
            has_answers: Cell::new(false),
            schemas: RefCell::default(),
            agreed: Cell::new(None),
            outgoing: Default::default(),
            incoming: incoming(&limits),
            serving: Cell::new(0),
            serving_bulk: RefCell::default(),
            paused: Cell::new(false),
            wants_tables: Cell::new(false),
            questions: Cell::new(0),
            asked: Cell::new(0),
            peer_uid: Cell::new(None),
            has_messages: Cell::new(false),
            muted: Cell::new(false),
            orphaned_until: Cell::new(Nanos::NEVER),
            body_bytes_max: Cell::new(limits.frame_bytes_max as usize),
            bulk_above: Cell::new(usize::MAX),
            part_bytes: Cell::new(0),
            leaving: LeavingQueue::default(),
            bulk_in_send: Cell::new(0),
            arriving: RefCell::default(),
            wants_room: Cell::new(false),
            wants_bulk: Cell::new(NOBODY_WAITS),
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
        self.peer_takes_frames(lanes.frame_bytes_max);
        let frame_bytes_max = lanes.frame_bytes_max as usize;
        if frame_bytes_max >= FRAME_BYTES_LEAST {
            self.body_bytes_max.set(lanes.body_bytes_max as usize);
            self.bulk_above.set(BULK_BODY_BYTES.min(frame_bytes_max - HEADER_BYTES - ROUTING_BYTES_MAX));
            self.part_bytes.set(BULK_PART_BYTES.min(frame_bytes_max - FRAME_BYTES_LEAST / 2));
        }
    }

    /// The peer takes frames of this length.
    pub fn peer_takes_frames(&self, frame_bytes_max: u32) {
        self.send.borrow_mut().set_frame_bytes_max(frame_bytes_max);
        if self.bulk_above.get() == usize::MAX {
            self.body_bytes_max.set(frame_bytes_max as usize);
        }
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
    fn may_send(&self) -> bool {
        self.in_flight.get() < self.limits.in_flight_max && !self.send.borrow().is_over_limit()
    }

    /// Whether a request of unknown length may be written, to see by which lane it would go.
    #[cold]
    pub fn may_try(&self) -> bool {
        let may_try = self.may_send() && self.outgoing(Lane::Bulk).available() > self.bulk_above.get() as u64;
        if !may_try {
            self.wants_room.set(true);
            self.wants_bulk.set(self.wants_bulk.get().min(self.bulk_above.get() as u64));
        }
        may_try
    }

    /// Whether there is room for some request that found none. Forgets those; who finds none again says so again.
    pub fn has_room_again(&self) -> bool {
        let has_room = self.wants_room.get() && self.outgoing(Lane::Messages).may_begin();
        let has_bulk = self.outgoing(Lane::Bulk).available() >= self.wants_bulk.get();
        let again = (has_room || has_bulk) && self.may_send();
        if again {
            self.wants_room.set(false);
            self.wants_bulk.set(NOBODY_WAITS);
        }
        again
    }

    /// Whether so much waits to be sent that the peer should read first.
    pub fn is_over_limit(&self) -> bool {
        // What leaves on a link that we dialed are requests, which have their credit already.
        let is_dialer = matches!(self.peer, Peer::Dialer(_));
        self.send.borrow().is_over_limit()
            || (is_dialer && self.leaving.bytes() >= self.limits.bulk_credit_bytes as usize)
    }

    /// Whether the output may wait for more: it is a few small requests, while the peer has others to answer. Who has
    /// one request in flight never waits.
    pub fn may_gather(&self) -> bool {
        !self.has_answers.get()
            && self.leaving.is_empty()
            && self.in_flight.get() > self.unsent_requests.get()
            && self.send.borrow().len() < LINK_GATHER_BYTES
    }

    /// Takes the output.
    pub fn take_output(&self, into: &mut Vec<u8>) {
        if self.send.borrow_mut().take(into) > 0 {
            self.bulk_in_send.set(0);
        }
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
    ) -> Result<Written, ClusterError> {
        let mut send = self.send.borrow_mut();
        let start = send.begin_frame(head.kind, head.flags, head.tag, head.shard, head.token, head.correlation);
        let before = send.bytes_mut().len();
        let routing_length = match head.routing.encode(send.bytes_mut()) {
            Ok(routing_length) => body(send.bytes_mut(), self.body_bytes_max.get()).map(|()| routing_length)?,
            Err(_) => {
                send.cancel_frame(start);
                return Err(ClusterError::InvalidEntityId);
            }
        };
        let frame_bytes = send.bytes_mut().len() - before;
        if frame_bytes - routing_length > self.bulk_above.get() {
            return self.write_bulk_request(&mut send, start, routing_length, frame_bytes);
        }
        if !self.outgoing(Lane::Messages).may_begin() {
            send.cancel_frame(start);
            self.wants_room.set(true);
            return Ok(Written::NoRoom);
        }
        send.finish_frame(start, routing_length).map_err(|_| ClusterError::PayloadTooLarge)?;
        self.outgoing(Lane::Messages).add(frame_bytes as u64);
        self.in_flight.set(self.in_flight.get() + 1);
        self.unsent_requests.set(self.unsent_requests.get() + 1);
        Ok(Written::Sent)
    }

    #[cold]
    fn write_bulk_request(
        &self,
        send: &mut SendBuffer,
        start: FrameStart,
        routing_length: usize,
        frame_bytes: usize,
    ) -> Result<Written, ClusterError> {
        let outgoing = self.outgoing(Lane::Bulk);
        let bytes = frame_bytes as u64;
        if outgoing.available() < bytes {
            send.cancel_frame(start);
            self.wants_bulk.set(self.wants_bulk.get().min(bytes));
            return Ok(Written::NoRoom);
        }
        let written = self.write_bulk(send, start, routing_length, frame_bytes)?;
        outgoing.add(bytes);
        self.in_flight.set(self.in_flight.get() + 1);
        Ok(written)
    }

    /// Finishes the frame of a large body if the next send has room for all of it; else it waits to be sent in parts.
    fn write_bulk(
        &self,
        send: &mut SendBuffer,
        start: FrameStart,
        routing_length: usize,
        frame_bytes: usize,
    ) -> Result<Written, ClusterError> {
        let in_send = self.bulk_in_send.get() + frame_bytes;
        let fits = frame_bytes <= self.part_bytes.get() && in_send <= BULK_SEND_BYTES;
        if fits && self.leaving.is_empty() {
            let finished = send.finish_frame(start.on_lane(Lane::Bulk), routing_length);
            finished.map_err(|_| ClusterError::PayloadTooLarge)?;
            self.bulk_in_send.set(in_send);
            return Ok(Written::Sent);
        }
        let (header, bytes) = send.take_frame(start).ok_or(ClusterError::Serialization)?;
        self.leaving.push(Leaving::new(header, routing_length, bytes));
        Ok(Written::Leaving)
    }

    /// Writes the next part of a large body. `None` if there is none, or the next send has enough of them.
    pub fn write_part(&self) -> Option<Option<Left>> {
        let in_send = self.bulk_in_send.get() + self.part_bytes.get();
        if self.leaving.is_empty() || in_send > BULK_SEND_BYTES || !self.is_open() {
            return None;
        }
        let (bytes, left) = self.leaving.write_part(&mut self.send.borrow_mut(), self.part_bytes.get())?;
        self.bulk_in_send.set(self.bulk_in_send.get() + bytes);
        Some(left)
    }

    /// A large request is not wanted any more: what is not sent of it never is. True if it was on its way, and whether
    /// the peer has a part of it; its bytes and its place are free again.
    pub fn give_up_request(&self, correlation: u64) -> Option<GivenUp> {
        let given_up = self.leaving.give_up(true, correlation)?;
        self.outgoing(Lane::Bulk).take_back(given_up.bytes);
        self.answered();
        Some(given_up)
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
    ) -> Result<Written, ClusterError> {
        self.has_answers.set(true);
        let mut send = self.send.borrow_mut();
        let start = send.begin_frame(kind, flags, tag, ShardId(0), token, correlation);
        let before = send.bytes_mut().len();
        if let Err(error) = body(send.bytes_mut(), self.body_bytes_max.get()) {
            send.cancel_frame(start);
            return Err(error);
        }
        let bytes = send.bytes_mut().len() - before;
        if bytes > self.bulk_above.get() && kind == FrameKind::Reply {
            return self.write_bulk(&mut send, start, 0, bytes);
        }
        send.finish_frame(start, 0).map(|()| Written::Sent).map_err(|_| ClusterError::PayloadTooLarge)
    }

    /// Announces new credit on a lane.
    ///
    /// # Errors
    /// Never: a small frame always fits.
    pub fn write_credit(&self, lane: Lane, grant: u64) -> Result<(), ClusterError> {
        self.write_frame(FrameKind::Credit, FrameFlags::new(lane), 0, Token(0), grant, |_, _| Ok(())).map(drop)
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

    /// The same on the lane of large bodies.
    ///
    /// # Errors
    /// See there.
    pub fn take_bulk_request(&self, correlation: u64, bytes: u64) -> Result<(), &'static str> {
        if !self.incoming(Lane::Bulk).reserve(bytes) {
            return Err("credit");
        }
        self.bulk_request_is_here(correlation, bytes)
    }

    /// All of a large request is here whose bytes were reserved.
    ///
    /// # Errors
    /// See there.
    pub fn bulk_request_is_here(&self, correlation: u64, bytes: u64) -> Result<(), &'static str> {
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

    /// A part of a large body comes.
    ///
    /// # Errors
    /// What is wrong with it. The link has to be closed; what had arrived is dropped.
    pub fn take_part(&self, frame: &Frame<'_>, is_wanted: bool, now: Nanos) -> Result<Option<Arriving>, &'static str> {
        let known = self.arriving.borrow_mut().take();
        let mut arriving = match known {
            Some(arriving) => arriving,
            None => {
                let max = self.limits.body_bytes_max as usize;
                let mut arriving = Arriving::announced(frame, max).map_err(PartError::name)?;
                if !frame.header.kind.is_request() {
                    if !is_wanted {
                        arriving.forget();
                    }
                } else if !self.incoming(Lane::Bulk).reserve(arriving.request_bytes()) {
                    return Err("credit");
                }
                arriving
            }
        };
        if arriving.add(frame, now).map_err(PartError::name)? {
            return Ok(Some(arriving));
        }
        *self.arriving.borrow_mut() = Some(arriving);
        Ok(None)
    }

    /// The rest of a body does not come: its sender has given it up. True if it was arriving.
    pub fn drop_arriving(&self, is_request: bool, correlation: u64) -> bool {
        let mut arriving = self.arriving.borrow_mut();
        let Some(dropped) = arriving.take_if(|arriving| arriving.is(is_request, correlation)) else { return false };
        if is_request {
            self.incoming(Lane::Bulk).take_back(dropped.request_bytes());
        }
        true
    }

    /// Nobody waits for a reply any more, of which a part may have arrived.
    pub fn forget_reply(&self, correlation: u64) {
        if let Some(arriving) = self.arriving.borrow_mut().as_mut().filter(|arriving| arriving.is(false, correlation)) {
            arriving.forget();
        }
    }

    /// Whether the next part of a body is overdue.
    pub fn has_late_part(&self, now: Nanos) -> bool {
        self.arriving.borrow().as_ref().is_some_and(|arriving| arriving.is_late(now, BODY_PART_TIMEOUT))
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

    fn ask(link: &Link, body_bytes: usize) {
        let head = RequestHead {
            kind: FrameKind::Ask,
            flags: FrameFlags::new(Lane::Messages),
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
        link.outgoing(Lane::Messages).grant(1 << 20);
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
        link.outgoing(Lane::Messages).grant(1 << 20);
        ask(&link, 1);
        link.take_output(&mut sent);
        ask(&link, LINK_GATHER_BYTES);
        assert!(!link.may_gather(), "they cost more than their send");
        sent.clear();
        link.take_output(&mut sent);
        ask(&link, 1);
        let flags = FrameFlags::new(Lane::Messages);
        link.write_frame(FrameKind::Reply, flags, 0, Token(1), 9, |_, _| Ok(())).unwrap();
        assert!(!link.may_gather(), "somebody waits for the answer");
        sent.clear();
        link.take_output(&mut sent);
        ask(&link, 1);
        assert!(link.may_gather(), "the answer is sent");
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
