//! JSON objects one after another, or in an array.

use super::FramingError;
use super::gathered::{Gathered, fail, over, truncated};
use crate::stream::stage::elementwise::Step;
use crate::stream::stage::transform::Transform;

pub(super) struct JsonObjects {
    max_bytes: usize,
    gathered: Gathered,
    /// Braces that are open. Every one is a byte of the object.
    depth: usize,
    is_in_array: bool,
    is_in_string: bool,
    is_escaped: bool,
}

impl JsonObjects {
    pub(super) fn new(max_bytes: usize) -> Self {
        JsonObjects {
            max_bytes,
            gathered: Gathered::default(),
            depth: 0,
            is_in_array: false,
            is_in_string: false,
            is_escaped: false,
        }
    }

    fn next(&mut self) -> Step<Vec<u8>> {
        while let Some(byte) = self.gathered.chunk.get(self.gathered.at).copied() {
            let is_within = self.depth > 0;
            if is_within {
                self.gathered.at += 1;
                self.within_object(byte);
            } else if let Err(error) = self.between_objects(byte) {
                return fail(error);
            }
            if self.gathered.length() > self.max_bytes {
                return over(self.max_bytes);
            }
            if is_within && self.depth == 0 {
                let bytes = self.gathered.at - self.gathered.start;
                return Step::Emit(self.gathered.frame(bytes));
            }
        }
        if self.depth > 0 {
            let bytes = self.gathered.at - self.gathered.start;
            self.gathered.keep(bytes);
        }
        Step::Skip
    }

    fn between_objects(&mut self, byte: u8) -> Result<(), FramingError> {
        match byte {
            b'{' => self.depth = 1,
            b'[' if !self.is_in_array => self.is_in_array = true,
            b']' if self.is_in_array => self.is_in_array = false,
            b' ' | b'\t' | b'\n' | b'\r' | b',' => {}
            _ => return Err(FramingError::NotAnObject { byte, position: self.gathered.position() }),
        }
        self.gathered.at += 1;
        // The brace belongs to the object.
        self.gathered.start = self.gathered.at - self.depth;
        Ok(())
    }

    #[inline]
    fn within_object(&mut self, byte: u8) {
        if self.is_escaped {
            self.is_escaped = false;
        } else if self.is_in_string {
            self.is_escaped = byte == b'\\';
            self.is_in_string = byte != b'"';
        } else {
            match byte {
                b'"' => self.is_in_string = true,
                b'{' => self.depth += 1,
                b'}' => self.depth -= 1,
                _ => {}
            }
        }
    }
}

impl Transform for JsonObjects {
    type In = Vec<u8>;
    type Out = Vec<u8>;
    const SUPERVISED: bool = false;

    fn element(&mut self, chunk: Vec<u8>) -> Step<Vec<u8>> {
        self.gathered.refill(chunk);
        self.next()
    }

    fn left_over(&mut self) -> Step<Vec<u8>> {
        self.next()
    }

    fn has_more(&mut self) -> bool {
        !self.gathered.is_used_up() || self.depth > 0 || self.is_in_array
    }

    fn end(&mut self) -> Step<Vec<u8>> {
        if self.depth > 0 || self.is_in_array { truncated(self.gathered.kept.len()) } else { Step::Done }
    }
}
