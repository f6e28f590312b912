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

use super::header::{FrameFlags, FrameHeader, FrameKind, HEADER_BYTES};

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
            header.body_checksum = crc32c::crc32c(rest);
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
