//! The error of a message that cannot fail.
//!
//! Used by the protocol macro wherever a message declares no error. By hand, because rkyv derives nothing for an enum
//! without variants. Invariant: bytes that claim to be a [`Never`] are malformed.

#![allow(unsafe_code)]

use core::fmt;

use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::{Fallible, Source, fail};
use rkyv::{Archive, Deserialize, Place, Portable, Serialize};

/// A value that does not exist: the declared error of a message that cannot fail.
///
/// A `match` on it needs no arms: `match never {}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Never {}

/// The archived form of [`Never`]; it does not exist either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchivedNever {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl core::error::Error for Never {}

/// Bytes that claim to be a [`Never`].
#[derive(Debug, thiserror::Error)]
#[error("an error that cannot happen was received")]
struct NeverReceived;

// SAFETY: the type has no values, so all of them have the same layout on every target and none has interior
// mutability.
unsafe impl Portable for ArchivedNever {}

// SAFETY: `check_bytes` succeeds for no pointer, so it never calls bytes valid that are not.
unsafe impl<C: Fallible<Error: Source> + ?Sized> CheckBytes<C> for ArchivedNever {
    unsafe fn check_bytes(_: *const Self, _: &mut C) -> Result<(), C::Error> {
        fail!(NeverReceived)
    }
}

impl Archive for Never {
    type Archived = ArchivedNever;
    type Resolver = Never;

    fn resolve(&self, _: Never, _: Place<ArchivedNever>) {
        match *self {}
    }
}

impl<S: Fallible + ?Sized> Serialize<S> for Never {
    fn serialize(&self, _: &mut S) -> Result<Never, S::Error> {
        match *self {}
    }
}

impl<D: Fallible + ?Sized> Deserialize<Never, D> for ArchivedNever {
    fn deserialize(&self, _: &mut D) -> Result<Never, D::Error> {
        match *self {}
    }
}
