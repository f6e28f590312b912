//! From received bytes to frames, whatever the pieces in which the bytes arrive.
//!
//! `transport` keeps one [`FrameDecoder`] per link and calls [`FrameDecoder::next_frame`] for each chunk until it
//! gives nothing more. The answer is where the frame lies, not a borrow of the decoder, so the caller can run a
//! handler on the frame while other code reaches the link that owns the decoder:
//!
//! ```
//! # use atoll::wire::{FrameDecoder, FrameError, FramePlace};
//! # fn on_chunk(decoder: &mut FrameDecoder, chunk: &[u8]) -> Result<(), FrameError> {
//! let mut at = 0;
//! while let Some(span) = decoder.next_frame(chunk, &mut at) {
//!     let span = span?;
//!     let scratch = decoder.take_scratch(); // empty, and free of cost, unless the frame lies there
//!     let frame = span.frame(chunk, &scratch);
//!     // … run the handler; the decoder is not borrowed …
//! #   let _ = frame;
//!     decoder.give_back(scratch);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! - A frame that lies in the chunk as a whole is not copied. Only a frame that is split over chunks is collected in
//!   the scratch, which holds at most one frame.
//! - The header is checked before its length is believed, the length before memory is taken, and memory grows only
//!   with the bytes that arrived: a stated length alone costs at most [`SCRATCH_FIRST_BYTES`].
//! - Every call either moves the cursor or returns `None`.
//! - After an error the position in the byte stream is lost, so every later chunk gives that error again.

use core::ops::Range;

use super::header::{FrameError, FrameFlags, FrameHeader, HEADER_BYTES};

/// The scratch starts with this much, or with the frame if that is shorter: one page holds most frames.
pub const SCRATCH_FIRST_BYTES: usize = 4096;
/// A scratch of up to this capacity is kept for the next split frame; a larger one is freed after its frame. Sixteen
/// thousand links (`LINKS_MAX`) keep at most 256 MiB.
pub const SCRATCH_KEPT_BYTES: usize = 16 << 10;

/// A frame whose checks were passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: FrameHeader,
    /// The routing block; empty if there is none.
    pub routing: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

/// Where a frame lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramePlace {
    /// In the chunk, at these positions (header included).
    InChunk(Range<usize>),
    /// In the decoder's scratch, as all of it (header included).
    InScratch,
}

/// A frame whose checks were passed, as a place. It holds no borrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    /// The header.
    pub header: FrameHeader,
    /// Where the frame lies.
    pub place: FramePlace,
}

impl FrameSpan {
    /// The frame, given the chunk that was passed to [`FrameDecoder::next_frame`] and what
    /// [`FrameDecoder::take_scratch`] returned right after it.
    ///
    /// # Panics
    /// If they are not those.
    #[inline]
    #[must_use]
    pub fn frame<'a>(&self, chunk: &'a [u8], scratch: &'a [u8]) -> Frame<'a> {
        let bytes = match &self.place {
            FramePlace::InChunk(range) => &chunk[range.clone()],
            FramePlace::InScratch => scratch,
        };
        let (routing, body) = bytes[HEADER_BYTES..].split_at(usize::from(self.header.routing_length));
        Frame { header: self.header, routing, body }
    }
}

/// Splits the bytes of one link into frames.
#[derive(Debug)]
pub struct FrameDecoder {
    frame_bytes_max: u32,
    body_checksum_required: bool,
    /// The start of a split frame, or a whole one that was handed out.
    scratch: Vec<u8>,
    /// Header of the frame in the scratch, once that much of it is there.
    split: Option<FrameHeader>,
    /// The scratch holds a frame that was handed out.
    handed_out: bool,
    error: Option<FrameError>,
}

impl FrameDecoder {
    /// A decoder that accepts frames of up to `frame_bytes_max` bytes, header included.
    #[must_use]
    pub const fn new(frame_bytes_max: u32) -> FrameDecoder {
        FrameDecoder {
            frame_bytes_max,
            body_checksum_required: false,
            scratch: Vec::new(),
            split: None,
            handed_out: false,
            error: None,
        }
    }

    /// Whether frames without a body checksum are refused; off at first.
    #[must_use]
    pub const fn require_body_checksum(mut self, required: bool) -> FrameDecoder {
        self.body_checksum_required = required;
        self
    }

