//! Frames whose header says how long they are.

use super::gathered::{Gathered, fail, truncated};
use super::{ByteOrder, FieldLength, FramingError};
use crate::stream::error::{IllegalArgument, StreamError};
use crate::stream::stage::elementwise::Step;
use crate::stream::stage::transform::Transform;

/// Bytes for which a frame is sized beforehand at most: who announces more has to send it first.
const FRAME_SIZED_MAX: usize = 64 * 1024;

/// The header of the simple protocol.
const SIMPLE: Field = Field { length: FieldLength::Four, offset: 0, order: ByteOrder::Big };
const SIMPLE_BYTES: usize = 4;

/// Where the length is.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) length: FieldLength,
    pub(super) offset: usize,
    pub(super) order: ByteOrder,
}

impl Field {
    fn header(self) -> usize {
        self.offset.saturating_add(self.length.bytes())
    }

    fn parse(self, header: &[u8]) -> u32 {
        let bytes = header[self.offset..].iter();
        let higher = |value: u32, byte: &u8| (value << 8) | u32::from(*byte);
        match self.order {
            ByteOrder::Big => bytes.fold(0, higher),
            ByteOrder::Little => bytes.rev().fold(0, higher),
        }
    }
}

pub(super) struct LengthField<F> {
    operator: &'static str,
    field: Field,
    max_bytes: usize,
    compute: F,
    /// Bytes at the beginning of a frame that are not emitted: at most its header.
    stripped: usize,
    gathered: Gathered,
    /// Of the frame with its header, once that has come.
    size: Option<usize>,
}

/// For frames of the simple protocol: emits them without header.
pub(super) fn decoder(max_message_bytes: usize) -> LengthField<fn(&[u8], u32) -> i64> {
    let max_bytes = max_message_bytes.saturating_add(SIMPLE_BYTES);
    LengthField::new("framing_decode", SIMPLE, max_bytes, |_, length| i64::from(length) + 4, SIMPLE_BYTES)
}

impl<F: FnMut(&[u8], u32) -> i64> LengthField<F> {
    pub(super) fn new(operator: &'static str, field: Field, max_bytes: usize, compute: F, stripped: usize) -> Self {
        LengthField { operator, field, max_bytes, compute, stripped, gathered: Gathered::default(), size: None }
    }

    /// The size of the frame, unless its header has not come.
    fn known_size(&mut self) -> Result<Option<usize>, FramingError> {
        if self.size.is_some() {
            return Ok(self.size);
        }
        let header_bytes = self.field.header();
        if self.gathered.kept.len() + self.gathered.rest() < header_bytes {
            return Ok(None);
        }
        if !self.gathered.kept.is_empty() {
            let bytes = header_bytes - self.gathered.kept.len();
            self.gathered.keep(bytes);
            self.gathered.at = self.gathered.start;
        }
        let header = match self.gathered.kept.as_slice() {
            [] => &self.gathered.chunk[self.gathered.start..][..header_bytes],
            kept => kept,
        };
        let bytes = (self.compute)(&header[..self.field.offset], self.field.parse(header));
        let size = match u64::try_from(bytes) {
            Ok(size) if size >= header_bytes as u64 => size,
            _ => return Err(FramingError::TooShort { bytes, header: header_bytes as u64 }),
        };
        if size > self.max_bytes as u64 {
            let stripped = self.stripped as u64;
            return Err(FramingError::TooLong { bytes: size - stripped, limit: self.max_bytes as u64 - stripped });
        }
        self.size = usize::try_from(size).ok();
        Ok(self.size)
    }

    fn next(&mut self) -> Step<Vec<u8>> {
        let size = match self.known_size() {
            Ok(size) => size,
            Err(error) => return fail(error),
        };
        let rest = self.gathered.rest();
        match size.map(|size| size - self.gathered.kept.len()) {
            Some(missing) if missing <= rest => {
                self.gathered.at += missing;
                self.size = None;
                Step::Emit(self.frame(missing))
            }
            missing => {
                self.gathered.kept.reserve(missing.unwrap_or(rest).min(FRAME_SIZED_MAX));
                self.gathered.keep(rest);
                self.gathered.at = self.gathered.start;
                Step::Skip
            }
        }
    }

    fn frame(&mut self, mut bytes: usize) -> Vec<u8> {
        if self.gathered.kept.is_empty() {
            self.gathered.start += self.stripped;
            bytes -= self.stripped;
            return self.gathered.frame(bytes);
        }
        let mut frame = self.gathered.frame(bytes);
        frame.drain(..self.stripped);
        frame
    }
}

impl<F: FnMut(&[u8], u32) -> i64 + 'static> Transform for LengthField<F> {
    type In = Vec<u8>;
    type Out = Vec<u8>;
    const SUPERVISED: bool = false;

    fn start(&mut self) -> Result<(), StreamError> {
        if self.field.header() <= self.max_bytes {
            return Ok(());
        }
        let what = "the limit of a frame must have room for its header";
        Err(StreamError::new(IllegalArgument { operator: self.operator, what }))
    }

    fn element(&mut self, chunk: Vec<u8>) -> Step<Vec<u8>> {
        self.gathered.refill(chunk);
        self.next()
    }

    fn left_over(&mut self) -> Step<Vec<u8>> {
        self.next()
    }

    fn has_more(&mut self) -> bool {
        !self.gathered.is_used_up() || !self.gathered.kept.is_empty()
    }

    fn end(&mut self) -> Step<Vec<u8>> {
        match self.gathered.kept.len() {
            0 => Step::Done,
            bytes => truncated(bytes),
        }
    }
}

/// Puts the header of the simple protocol before messages.
pub(super) struct Encoder {
    max_bytes: usize,
}

impl Encoder {
    pub(super) fn new(max_bytes: usize) -> Self {
        Encoder { max_bytes }
    }
}

impl Transform for Encoder {
    type In = Vec<u8>;
    type Out = Vec<u8>;
    const SUPERVISED: bool = false;

    fn element(&mut self, mut message: Vec<u8>) -> Step<Vec<u8>> {
        let bytes = message.len();
        let limit = u32::try_from(self.max_bytes).unwrap_or(u32::MAX);
        match u32::try_from(bytes) {
            Ok(length) if length <= limit => {
                message.resize(bytes + SIMPLE_BYTES, 0);
                message.copy_within(..bytes, SIMPLE_BYTES);
                message[..SIMPLE_BYTES].copy_from_slice(&length.to_be_bytes());
                Step::Emit(message)
            }
            _ => fail(FramingError::TooLong { bytes: bytes as u64, limit: limit.into() }),
        }
    }
}
