//! What a link still has to send: finished frames, one after the other, in one buffer.
//!
//! The engine begins a frame, appends routing block and body where they will be sent from, and finishes it;
//! `transport` takes all finished frames at once for one SEND per turn:
//!
//! ```
//! # use atoll::base::{ShardId, Token};
//! # use atoll::wire::{FrameFlags, FrameKind, Lane, SendBuffer};
//! let mut buffer = SendBuffer::new(8 << 20);
//! let flags = FrameFlags::new(Lane::Messages);
//! let start = buffer.begin_frame(FrameKind::Reply, flags, 7, ShardId(3), Token(1), 42);
//! buffer.bytes_mut().extend_from_slice(b"archived");
//! buffer.finish_frame(start, 0)?;
//!
//! let mut in_flight = Vec::new();
//! assert_eq!(buffer.take(&mut in_flight), 48);
//! # Ok::<(), atoll::wire::FrameNotFinished>(())
//! ```
//!
//! Invariants: only finished frames are ever taken. A frame that was begun and not finished (an error, a panic in an
//! archive, a forgotten start) vanishes with the next call that begins or takes. At most one frame is open.

use crate::base::limits::FRAME_BYTES_MAX;
use crate::base::{ShardId, Token};

use super::header::{FrameFlags, FrameHeader, FrameKind, HEADER_BYTES, Lane};

/// A buffer of up to this capacity is kept although it is empty; of more, only if the last bytes that were taken used
/// a quarter of it.
const KEPT_BYTES: usize = 1 << 20;

/// An open frame. Hand it to [`SendBuffer::finish_frame`] or [`SendBuffer::cancel_frame`].
#[derive(Debug)]
#[must_use = "a frame that is not finished is not sent"]
pub struct FrameStart {
    header: FrameHeader,
    serial: u64,
}

impl FrameStart {
    /// The same frame on another lane.
    pub fn on_lane(mut self, lane: Lane) -> FrameStart {
        self.header.flags = self.header.flags.on_lane(lane);
        self
    }
}

/// Why a frame was not finished. Nothing of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameNotFinished {
    /// The frame is longer than the peer takes.
    #[error("the frame has {length} bytes, {limit} are allowed; raise `frame_bytes_max` on both sides or send less")]
    TooLong {
        /// Length of the frame in bytes, header included.
        length: usize,
        /// Longest frame in bytes.
        limit: usize,
    },
    /// The stated routing block is longer than what was appended, or than a header can say. An error of the caller.
    #[error("a routing block of {length} bytes does not fit in the frame")]
    RoutingLength {
        /// Stated length in bytes.
        length: usize,
    },
    /// The frame was given up when another one was begun or the buffer was taken meanwhile. An error of the caller.
    #[error("the frame was given up because another one was begun or the buffer was taken meanwhile")]
    GivenUp,
}

/// The bytes that one link has to send.
#[derive(Debug)]
pub struct SendBuffer {
    bytes: Vec<u8>,
    /// Length of the finished frames; what is after it belongs to the open frame.
    finished: usize,
    /// Number of the open frame; changes whenever that is given up.
    serial: u64,
    limit_bytes: usize,
    frame_bytes_max: usize,
    body_checksum: bool,
}

impl SendBuffer {
    /// A buffer that calls itself full at `limit_bytes`. Frames may have up to
    /// [`FRAME_BYTES_MAX`] bytes and carry a body checksum until told otherwise.
    #[must_use]
    pub const fn new(limit_bytes: usize) -> SendBuffer {
        SendBuffer {
            bytes: Vec::new(),
            finished: 0,
            serial: 0,
            limit_bytes,
            frame_bytes_max: FRAME_BYTES_MAX,
            body_checksum: true,
        }
    }

    /// Sets the longest frame in bytes that the peer takes, header included.
    pub const fn set_frame_bytes_max(&mut self, frame_bytes_max: u32) {
        self.frame_bytes_max = frame_bytes_max as usize;
    }

    /// Sets whether frames carry a checksum of routing block and body.
    pub const fn set_body_checksum(&mut self, body_checksum: bool) {
        self.body_checksum = body_checksum;
    }

    /// Begins a frame. Append its routing block and then its body to [`SendBuffer::bytes_mut`]. Whether it carries a
    /// body checksum is a setting of the link and not taken from `flags`.
    #[inline]
    pub fn begin_frame(
        &mut self,
        kind: FrameKind,
        flags: FrameFlags,
        tag: u32,
        shard: ShardId,
        token: Token,
        correlation: u64,
    ) -> FrameStart {
        self.give_up_open_frame();
        self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        let flags = flags.without(FrameFlags::BODY_CHECKSUM);
        let flags = if self.body_checksum { flags.with(FrameFlags::BODY_CHECKSUM) } else { flags };
        let header =
            FrameHeader { length: 0, kind, flags, routing_length: 0, tag, shard, token, correlation, body_checksum: 0 };
        FrameStart { header, serial: self.serial }
    }

