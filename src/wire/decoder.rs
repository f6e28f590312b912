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
    if checked && crc32c::crc32c(&frame[HEADER_BYTES..]) != header.body_checksum {
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
