//! Large bodies in parts: those that wait to be sent over a link, and the one that arrives by it.
//!
//! Used by `link`; the format is that of [`wire::header`](crate::wire::header). Invariants: bodies leave one after the
//! other, in the order in which they came; memory for one that arrives follows what arrived and never exceeds what was
//! announced, which is checked before anything is kept; a sequence of parts that is not exactly right is an error, and
//! what was kept of it is dropped with the [`Arriving`].

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::base::{Nanos, ShardId};
use crate::wire::{Frame, FrameFlags, FrameHeader, FrameKind, Lane, SendBuffer};

/// Bytes that tell the length of the whole body.
const LENGTH_BYTES: usize = 4;

/// A body that waits to be sent, or the rest of one.
pub(super) struct Leaving {
    header: FrameHeader,
    routing_length: usize,
    /// Routing block and body.
    bytes: Vec<u8>,
    /// Bytes of them that are sent.
    sent: usize,
}

/// What was sent to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// A request for this shard.
    Request(ShardId),
    /// The reply of this correlation.
    Reply(u64),
}

/// A body that is not sent any more.
pub(super) struct GivenUp {
    /// Bytes of routing block and body.
    pub bytes: u64,
    /// Where it was to go.
    pub shard: ShardId,
    /// The peer has a part of it.
    pub has_begun: bool,
}

impl Leaving {
    /// A message whose frame was written and taken back.
    pub fn new(header: FrameHeader, routing_length: usize, bytes: Vec<u8>) -> Leaving {
        Leaving { header, routing_length, bytes, sent: 0 }
    }

    fn is(&self, is_request: bool, correlation: u64) -> bool {
        self.header.kind.is_request() == is_request && self.header.correlation == correlation
    }

    fn rest(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Writes the next frame, with at most so many bytes of the body. Returns the bytes and whether it was the last.
    fn write(&mut self, send: &mut SendBuffer, part_bytes: usize) -> (usize, bool) {
        let is_first = self.sent == 0;
        let (from, routing_length) = if is_first { (self.routing_length, self.routing_length) } else { (self.sent, 0) };
        let to = self.bytes.len().min(from + part_bytes.max(1));
        let is_last = to == self.bytes.len();
        let FrameHeader { kind, shard, token, correlation, .. } = self.header;
        let lane = self.header.flags.on_lane(Lane::Bulk);
        let flags = if is_last { lane } else { lane.with(FrameFlags::MORE) };
        let tag = if is_first { self.header.tag } else { (self.sent - self.routing_length) as u32 };
        let start = send.begin_frame(kind, flags, tag, shard, token, correlation);
        let into = send.bytes_mut();
        into.extend_from_slice(&self.bytes[..routing_length]);
        if is_first && !is_last {
            into.extend_from_slice(&((self.bytes.len() - self.routing_length) as u32).to_le_bytes());
        }
        into.extend_from_slice(&self.bytes[from..to]);
        let written = send.finish_frame(start, routing_length);
        debug_assert!(written.is_ok(), "a part is shorter than the longest frame");
        self.sent = to;
        (to - from + routing_length, is_last)
    }
}

/// Bodies that wait to be sent, oldest first.
#[derive(Default)]
pub(super) struct LeavingQueue {
    queue: RefCell<VecDeque<Leaving>>,
    /// Bytes of them that are not sent.
    bytes: Cell<usize>,
}

impl LeavingQueue {
    /// Bytes that wait.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether nothing waits. (Nothing in the queue is empty.)
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.get() == 0
    }

    pub fn push(&self, leaving: Leaving) {
        self.bytes.set(self.bytes.get() + leaving.rest());
        self.queue.borrow_mut().push_back(leaving);
    }

    /// Writes the next part. Returns its bytes, and what it was the last of; `None` if nothing waits.
    pub fn write_part(&self, send: &mut SendBuffer, part_bytes: usize) -> Option<(usize, Option<Left>)> {
        let mut queue = self.queue.borrow_mut();
        let first = queue.front_mut()?;
        let (bytes, is_last) = first.write(send, part_bytes);
        self.bytes.set(self.bytes.get() - bytes);
        if !is_last {
            return Some((bytes, None));
        }
        let header = queue.pop_front()?.header;
        let left = if header.kind.is_request() { Left::Request(header.shard) } else { Left::Reply(header.correlation) };
        Some((bytes, Some(left)))
    }