    /// Where routing block and body of the open frame are appended. Do not shorten it.
    #[inline]
    pub const fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Finishes a frame of which the first `routing_length` appended bytes are the routing block.
    ///
    /// # Errors
    /// If the frame is too long, shorter than its routing block, or was given up meanwhile. Then nothing of it is sent.
    #[inline]
    pub fn finish_frame(&mut self, start: FrameStart, routing_length: usize) -> Result<(), FrameNotFinished> {
        if start.serial != self.serial {
            // What is after the finished frames may belong to another frame that is open now; that one goes on.
            return Err(FrameNotFinished::GivenUp);
        }
        let outcome = self.seal(start.header, routing_length);
        if outcome.is_err() {
            self.give_up_open_frame();
        }
        outcome
    }

    /// Gives an open frame up; the finished ones before it stay.
    pub fn cancel_frame(&mut self, start: FrameStart) {
        if start.serial == self.serial {
            self.give_up_open_frame();
        }
    }

    /// Gives an open frame up and returns its header and what was appended to it: it is to be sent in parts. `None` if it
    /// was given up before.
    pub fn take_frame(&mut self, start: FrameStart) -> Option<(FrameHeader, Vec<u8>)> {
        if start.serial != self.serial {
            return None;
        }
        let appended = self.bytes.get(self.finished + HEADER_BYTES..)?.to_vec();
        self.give_up_open_frame();
        Some((start.header, appended))
    }

    /// Moves all finished frames to `into` by swapping the two buffers, and returns how many bytes those are. Does
    /// nothing and returns 0 if `into` is not empty. An unusually large buffer is freed when it is no longer needed,
    /// so call it after the last bytes were sent too.
    #[inline]
    pub fn take(&mut self, into: &mut Vec<u8>) -> usize {
        if !into.is_empty() {
            return 0;
        }
        self.give_up_open_frame();
        let taken = self.bytes.len();
        if into.capacity() > KEPT_BYTES && taken < into.capacity() / 4 {
            *into = Vec::new();
        }
        core::mem::swap(&mut self.bytes, into);
        self.finished = 0;
        if into.capacity() > KEPT_BYTES && taken == 0 {
            *into = Vec::new();
        }
        taken
    }

