//! Values to bytes and back: straight into the send buffer, and never read before they were checked.
//!
//! Called by whatever sends or receives a body. A body is one archived value whose root is at its end; it holds
//! relative pointers only and has no alignment, so it may follow a header of any length and lie anywhere in memory.
//! Invariants: bytes are validated once, the proof is [`Checked`]; a failed [`encode`] leaves the buffer as it was;
//! nothing here allocates per call except what the decoded value itself needs (`tests/wire_allocations.rs`).

use core::fmt;

use rkyv::api::{low, serialize_using};
use rkyv::rancor::{Failure, Strategy};
use rkyv::ser::{Positional, Serializer, Writer};
use rkyv::util::with_arena;

use super::schema::Wire;
use crate::base::ClusterError;

/// Largest body, whatever the caller's limit: what 32-bit relative pointers and the lengths of strings can express.
pub const BODY_BYTES_MAX: usize = (1 << 30) - 1;

/// Why a value could not be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The encoded value would be longer than allowed.
    #[error("the value takes more than {limit} bytes; send less at once or raise the limit")]
    TooLarge {
        /// The most bytes that it may take.
        limit: usize,
    },
    /// The bytes are no valid value of the expected type.
    #[error("the bytes are no valid value of the expected type; both sides need the same definition of it")]
    Malformed,
}

impl From<CodecError> for ClusterError {
    fn from(error: CodecError) -> ClusterError {
        match error {
            CodecError::TooLarge { .. } => ClusterError::PayloadTooLarge,
            CodecError::Malformed => ClusterError::Serialization,
        }
    }
}

/// Appends to a buffer, up to a length. Part of [`Encoder`](super::schema::Encoder).
#[derive(Debug)]
pub struct BodyWriter<'a> {
    out: &'a mut Vec<u8>,
    length_max: usize,
}

impl Positional for BodyWriter<'_> {
    #[inline]
    fn pos(&self) -> usize {
        self.out.len()
    }
}

impl Writer<Failure> for BodyWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() > self.length_max - self.out.len() {
            return Err(Failure);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

/// Evaluates the checks in a type's constants at compile time, and that its archive has no alignment.
const fn fit_for_the_wire<T: Wire>() {
    assert!(align_of::<T::Archived>() == 1, "an archived type must have no alignment; derive it with `atoll::Wire`");
    let _ = T::SCHEMA;
}

/// Appends the archive of `value` to `out`, which may already hold a header or other bodies.
///
/// # Errors
/// [`CodecError::TooLarge`] if it takes more than `limit` bytes (or [`BODY_BYTES_MAX`]); `out` is then as before.
#[inline]
pub fn encode<T: Wire>(value: &T, out: &mut Vec<u8>, limit: usize) -> Result<(), CodecError> {
    const { fit_for_the_wire::<T>() };
    let start = out.len();
    let length_max = start.saturating_add(limit.min(BODY_BYTES_MAX));
    let written = with_arena(|arena| {
        let writer = BodyWriter { out: &mut *out, length_max };
        let mut encoder = Serializer::new(writer, arena.acquire(), ());
        serialize_using(value, Strategy::<_, Failure>::wrap(&mut encoder))
    });
    match written {
        Ok(_) => Ok(()),
        Err(Failure) => {
            out.truncate(start);
            Err(CodecError::TooLarge { limit: limit.min(BODY_BYTES_MAX) })
        }
    }
}

/// Validates `bytes`, which must be exactly one body, and borrows the value in them.
///
/// # Errors
/// [`CodecError::Malformed`] if they are no valid `T`. Bytes of another type may be valid by chance: compare
/// [`Wire::SCHEMA`] first.
#[inline]
pub fn access<T: Wire>(bytes: &[u8]) -> Result<&T::Archived, CodecError> {
    const { fit_for_the_wire::<T>() };
    low::access::<T::Archived, Failure>(bytes).map_err(|Failure| CodecError::Malformed)
}

/// Validates `bytes`, which must be exactly one body, and makes an owned value of them.
///
/// # Errors
/// [`CodecError::Malformed`] if they are no valid `T`.
#[inline]
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, CodecError> {
    owned(access::<T>(bytes)?)
}

/// Makes an owned value of one that was validated.
///
/// # Errors
/// As [`Checked::to_owned`].
#[inline]
pub(crate) fn owned<T: Wire>(archived: &T::Archived) -> Result<T, CodecError> {
    low::deserialize::<T, Failure>(archived).map_err(|Failure| CodecError::Malformed)
}

/// Bytes that were validated as a `T`: the proof that makes a second validation superfluous.
pub struct Checked<'a, T: Wire> {
    bytes: &'a [u8],
    archived: &'a T::Archived,
}