    /// Takes out a request or reply, or the rest of it.
    pub fn give_up(&self, is_request: bool, correlation: u64) -> Option<GivenUp> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.queue.borrow_mut();
        let at = queue.iter().position(|leaving| leaving.is(is_request, correlation))?;
        let leaving = queue.remove(at)?;
        self.bytes.set(self.bytes.get() - leaving.rest());
        let (bytes, shard) = (leaving.bytes.len() as u64, leaving.header.shard);
        Some(GivenUp { bytes, shard, has_begun: leaving.sent > 0 })
    }

    /// Drops everything. The shards of the requests among it come back.
    pub fn give_up_all(&self) -> Vec<ShardId> {
        self.bytes.set(0);
        let dropped = core::mem::take(&mut *self.queue.borrow_mut());
        let requests = dropped.iter().filter(|leaving| leaving.header.kind.is_request());
        requests.map(|leaving| leaving.header.shard).collect()
    }
}

/// Why a sequence of parts is wrong. The link is of no use after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartError {
    /// More is announced than this side takes.
    TooLong,
    /// The parts are more or less than what was announced.
    Length,
    /// A part was left out, came twice, or came before another one.
    Place,
    /// A part of no body that has begun, or another message within one.
    Stray,
}

impl PartError {
    /// The name under which it is counted.
    pub const fn name(self) -> &'static str {
        match self {
            PartError::TooLong => "body_too_long",
            PartError::Length => "part_length",
            PartError::Place => "part_place",
            PartError::Stray => "part_stray",
        }
    }
}

/// A body of which a part has arrived, or none yet.
#[derive(Debug)]
pub(super) struct Arriving {
    /// That of the first part.
    header: FrameHeader,
    /// Length of the body.
    length: usize,
    /// How much of it has arrived.
    arrived: usize,
    /// Routing block and body, as far as they have arrived; nothing once nobody wants them.
    bytes: Vec<u8>,
    is_wanted: bool,
    /// When the first part came.
    first_part: Nanos,
    /// When the last part came.
    last_part: Nanos,
}

/// Whether a frame of the lane of large bodies begins a body. A further part has no routing block, and as its tag what
/// came before, which is not nothing.
pub(super) fn is_first(header: &FrameHeader) -> bool {
    match header.kind {
        FrameKind::Ask | FrameKind::Tell => header.routing_length > 0,
        _ => header.routing_length == 0 && header.tag == 0,
    }
}