    /// Bytes of the finished frames.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.finished
    }

    /// Whether there is no finished frame.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.finished == 0
    }

    /// Whether the finished frames have reached the limit. Nothing is refused then; it is for the caller to hold
    /// further requests back, and answers and control frames still go through.
    #[inline]
    #[must_use]
    pub const fn is_over_limit(&self) -> bool {
        self.finished >= self.limit_bytes
    }

    /// Bytes of memory that the buffer holds.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    #[inline]
    fn seal(&mut self, mut header: FrameHeader, routing_length: usize) -> Result<(), FrameNotFinished> {
        let open = self.bytes.get_mut(self.finished..).unwrap_or_default();
        let length = open.len();
        let Some((header_bytes, rest)) = open.split_first_chunk_mut::<HEADER_BYTES>() else {
            return Err(FrameNotFinished::GivenUp);
        };
        if length > self.frame_bytes_max || u32::try_from(length).is_err() {
            return Err(FrameNotFinished::TooLong { length, limit: self.frame_bytes_max });
        }
        header.length = length as u32;
        header.routing_length = match u16::try_from(routing_length) {
            Ok(fits) if routing_length <= rest.len() => fits,
            _ => return Err(FrameNotFinished::RoutingLength { length: routing_length }),
        };
        if header.flags.has(FrameFlags::BODY_CHECKSUM) {
            header.body_checksum = super::checksum::crc32c(rest);
        }
        header.encode(header_bytes);
        self.finished += length;
        self.serial += 1;
        Ok(())
    }

    #[inline]
    fn give_up_open_frame(&mut self) {
        self.bytes.truncate(self.finished);
        self.serial += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameDecoder;

    fn begin(buffer: &mut SendBuffer, correlation: u64) -> FrameStart {
        buffer.begin_frame(FrameKind::Reply, FrameFlags::new(Lane::Messages), 1, ShardId(2), Token(3), correlation)
    }

    fn add(buffer: &mut SendBuffer, correlation: u64, body: &[u8]) -> Result<(), FrameNotFinished> {
        let start = begin(buffer, correlation);
        buffer.bytes_mut().extend_from_slice(body);
        buffer.finish_frame(start, 0)
    }

    /// What a peer makes of all that is taken.
    fn received(buffer: &mut SendBuffer) -> Vec<(u64, Vec<u8>)> {
        let mut bytes = Vec::new();
        buffer.take(&mut bytes);
        let mut decoder = FrameDecoder::new(u32::MAX);
        let mut frames = decoder.feed(&bytes);
        let mut all = Vec::new();
        while let Some(frame) = frames.next() {
            let frame = frame.expect("only whole frames are sent");
            all.push((frame.header.correlation, frame.body.to_vec()));
        }
        assert!(!decoder.is_within_frame());
        all
    }

    #[test]
    fn a_whole_frame_has_the_fixed_bytes() {
        let mut buffer = SendBuffer::new(1000);
        let flags = FrameFlags::new(Lane::Messages).with(FrameFlags::UNINTERRUPTIBLE);
        let start = buffer.begin_frame(FrameKind::Ask, flags, 7, ShardId(8), Token(9), 10);
        let routing = crate::wire::Routing {
            remaining_us: 1000,
            hops: 1,
            chain: &[5, 6],
            role: "map",
            entity_id: "g1",
            sender_incarnation: 0x1112_1314_1516_1718,
            sender_sequence: 9,
        };
        let routing_length = routing.encode(buffer.bytes_mut()).unwrap();
        buffer.bytes_mut().extend_from_slice(b"body");
        buffer.finish_frame(start, routing_length).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(buffer.take(&mut bytes), 89);
        // Both checksums were computed by an independent program.
        let header = [
            0x59, 0, 0, 0, 1, 0x25, 0x2d, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0,
            0xc8, 0x87, 0xfe, 0x6a, 0xee, 0x87, 0x98, 0xf7,
        ];
        assert_eq!(bytes[..HEADER_BYTES], header);
        assert_eq!(bytes[85..], *b"body");
    }

    #[test]
    fn only_finished_frames_are_sent() {
        let mut buffer = SendBuffer::new(1000);
        add(&mut buffer, 1, b"first").unwrap();
        let cancelled = begin(&mut buffer, 2);
        buffer.bytes_mut().extend_from_slice(b"half");
        buffer.cancel_frame(cancelled);
        add(&mut buffer, 3, b"").unwrap();
        let forgotten = begin(&mut buffer, 4);
        buffer.bytes_mut().extend_from_slice(&[0; 100]);
        drop(forgotten);
        add(&mut buffer, 5, b"last").unwrap();
        let _open = begin(&mut buffer, 6);
        assert_eq!(buffer.len(), 3 * HEADER_BYTES + 9);
        assert_eq!(received(&mut buffer), [(1, b"first".to_vec()), (3, vec![]), (5, b"last".to_vec())]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_frame_can_be_taken_out_again() {
        let mut buffer = SendBuffer::new(1000);
        add(&mut buffer, 1, b"first").unwrap();
        let old = begin(&mut buffer, 2);
        let open = begin(&mut buffer, 3);
        buffer.bytes_mut().extend_from_slice(b"large");
        assert_eq!(buffer.take_frame(old).map(|taken| taken.1), None);
        let (header, bytes) = buffer.take_frame(open).unwrap();
        assert_eq!((header.correlation, bytes), (3, b"large".to_vec()));
        let start = begin(&mut buffer, 4).on_lane(Lane::Bulk);
        assert_eq!(buffer.finish_frame(start, 0), Ok(()));
        assert_eq!(received(&mut buffer), [(1, b"first".to_vec()), (4, vec![])]);
    }

    #[test]
    fn a_frame_that_was_given_up_cannot_be_finished() {
        let mut buffer = SendBuffer::new(1000);
        let outer = begin(&mut buffer, 1);
        buffer.bytes_mut().extend_from_slice(&[7; 100]);
        add(&mut buffer, 2, b"inner").unwrap();
        buffer.bytes_mut().extend_from_slice(&[8; 100]);
        assert_eq!(buffer.finish_frame(outer, 0), Err(FrameNotFinished::GivenUp));
        let outer = begin(&mut buffer, 3);
        let inner = begin(&mut buffer, 4);
        buffer.cancel_frame(inner);
        buffer.bytes_mut().extend_from_slice(&[8; 100]);
        assert_eq!(buffer.finish_frame(outer, 0), Err(FrameNotFinished::GivenUp));
        let outer = begin(&mut buffer, 5);
        assert_eq!(received(&mut buffer), [(2, b"inner".to_vec())]);
        buffer.bytes_mut().extend_from_slice(&[8; 100]);
        assert_eq!(buffer.finish_frame(outer, 0), Err(FrameNotFinished::GivenUp));
        assert_eq!(received(&mut buffer), []);
    }

    #[test]
    fn an_outdated_start_does_no_harm_to_the_open_frame() {
        let mut buffer = SendBuffer::new(1000);
        let (old, older) = (begin(&mut buffer, 1), begin(&mut buffer, 2));
        let open = begin(&mut buffer, 3);
        buffer.bytes_mut().extend_from_slice(b"open");
        buffer.cancel_frame(old);
        assert_eq!(buffer.finish_frame(older, 0), Err(FrameNotFinished::GivenUp));
        assert_eq!(buffer.finish_frame(open, 0), Ok(()));
        assert_eq!(received(&mut buffer), [(3, b"open".to_vec())]);
    }

    #[test]
    fn a_frame_that_the_peer_would_refuse_is_not_sent() {
        let mut buffer = SendBuffer::new(1000);
        buffer.set_frame_bytes_max(50);
        assert_eq!(add(&mut buffer, 1, &[0; 10]), Ok(()));
        assert_eq!(add(&mut buffer, 2, &[0; 11]), Err(FrameNotFinished::TooLong { length: 51, limit: 50 }));
        let start = begin(&mut buffer, 3);
        buffer.bytes_mut().push(0);
        assert_eq!(buffer.finish_frame(start, 2), Err(FrameNotFinished::RoutingLength { length: 2 }));
        assert_eq!(received(&mut buffer), [(1, vec![0; 10])]);
    }

    #[test]
    fn the_link_decides_about_body_checksums() {
        for on in [true, false] {
            let mut buffer = SendBuffer::new(1000);
            buffer.set_body_checksum(on);
            let flags = FrameFlags::new(Lane::Messages).with(FrameFlags::BODY_CHECKSUM);
            let start = buffer.begin_frame(FrameKind::Reply, flags, 0, ShardId(0), Token(0), 0);
            buffer.finish_frame(start, 0).unwrap();
            let mut bytes = Vec::new();
            buffer.take(&mut bytes);
            let accepted = FrameDecoder::new(1000).require_body_checksum(true).feed(&bytes).next().unwrap().is_ok();
            assert_eq!(accepted, on);
            assert!(FrameDecoder::new(1000).feed(&bytes).next().unwrap().is_ok());
        }
    }

    #[test]
    fn bytes_in_flight_are_not_overwritten() {
        let mut buffer = SendBuffer::new(1000);
        add(&mut buffer, 1, b"next").unwrap();
        let mut in_flight = vec![1, 2, 3];
        assert_eq!(buffer.take(&mut in_flight), 0);
        assert_eq!(in_flight, [1, 2, 3]);
        assert_eq!(received(&mut buffer).len(), 1);
    }

    #[test]
    fn the_limit_is_reached_by_finished_frames() {
        let mut buffer = SendBuffer::new(2 * HEADER_BYTES);
        add(&mut buffer, 1, b"").unwrap();
        let _open = begin(&mut buffer, 2);
        assert!(!buffer.is_over_limit());
        add(&mut buffer, 2, b"").unwrap();
        assert!(buffer.is_over_limit());
        received(&mut buffer);
        assert!(!buffer.is_over_limit());
    }

    #[test]
    fn a_burst_leaves_no_large_buffer_behind() {
        let mut buffer = SendBuffer::new(8 << 20);
        let mut in_flight = Vec::new();
        for _ in 0..2 {
            for _ in 0..4 {
                add(&mut buffer, 1, &vec![0; 1 << 19]).unwrap();
            }
            in_flight.clear();
            buffer.take(&mut in_flight);
        }
        assert!(in_flight.capacity() >= 2 << 20);
        for _ in 0..2 {
            add(&mut buffer, 2, b"small").unwrap();
            in_flight.clear();
            buffer.take(&mut in_flight);
        }
        in_flight.clear();
        buffer.take(&mut in_flight);
        assert!(in_flight.capacity() + buffer.held_bytes() <= 2 * KEPT_BYTES);
    }

    #[test]
    fn small_buffers_are_used_again() {
        let mut buffer = SendBuffer::new(1000);
        let mut in_flight = Vec::with_capacity(500);
        add(&mut buffer, 1, b"body").unwrap();
        buffer.take(&mut in_flight);
        assert_eq!(buffer.held_bytes(), 500);
    }
}