impl<'a, T: Wire> Checked<'a, T> {
    /// Validates `bytes`, which must be exactly one body.
    ///
    /// # Errors
    /// [`CodecError::Malformed`] if they are no valid `T`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Checked<'a, T>, CodecError> {
        Ok(Checked { bytes, archived: access::<T>(bytes)? })
    }

    /// The value, borrowed from the bytes.
    #[inline]
    #[must_use]
    pub fn get(self) -> &'a T::Archived {
        self.archived
    }

    /// The validated bytes, for passing them on.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Makes an owned value.
    ///
    /// # Errors
    /// Never for the types of this crate and derived ones. [`CodecError::Malformed`] if a hand-written implementation
    /// of rkyv's `Deserialize` refuses the value.
    #[inline]
    pub fn to_owned(self) -> Result<T, CodecError> {
        owned(self.archived)
    }
}

impl<T: Wire> Clone for Checked<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Wire> Copy for Checked<'_, T> {}

impl<T: Wire<Archived: fmt::Debug>> fmt::Debug for Checked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.archived.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::never::Never;

    fn bytes_of<T: Wire>(value: &T) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, &mut out, 1 << 20).unwrap();
        out
    }

    fn travels<T: Wire + PartialEq + core::fmt::Debug>(value: T) {
        for prefix in 0..9 {
            let mut out = vec![0xaa; prefix];
            encode(&value, &mut out, 1 << 20).unwrap();
            assert!(out[..prefix].iter().all(|byte| *byte == 0xaa));
            assert_eq!(decode::<T>(&out[prefix..]).as_ref(), Ok(&value));
            let checked = Checked::<T>::new(&out[prefix..]).unwrap();
            assert_eq!(checked.to_owned().as_ref(), Ok(&value));
            assert_eq!(checked.bytes(), &out[prefix..]);
        }
    }

    #[test]
    fn values_travel_behind_any_prefix() {
        travels(());
        travels((1_u8, -2_i16, 3_u32, -4_i64, 5_u128, 6.5_f32, 7.5_f64, true));
        travels(('ü', i128::MIN, u64::MAX));
        travels(String::new());
        travels("short".to_string());
        travels("a text that is too long to be kept in place".to_string());
        travels(vec!["a".to_string(), "a text that is too long to be kept in place".to_string()]);
        travels(Some(vec![Some(1_u32), None]));
        travels(Box::new([1_u64, 2, 3]));
        travels(Duration::new(5, 999_999_999));
        travels(Result::<u32, String>::Err("no".to_string()));
        travels(Result::<u32, Never>::Ok(7));
        travels(vec![vec![vec![1_u8], vec![]], vec![]]);
    }

    #[test]
    fn a_value_that_is_too_large_leaves_the_buffer_alone() {
        let value = vec!["0123456789".repeat(10); 10];
        let exact = bytes_of(&value).len();
        for limit in 0..exact {
            let mut out = b"head".to_vec();
            assert_eq!(encode(&value, &mut out, limit), Err(CodecError::TooLarge { limit }));
            assert_eq!(out, b"head");
        }
        let mut out = b"head".to_vec();
        assert_eq!(encode(&value, &mut out, exact), Ok(()));
        assert_eq!(out.len(), 4 + exact);
    }

    #[test]
    fn two_bodies_in_one_buffer_are_independent() {
        let mut out = Vec::new();
        encode(&vec!["first".repeat(5)], &mut out, 1000).unwrap();
        let middle = out.len();
        encode(&vec!["second".repeat(5)], &mut out, 1000).unwrap();
        assert_eq!(decode::<Vec<String>>(&out[..middle]), Ok(vec!["first".repeat(5)]));
        assert_eq!(decode::<Vec<String>>(&out[middle..]), Ok(vec!["second".repeat(5)]));
    }

    #[test]
    fn an_error_that_cannot_happen_is_malformed() {
        let mut bytes = bytes_of(&Result::<u32, Never>::Ok(7));
        assert_eq!(bytes[0], 0);
        bytes[0] = 1;
        assert_eq!(decode::<Result<u32, Never>>(&bytes), Err(CodecError::Malformed));
    }

    #[test]
    fn a_duration_with_too_many_nanoseconds_is_malformed() {
        let mut bytes = bytes_of(&Duration::new(1, 1));
        bytes[8..12].copy_from_slice(&1_000_000_000_u32.to_le_bytes());
        assert_eq!(decode::<Duration>(&bytes), Err(CodecError::Malformed));
    }

    #[test]
    fn too_few_bytes_are_malformed() {
        let bytes = bytes_of(&vec!["a text that is too long to be kept in place".to_string()]);
        for length in 0..bytes.len() {
            assert_eq!(decode::<u128>(&bytes[..length.min(15)]), Err(CodecError::Malformed));
        }
        assert_eq!(decode::<Vec<u64>>(&[]), Err(CodecError::Malformed));
    }

    #[test]
    fn a_lying_length_is_malformed() {
        let mut bytes = bytes_of(&vec![1_u64, 2, 3]);
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode::<Vec<u64>>(&bytes), Err(CodecError::Malformed));
    }
}