impl Arriving {
    /// What the first part announces. Nothing of it is kept yet: [`Arriving::add`] it.
    pub fn announced(frame: &Frame<'_>, body_bytes_max: usize) -> Result<Arriving, PartError> {
        let header = frame.header;
        if !is_first(&header) || !header.flags.has(FrameFlags::MORE) {
            return Err(PartError::Stray);
        }
        let Some(length) = frame.body.first_chunk::<LENGTH_BYTES>() else { return Err(PartError::Length) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > body_bytes_max {
            return Err(PartError::TooLong);
        }
        Ok(Arriving {
            header,
            length,
            arrived: 0,
            bytes: Vec::new(),
            is_wanted: true,
            first_part: Nanos::ZERO,
            last_part: Nanos::ZERO,
        })
    }

    /// Bytes of routing block and body, when all is there.
    pub fn request_bytes(&self) -> u64 {
        u64::from(self.header.routing_length) + self.length as u64
    }

    /// Whether it is that message.
    pub fn is(&self, is_request: bool, correlation: u64) -> bool {
        self.header.kind.is_request() == is_request && self.header.correlation == correlation
    }

    /// Nobody wants it any more: its parts are only counted.
    pub fn forget(&mut self) {
        self.is_wanted = false;
        self.bytes = Vec::new();
    }

    /// How long ago its first part came.
    pub fn under_way(&self, now: Nanos) -> core::time::Duration {
        now.since(self.first_part)
    }

    /// Whether its next part is overdue.
    pub fn is_late(&self, now: Nanos, patience: core::time::Duration) -> bool {
        now >= self.last_part + patience
    }

    /// Adds a part. True if it was the last.
    pub fn add(&mut self, frame: &Frame<'_>, now: Nanos) -> Result<bool, PartError> {
        let header = &frame.header;
        if header.kind != self.header.kind || header.correlation != self.header.correlation {
            return Err(PartError::Stray);
        }
        let part = if self.arrived == 0 {
            self.first_part = now;
            self.keep(frame.routing);
            frame.body.get(LENGTH_BYTES..).ok_or(PartError::Length)?
        } else if header.routing_length > 0 || header.tag as usize != self.arrived {
            return Err(PartError::Place);
        } else {
            frame.body
        };
        let arrived = self.arrived + part.len();
        let is_last = !header.flags.has(FrameFlags::MORE);
        if part.is_empty() || arrived > self.length || is_last != (arrived == self.length) {
            return Err(PartError::Length);
        }
        self.keep(part);
        (self.arrived, self.last_part) = (arrived, now);
        Ok(is_last)
    }

    /// The capacity at most doubles, so that it follows what arrived, and is never more than what was announced.
    fn keep(&mut self, bytes: &[u8]) {
        if !self.is_wanted {
            return;
        }
        let after = self.bytes.len() + bytes.len();
        if after > self.bytes.capacity() {
            let roomy = (self.bytes.capacity() * 2).min(self.request_bytes() as usize);
            self.bytes.reserve_exact(roomy.max(after) - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The whole message, after its last part, as if it had come in one frame; `None` if nobody wants it any more.
    pub fn frame(&self) -> Option<Frame<'_>> {
        if !self.is_wanted {
            return None;
        }
        let (routing, body) = self.bytes.split_at(usize::from(self.header.routing_length));
        Some(Frame { header: self.header, routing, body })
    }

    /// Its header.
    pub fn header(&self) -> &FrameHeader {
        &self.header
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Token;
    use crate::wire::FrameDecoder;

    const LIMIT: usize = 5000;
    const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

    fn leaving(kind: FrameKind, correlation: u64, routing: &[u8], body: &[u8]) -> Leaving {
        let tag = if kind.is_request() { 77 } else { 0 };
        let mut send = SendBuffer::new(1 << 20);
        let start = send.begin_frame(kind, FrameFlags::new(Lane::Messages), tag, ShardId(3), Token(4), correlation);
        send.bytes_mut().extend_from_slice(routing);
        send.bytes_mut().extend_from_slice(body);
        let (header, bytes) = send.take_frame(start).unwrap();
        Leaving::new(header, routing.len(), bytes)
    }

    /// A body of a length in which every byte is different from its neighbours.
    fn body(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) ^ (at >> 8) as u8).collect()
    }

    /// A frame that arrives.
    #[derive(Clone, Debug, PartialEq)]
    struct Part {
        header: FrameHeader,
        routing: Vec<u8>,
        body: Vec<u8>,
    }

    impl Part {
        fn frame(&self) -> Frame<'_> {
            Frame { header: self.header, routing: &self.routing, body: &self.body }
        }
    }

    /// Writes a queue to its end, in parts of these sizes in turn.
    fn written(queue: &LeavingQueue, sizes: &[usize]) -> Vec<Part> {
        let mut send = SendBuffer::new(1 << 20);
        for size in sizes.iter().cycle() {
            if queue.write_part(&mut send, *size).is_none() {
                break;
            }
        }
        assert!(queue.is_empty());
        parts(&mut send)
    }

    fn parts(send: &mut SendBuffer) -> Vec<Part> {
        let mut bytes = Vec::new();
        send.take(&mut bytes);
        let mut decoder = FrameDecoder::new(u32::MAX);
        let mut frames = decoder.feed(&bytes);
        let mut all = Vec::new();
        while let Some(frame) = frames.next() {
            let frame = frame.unwrap();
            // What is not looked at is made the same, so that a change of it is none.
            let header = FrameHeader { length: 0, body_checksum: 0, ..frame.header };
            all.push(Part { header, routing: frame.routing.to_vec(), body: frame.body.to_vec() });
        }
        all
    }

    /// Correlation, routing block and body.
    type Whole = (u64, Vec<u8>, Vec<u8>);

    /// What a receiver makes of frames: the messages, or what is wrong.
    fn received(parts: &[Part]) -> Result<Vec<Whole>, PartError> {
        let (mut open, mut whole) = (None, Vec::new());
        for part in parts {
            let frame = part.frame();
            if open.is_none() && !part.header.flags.has(FrameFlags::MORE) {
                if !is_first(&part.header) {
                    return Err(PartError::Stray);
                }
                whole.push((part.header.correlation, part.routing.clone(), part.body.clone()));
                continue;
            }
            let mut arriving = match open.take() {
                Some(arriving) => arriving,
                None => Arriving::announced(&frame, LIMIT)?,
            };
            let is_last = arriving.add(&frame, Nanos(1))?;
            let bound = (arriving.arrived * 2 + arriving.header.routing_length as usize * 2).min(LIMIT + 300);
            assert!(arriving.bytes.capacity() <= bound, "memory follows what arrived");
            if is_last {
                let frame = arriving.frame().unwrap();
                whole.push((frame.header.correlation, frame.routing.to_vec(), frame.body.to_vec()));
            } else {
                open = Some(arriving);
            }
        }
        Ok(whole)
    }

    #[derive(Clone, Debug)]
    enum Harm {
        LeaveOut,
        Repeat,
        Swap,
        Cut,
        Add,
        EndEarly,
        NeverEnd,
        OfAnother,
        ClaimLess,
        ClaimMore,
    }

    fn harm() -> impl Strategy<Value = Harm> {
        use Harm::*;
        prop::sample::select(vec![
            LeaveOut, Repeat, Swap, Cut, Add, EndEarly, NeverEnd, OfAnother, ClaimLess, ClaimMore,
        ])
    }

    fn harmed(parts: &mut Vec<Part>, harm: &Harm, at: usize) {
        let (at, last) = (at % parts.len(), parts.len() - 1);
        let mut claim = |by: i32| {
            let length = parts[0].body.first_chunk_mut::<4>().unwrap();
            *length = (u32::from_le_bytes(*length) as i32 + by).to_le_bytes()[..4].try_into().unwrap();
        };
        match harm {
            Harm::LeaveOut => drop(parts.remove(at)),
            Harm::Repeat => parts.insert(at, parts[at].clone()),
            Harm::Swap => parts.swap(at, if at == last { 0 } else { at + 1 }),
            Harm::Cut => drop(parts[at].body.pop()),
            Harm::Add => parts[at].body.push(1),
            Harm::EndEarly => {
                let at = at.min(last - 1);
                parts[at].header.flags = parts[at].header.flags.without(FrameFlags::MORE);
            }
            Harm::NeverEnd => parts[last].header.flags = parts[last].header.flags.with(FrameFlags::MORE),
            Harm::OfAnother => parts[at].header.correlation ^= 1,
            Harm::ClaimLess => claim(-1),
            Harm::ClaimMore => claim(1),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn bodies_come_out_as_they_went_in_whatever_the_parts(
            lengths in prop::collection::vec(1..LIMIT, 1..5),
            sizes in prop::collection::vec(1..900_usize, 1..6),
            asks in any::<bool>(),
        ) {
            let queue = LeavingQueue::default();
            let kind = if asks { FrameKind::Ask } else { FrameKind::Reply };
            let routing = if asks { body(60, 9) } else { Vec::new() };
            let bodies: Vec<_> = lengths.iter().enumerate().map(|(at, length)| body(*length, at as u8)).collect();
            for (at, body) in bodies.iter().enumerate() {
                queue.push(leaving(kind, at as u64, &routing, body));
            }
            let whole = received(&written(&queue, &sizes)).unwrap();
            let expected: Vec<_> =
                bodies.into_iter().enumerate().map(|(at, body)| (at as u64, routing.clone(), body)).collect();
            prop_assert_eq!(whole, expected);
        }

        /// Whatever is done to the parts of a body, the receiver notices it, or waits for the rest of the body.
        #[test]
        fn harmed_parts_never_make_another_body(
            length in 2..LIMIT,
            size in 1..900_usize,
            harm in harm(),
            at in any::<usize>(),
            asks in any::<bool>(),
        ) {
            let (kind, routing) = if asks { (FrameKind::Ask, body(60, 9)) } else { (FrameKind::Reply, Vec::new()) };
            let queue = LeavingQueue::default();
            queue.push(leaving(kind, 1, &routing, &body(length, 1)));
            let mut parts = written(&queue, &[size]);
            prop_assume!(parts.len() > 1);
            let right = parts.clone();
            harmed(&mut parts, &harm, at);
            prop_assume!(parts != right);
            match received(&parts) {
                Err(_) => {}
                Ok(whole) => prop_assert!(whole.is_empty(), "{harm:?} made {} bodies", whole.len()),
            }
        }
    }

    #[test]
    fn wrong_parts_are_told_apart() {
        let parts = |kind| {
            let routing: &[u8] = if kind == FrameKind::Ask { b"routing" } else { b"" };
            let queue = LeavingQueue::default();
            queue.push(leaving(kind, 1, routing, &body(3000, 1)));
            written(&queue, &[1000])
        };
        for kind in [FrameKind::Ask, FrameKind::Reply] {
            let right = parts(kind);
            assert_eq!(right.len(), 3);
            let wrong = |change: &dyn Fn(&mut Vec<Part>)| {
                let mut parts = right.clone();
                change(&mut parts);
                received(&parts).unwrap_err()
            };
            assert_eq!(wrong(&|parts| drop(parts.remove(1))), PartError::Place);
            assert_eq!(wrong(&|parts| parts.insert(1, parts[1].clone())), PartError::Place);
            assert_eq!(wrong(&|parts| drop(parts.remove(0))), PartError::Stray);
            assert_eq!(wrong(&|parts| parts[1].header.correlation = 2), PartError::Stray);
            assert_eq!(wrong(&|parts| parts[1].header.kind = FrameKind::Tell), PartError::Stray);
            assert_eq!(wrong(&|parts| parts[1].body.clear()), PartError::Length);
            assert_eq!(wrong(&|parts| parts[2].body.push(0)), PartError::Length);
            let announced = |length: u32| {
                wrong(&move |parts: &mut Vec<Part>| parts[0].body[..4].copy_from_slice(&length.to_le_bytes()))
            };
            assert_eq!(announced(LIMIT as u32 + 1), PartError::TooLong);
            assert_eq!(announced(u32::MAX), PartError::TooLong);
            assert_eq!(announced(0), PartError::Length);
            assert_eq!(announced(1000), PartError::Length, "that is no body in parts");
        }
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let queue = LeavingQueue::default();
        queue.push(leaving(FrameKind::Reply, 1, &[], &body(LIMIT, 1)));
        let parts = written(&queue, &[10, 10, LIMIT]);
        let mut arriving = Arriving::announced(&parts[0].frame(), LIMIT).unwrap();
        assert_eq!(arriving.bytes.capacity(), 0);
        assert_eq!(arriving.add(&parts[0].frame(), Nanos(5)), Ok(false));
        assert!(arriving.bytes.capacity() <= 20);
        assert!(!arriving.is_late(Nanos(5), core::time::Duration::from_nanos(1)));
        assert!(arriving.is_late(Nanos(6), core::time::Duration::from_nanos(1)));
        arriving.forget();
        assert_eq!(arriving.add(&parts[1].frame(), Nanos(6)), Ok(false));
        assert_eq!(arriving.add(&parts[2].frame(), Nanos(7)), Ok(true), "it is still checked");
        assert_eq!((arriving.bytes.capacity(), arriving.frame()), (0, None));
    }

    #[test]
    fn what_is_given_up_is_not_sent_any_more() {
        let queue = LeavingQueue::default();
        for at in 0..3 {
            queue.push(leaving(FrameKind::Ask, at, b"routing", &body(1000, at as u8)));
        }
        let mut send = SendBuffer::new(1 << 20);
        assert_eq!(queue.write_part(&mut send, 400), Some((407, None)));
        assert!(queue.give_up(false, 0).is_none(), "a reply of that correlation is another message");
        let begun = queue.give_up(true, 0).unwrap();
        assert_eq!((begun.bytes, begun.has_begun, begun.shard), (1007, true, ShardId(3)));
        assert!(!queue.give_up(true, 2).unwrap().has_begun);
        assert!(queue.give_up(true, 0).is_none());
        assert_eq!(queue.bytes(), 1007);
        assert_eq!(queue.write_part(&mut send, 1000), Some((1007, Some(Left::Request(ShardId(3))))));
        assert!(queue.is_empty());
        queue.push(leaving(FrameKind::Reply, 1, &[], &body(10, 1)));
        queue.push(leaving(FrameKind::Ask, 1, b"routing", &body(10, 1)));
        assert_eq!(queue.give_up_all(), [ShardId(3)]);
        assert!(queue.is_empty());
    }
}
