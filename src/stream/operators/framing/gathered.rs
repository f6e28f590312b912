//! The chunk that is being looked at, and what earlier chunks had of the same frame.

use super::FramingError;
use crate::stream::error::StreamError;
use crate::stream::stage::elementwise::Step;

#[derive(Clone, Default)]
pub(super) struct Gathered {
    /// Of the frame, from earlier chunks.
    pub(super) kept: Vec<u8>,
    pub(super) chunk: Vec<u8>,
    /// Where the frame begins, or goes on, in the chunk.
    pub(super) start: usize,
    /// What comes next in the chunk; never before `start`.
    pub(super) at: usize,
    /// Bytes that have come, with this chunk.
    received: u64,
}

impl Gathered {
    /// The next chunk. The one before is used up.
    pub(super) fn refill(&mut self, chunk: Vec<u8>) {
        debug_assert!(self.start == self.chunk.len(), "bytes would be lost");
        self.received += chunk.len() as u64;
        (self.chunk, self.start, self.at) = (chunk, 0, 0);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.at == self.chunk.len()
    }

    /// Bytes in the chunk that were not looked at.
    pub(super) fn rest(&self) -> usize {
        self.chunk.len() - self.at
    }

    /// Where `at` is in the stream.
    pub(super) fn position(&self) -> u64 {
        self.received - self.rest() as u64
    }

    /// Bytes since the beginning of the frame.
    pub(super) fn length(&self) -> usize {
        self.kept.len() + (self.at - self.start)
    }

    /// Keeps so many bytes of the frame.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.kept.extend_from_slice(&self.chunk[self.start..self.start + bytes]);
        self.start += bytes;
    }

    /// The frame: what is kept, and so many bytes. The next one begins at `at`.
    pub(super) fn frame(&mut self, bytes: usize) -> Vec<u8> {
        let frame = if !self.kept.is_empty() {
            self.keep(bytes);
            std::mem::take(&mut self.kept)
        } else if self.start == 0 && self.is_used_up() && bytes >= self.chunk.capacity() / 2 {
            // No copy, unless a small frame would hold on to a large chunk.
            self.chunk.truncate(bytes);
            self.at = 0;
            std::mem::take(&mut self.chunk)
        } else {
            self.chunk[self.start..self.start + bytes].to_vec()
        };
        self.start = self.at;
        frame
    }
}

pub(super) fn fail(error: FramingError) -> Step<Vec<u8>> {
    Step::Fail(StreamError::new(error))
}

/// More than the limit; how much more is not known.
pub(super) fn over(limit: usize) -> Step<Vec<u8>> {
    fail(FramingError::TooLong { bytes: (limit as u64).saturating_add(1), limit: limit as u64 })
}

pub(super) fn truncated(bytes: usize) -> Step<Vec<u8>> {
    fail(FramingError::Truncated { bytes: bytes as u64 })
}
