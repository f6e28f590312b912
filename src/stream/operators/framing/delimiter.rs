//! Frames with separators between them.
//!
//! The search is that of Knuth, Morris and Pratt: its state is how many bytes of the separator have come, so it goes on in
//! the next chunk without looking back. Those bytes need not be kept: they are those of the separator.

use super::FramingError;
use super::gathered::{Gathered, fail, over, truncated};
use crate::stream::error::{IllegalArgument, StreamError};
use crate::stream::stage::elementwise::Step;
use crate::stream::stage::transform::Transform;

/// Bytes that are compared at once: enough for the widest registers.
const BLOCK_BYTES: usize = 64;

#[derive(Clone)]
pub(super) struct Delimiter {
    separator: Vec<u8>,
    /// By number of matched bytes, from 1: how many still match when the next byte does not.
    fallbacks: Vec<usize>,
    max_bytes: usize,
    allow_truncation: bool,
    gathered: Gathered,
    /// Bytes of the separator that the last bytes match.
    matched: usize,
    /// Of those, the ones that came in earlier chunks when this one began.
    carried: usize,
}

fn fallbacks(separator: &[u8]) -> Vec<usize> {
    let mut fallbacks = vec![0; separator.len()];
    let mut matched = 0;
    for at in 1..separator.len() {
        while matched > 0 && separator[at] != separator[matched] {
            matched = fallbacks[matched - 1];
        }
        matched += usize::from(separator[at] == separator[matched]);
        fallbacks[at] = matched;
    }
    fallbacks
}

/// Where the byte is, or the length.
fn find(bytes: &[u8], byte: u8) -> usize {
    let mut at = 0;
    for block in bytes.chunks_exact(BLOCK_BYTES) {
        // Without a branch for each byte, which the compiler turns into wide comparisons.
        if block.iter().fold(false, |found, other| found | (*other == byte)) {
            break;
        }
        at += BLOCK_BYTES;
    }
    bytes[at..].iter().position(|other| *other == byte).map_or(bytes.len(), |found| at + found)
}

impl Delimiter {
    pub(super) fn new(separator: &[u8], max_bytes: usize, allow_truncation: bool) -> Self {
        Delimiter {
            separator: separator.to_vec(),
            fallbacks: fallbacks(separator),
            max_bytes,
            allow_truncation,
            gathered: Gathered::default(),
            matched: 0,
            carried: 0,
        }
    }

    /// Bytes that are of the frame for sure.
    fn length(&self) -> usize {
        self.gathered.length() + self.carried - self.matched
    }

    /// Of the bytes that are of the frame for sure: keeps what an earlier chunk left open, and tells how many of the chunk
    /// there are.
    fn settle(&mut self) -> usize {
        let missing = self.length() - self.gathered.kept.len();
        let carried = missing.min(self.carried);
        self.gathered.kept.extend_from_slice(&self.separator[..carried]);
        missing - carried
    }

    fn take_byte(&mut self) {
        if self.matched == 0 {
            self.gathered.at += find(&self.gathered.chunk[self.gathered.at..], self.separator[0]);
        }
        let Some(byte) = self.gathered.chunk.get(self.gathered.at) else { return };
        while self.matched > 0 && self.separator[self.matched] != *byte {
            self.matched = self.fallbacks[self.matched - 1];
        }
        self.matched += usize::from(self.separator[self.matched] == *byte);
        self.gathered.at += 1;
    }

    fn next(&mut self) -> Step<Vec<u8>> {
        while !self.gathered.is_used_up() {
            self.take_byte();
            if self.length() > self.max_bytes {
                return over(self.max_bytes);
            }
            if self.matched == self.separator.len() {
                let bytes = self.settle();
                (self.matched, self.carried) = (0, 0);
                return Step::Emit(self.gathered.frame(bytes));
            }
        }
        let bytes = self.settle();
        self.gathered.keep(bytes);
        // The rest of the chunk is the beginning of a separator.
        (self.gathered.start, self.carried) = (self.gathered.at, self.matched);
        Step::Skip
    }
}

impl Transform for Delimiter {
    type In = Vec<u8>;
    type Out = Vec<u8>;
    const SUPERVISED: bool = false;

    fn start(&mut self) -> Result<(), StreamError> {
        if !self.separator.is_empty() {
            return Ok(());
        }
        let what = "a separator needs at least one byte";
        Err(StreamError::new(IllegalArgument { operator: "framing_delimiter", what }))
    }

    fn element(&mut self, chunk: Vec<u8>) -> Step<Vec<u8>> {
        self.gathered.refill(chunk);
        self.next()
    }

    fn left_over(&mut self) -> Step<Vec<u8>> {
        self.next()
    }

    fn has_more(&mut self) -> bool {
        !self.gathered.is_used_up() || !self.gathered.kept.is_empty() || self.matched > 0
    }

    fn end(&mut self) -> Step<Vec<u8>> {
        let bytes = self.gathered.kept.len() + self.matched;
        if bytes == 0 {
            return Step::Done;
        }
        if !self.allow_truncation {
            return truncated(bytes);
        }
        if bytes > self.max_bytes {
            return fail(FramingError::TooLong { bytes: bytes as u64, limit: self.max_bytes as u64 });
        }
        self.gathered.kept.extend_from_slice(&self.separator[..self.matched]);
        Step::Last(std::mem::take(&mut self.gathered.kept))
    }
}