    /// Takes the next frame of the chunk, from position `at` on, and moves `at` past what it used. Call it with the
    /// same chunk until it returns `None`; then `at` is at the end, and the chunk's bytes are no longer needed. A frame
    /// in the scratch stays there until the next call.
    ///
    /// # Errors
    /// If the bytes are not a frame that is acceptable. The rest of the chunk is skipped and every later chunk gives
    /// the same error: close the link.
    #[inline]
    pub fn next_frame(&mut self, chunk: &[u8], at: &mut usize) -> Option<Result<FrameSpan, FrameError>> {
        if self.handed_out {
            self.clear_scratch();
        }
        let start = *at;
        let rest = chunk.get(start..).filter(|rest| !rest.is_empty())?;
        let found = match self.error {
            Some(error) => Err(error),
            None if self.scratch.is_empty() => self.next_in_chunk(rest, at),
            None => self.next_in_scratch(rest, at),
        };
        match found {
            Ok(found) => found.map(Ok),
            Err(error) => {
                *at = chunk.len();
                self.fail(error);
                Some(Err(error))
            }
        }
    }

    /// The frames of one chunk, as borrows of chunk and decoder. Convenient where nothing else needs the decoder.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> Frames<'a> {
        Frames { decoder: self, chunk, at: 0 }
    }

    /// Takes the scratch if the last frame lies there; else the result is empty. Give it back when the frame was
    /// handled, or keep it: the decoder can do without.
    #[inline]
    #[must_use]
    pub fn take_scratch(&mut self) -> Vec<u8> {
        if !self.handed_out {
            return Vec::new();
        }
        self.handed_out = false;
        core::mem::take(&mut self.scratch)
    }

    /// Gives a taken scratch back, so that the next split frame needs no allocation. A large one is freed.
    #[inline]
    pub fn give_back(&mut self, mut scratch: Vec<u8>) {
        if scratch.capacity() > SCRATCH_KEPT_BYTES || self.scratch.capacity() >= scratch.capacity() {
            return;
        }
        if self.scratch.is_empty() {
            scratch.clear();
            self.scratch = scratch;
        }
    }

    /// The error that ended this decoder, if one did.
    #[must_use]
    pub const fn error(&self) -> Option<FrameError> {
        self.error
    }

    /// Bytes of memory that the decoder holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.scratch.capacity()
    }

    /// Whether the bytes so far end within a frame. If the peer closes now, something was lost.
    #[must_use]
    pub fn is_within_frame(&self) -> bool {
        !self.scratch.is_empty() && !self.handed_out
    }

    #[inline]
    fn next_in_chunk(&mut self, rest: &[u8], at: &mut usize) -> Result<Option<FrameSpan>, FrameError> {
        let Some(header_bytes) = rest.first_chunk::<HEADER_BYTES>() else {
            *at += self.collect(rest, HEADER_BYTES);
            return Ok(None);
        };
        let header = self.accept_header(header_bytes)?;
        let length = header.length as usize;
        let Some(frame) = rest.get(..length) else {
            self.split = Some(header);
            *at += self.collect(rest, length);
            return Ok(None);
        };
        check_body(&header, frame)?;
        let start = *at;
        *at = start + length;
        Ok(Some(FrameSpan { header, place: FramePlace::InChunk(start..*at) }))
    }

    #[cold]
    fn next_in_scratch(&mut self, rest: &[u8], at: &mut usize) -> Result<Option<FrameSpan>, FrameError> {
        let mut used = 0;
        let header = match self.split {
            Some(header) => header,
            None => {
                used = self.collect(rest, HEADER_BYTES);
                *at += used;
                let Some(header_bytes) = self.scratch.first_chunk::<HEADER_BYTES>() else {
                    return Ok(None);
                };
                let header = self.accept_header(header_bytes)?;
                self.split = Some(header);
                header
            }
        };
        *at += self.collect(&rest[used..], header.length as usize);
        if self.scratch.len() < header.length as usize {
            return Ok(None);
        }
        check_body(&header, &self.scratch)?;
        self.split = None;
        self.handed_out = true;
        Ok(Some(FrameSpan { header, place: FramePlace::InScratch }))
    }

    #[inline]
    fn accept_header(&self, bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let header = FrameHeader::decode(bytes)?;
        if header.length > self.frame_bytes_max {
            return Err(FrameError::TooLong { length: header.length, limit: self.frame_bytes_max });
        }
        if self.body_checksum_required && !header.flags.has(FrameFlags::BODY_CHECKSUM) {
            return Err(FrameError::BodyChecksumMissing);
        }
        Ok(header)
    }

    /// Copies bytes to the scratch until it holds `wanted`, and returns how many were copied. The capacity at most
    /// doubles, so that it follows what arrived, and ends at `wanted`, so that it is never more than a frame.
    fn collect(&mut self, bytes: &[u8], wanted: usize) -> usize {
        let used = bytes.len().min(wanted.saturating_sub(self.scratch.len()));
        let after = self.scratch.len() + used;
        if after > self.scratch.capacity() {
            let roomy = (self.scratch.capacity() * 2).max(SCRATCH_FIRST_BYTES).min(wanted);
            self.scratch.reserve_exact(roomy.max(after) - self.scratch.len());
        }
        self.scratch.extend_from_slice(&bytes[..used]);
        used
    }

    #[cold]
    fn clear_scratch(&mut self) {
        self.handed_out = false;
        if self.scratch.capacity() > SCRATCH_KEPT_BYTES {
            self.scratch = Vec::new();
        } else {
            self.scratch.clear();
        }
    }

    #[cold]
    fn fail(&mut self, error: FrameError) {
        self.error = Some(error);
        self.split = None;
        self.handed_out = false;
        self.scratch = Vec::new();
    }
}

#[inline]
fn check_body(header: &FrameHeader, frame: &[u8]) -> Result<(), FrameError> {
    let checked = header.flags.has(FrameFlags::BODY_CHECKSUM);
    if checked && super::checksum::crc32c(&frame[HEADER_BYTES..]) != header.body_checksum {
        return Err(FrameError::BodyChecksum);
    }
    Ok(())
}

/// The frames of one chunk; see [`FrameDecoder::feed`].
#[derive(Debug)]
pub struct Frames<'a> {
    decoder: &'a mut FrameDecoder,
    chunk: &'a [u8],
    at: usize,
}

impl Frames<'_> {
    /// The next frame; it has to be let go before the one after it. Nothing follows an error.
    ///
    /// # Errors
    /// As [`FrameDecoder::next_frame`].
    #[expect(clippy::should_implement_trait, reason = "the standard trait cannot lend from the iterator")]
    pub fn next(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        match self.decoder.next_frame(self.chunk, &mut self.at)? {
            Ok(span) => Some(Ok(span.frame(self.chunk, &self.decoder.scratch))),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ShardId, Token};
    use crate::wire::{FrameKind, Lane, SendBuffer};

    fn frames(bodies: &[&[u8]]) -> Vec<u8> {
        let mut buffer = SendBuffer::new(usize::MAX);
        for body in bodies {
            let flags = FrameFlags::new(Lane::Messages);
            let start = buffer.begin_frame(FrameKind::Reply, flags, 0, ShardId(0), Token(0), body.len() as u64);
            buffer.bytes_mut().extend_from_slice(body);
            buffer.finish_frame(start, 0).unwrap();
        }
        let mut bytes = Vec::new();
        buffer.take(&mut bytes);
        bytes
    }

    /// A header that is right in itself, whatever its length.
    fn header_of_length(length: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = *frames(&[b""]).first_chunk().unwrap();
        let header = FrameHeader { length, ..FrameHeader::decode(&bytes).unwrap() };
        header.encode(&mut bytes);
        bytes
    }

    #[test]
    fn whole_frames_are_handed_out_where_they_lie() {
        let bytes = frames(&[b"one", b"", b"three"]);
        let mut decoder = FrameDecoder::new(1000);
        let mut at = 0;
        let mut ranges = Vec::new();
        while let Some(span) = decoder.next_frame(&bytes, &mut at) {
            match span.unwrap().place {
                FramePlace::InChunk(range) => ranges.push(range),
                FramePlace::InScratch => panic!("a whole frame was copied"),
            }
            assert_eq!(decoder.take_scratch().capacity(), 0);
        }
        assert_eq!(ranges, [0..43, 43..83, 83..128]);
        assert_eq!((at, decoder.held_bytes()), (128, 0));
    }

    #[test]
    fn only_the_split_frame_is_copied() {
        let bytes = frames(&[b"one", b"two", b"three"]);
        let mut decoder = FrameDecoder::new(1000);
        let (first, second) = bytes.split_at(60);
        let mut at = 0;
        assert!(decoder.next_frame(first, &mut at).is_some());
        assert!(decoder.next_frame(first, &mut at).is_none());
        assert_eq!(at, first.len());
        assert!(decoder.is_within_frame());

        let mut at = 0;
        let span = decoder.next_frame(second, &mut at).unwrap().unwrap();
        assert_eq!(span.place, FramePlace::InScratch);
        assert!(!decoder.is_within_frame());
        let scratch = decoder.take_scratch();
        assert_eq!(span.frame(second, &scratch).body, b"two");
        let span = decoder.next_frame(second, &mut at).unwrap().unwrap();
        assert_eq!(span.place, FramePlace::InChunk(26..71));
        let held = scratch.capacity();
        decoder.give_back(scratch);
        assert_eq!(decoder.held_bytes(), held);
        assert!(decoder.next_frame(second, &mut at).is_none());
    }

    #[test]
    fn a_scratch_that_is_not_taken_or_not_given_back_does_no_harm() {
        let bytes = frames(&[b"one", b"two", b"three", b"four"]);
        let (first, rest) = bytes.split_at(60);
        let (second, third) = rest.split_at(50);
        let mut decoder = FrameDecoder::new(1000);
        let mut bodies = Vec::new();
        let mut kept = Vec::new();
        for chunk in [first, second, third] {
            let mut at = 0;
            while let Some(span) = decoder.next_frame(chunk, &mut at) {
                let span = span.unwrap();
                if bodies.len() % 2 == 0 {
                    kept = decoder.take_scratch();
                    bodies.push(span.frame(chunk, &kept).body.to_vec());
                } else {
                    bodies.push(span.frame(chunk, &decoder.scratch).body.to_vec());
                }
            }
        }
        assert_eq!(bodies, [&b"one"[..], b"two", b"three", b"four"]);
        assert!(!kept.is_empty(), "the third frame was split and kept");
    }

    #[test]
    fn a_scratch_given_back_late_does_not_overwrite_the_next_split_frame() {
        let bytes = frames(&[b"one", b"two"]);
        let mut decoder = FrameDecoder::new(1000);
        assert!(decoder.feed(&bytes[..10]).next().is_none());
        let mut at = 0;
        assert!(decoder.next_frame(&bytes[10..60], &mut at).is_some());
        let scratch = decoder.take_scratch();
        assert!(decoder.next_frame(&bytes[10..60], &mut at).is_none());
        decoder.give_back(scratch);
        assert!(decoder.take_scratch().is_empty(), "the start of a frame is not for the caller");
        assert_eq!(decoder.feed(&bytes[60..]).next().unwrap().unwrap().body, b"two");
    }

    #[test]
    fn a_lying_length_takes_little_memory() {
        for length in [5000, 1 << 20, u32::MAX] {
            let mut decoder = FrameDecoder::new(u32::MAX);
            assert!(decoder.feed(&header_of_length(length)).next().is_none());
            assert!(decoder.held_bytes() <= SCRATCH_FIRST_BYTES);
            for _ in 0..100 {
                assert!(decoder.feed(&[0; 40]).next().is_none());
            }
            assert!(decoder.held_bytes() <= 2 * 4040.max(SCRATCH_FIRST_BYTES));
        }
    }

    #[test]
    fn memory_is_bounded_by_the_frame_and_given_back_after_it() {
        let body = vec![7; 100_000];
        let bytes = frames(&[&body]);
        let mut decoder = FrameDecoder::new(bytes.len() as u32);
        for chunk in bytes[..bytes.len() - 1].chunks(999) {
            assert!(decoder.feed(chunk).next().is_none());
            assert!(decoder.held_bytes() <= bytes.len());
        }
        assert_eq!(decoder.feed(&bytes[bytes.len() - 1..]).next().unwrap().unwrap().body, body);
        assert!(decoder.feed(&[]).next().is_none());
        assert_eq!(decoder.held_bytes(), 0);
    }

    #[test]
    fn a_frame_may_have_the_limit_and_no_byte_more() {
        let bytes = frames(&[b"12345"]);
        assert!(FrameDecoder::new(45).feed(&bytes).next().unwrap().is_ok());
        for split in [45, 40, 39, 1] {
            let mut decoder = FrameDecoder::new(44);
            let mut errors = Vec::new();
            for chunk in [&bytes[..split], &bytes[split..]] {
                errors.extend(decoder.feed(chunk).next().map(|frame| frame.unwrap_err()));
            }
            let expected = FrameError::TooLong { length: 45, limit: 44 };
            assert_eq!(errors.first(), Some(&expected), "split at {split}");
            assert_eq!(decoder.held_bytes(), 0);
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        let good = frames(&[b"good"]);
        let mut bytes = frames(&[b"first", b"broken", b"never"]);
        bytes[45 + 40] ^= 1;
        let mut decoder = FrameDecoder::new(1000);
        let mut frames = decoder.feed(&bytes);
        assert!(frames.next().unwrap().is_ok());
        assert_eq!(frames.next().unwrap().unwrap_err(), FrameError::BodyChecksum);
        assert!(frames.next().is_none());
        assert_eq!(decoder.error(), Some(FrameError::BodyChecksum));
        for _ in 0..2 {
            let mut frames = decoder.feed(&good);
            assert_eq!(frames.next().unwrap().unwrap_err(), FrameError::BodyChecksum);
            assert!(frames.next().is_none());
        }
    }

    #[test]
    fn a_cursor_past_the_end_finds_nothing() {
        let bytes = frames(&[b"one"]);
        let mut at = bytes.len() + 1;
        assert!(FrameDecoder::new(1000).next_frame(&bytes, &mut at).is_none());
    }
}
