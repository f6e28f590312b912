//! An argument that its handler reads where it lies.
//!
//! A method asks for it with `View<'_, T>` instead of `T`; its sender gives a `T` as ever. From the same process the
//! view borrows the value that was sent. From a link, a plain `fn` handler borrows the received bytes themselves:
//! nothing is copied if it starts at once; if it must wait, the body is moved once into a block of the core and read
//! there. Called by the code that `#[atoll::protocol]` makes.
//!
//! Invariant: a view lives no longer than the call of its handler; the compiler sees to it, since the handler is called
//! for every lifetime.

use rkyv::string::ArchivedString;
use rkyv::vec::ArchivedVec;

use super::dispatch::Answer;
use super::message::Message;
use crate::wire::Wire;
use crate::wire::codec::{self, CodecError};

/// An argument borrowed for the call of its handler: `fn scan(&mut self, body: View<'_, Blob>) -> u64`.
///
/// In a plain `fn` it may lie in the receive buffer. In an `async fn`, in a call in JSON and for a type with an
/// interceptor it is always the owned value, which was decoded if it came over a link.
pub struct View<'a, T: Wire>(ViewOf<'a, T>);

/// What a [`View`] borrows.
pub enum ViewOf<'a, T: Wire> {
    /// The value as its sender gave it.
    Owned(&'a T),
    /// The value as it travelled, validated.
    Archived(&'a T::Archived),
}

impl<T: Wire> Clone for ViewOf<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Wire> Copy for ViewOf<'_, T> {}

impl<T: Wire> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Wire> Copy for View<'_, T> {}

impl<T: Wire> core::fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self.0 {
            ViewOf::Owned(_) => "View(owned)",
            ViewOf::Archived(_) => "View(archived)",
        })
    }
}

impl<'a, T: Wire> View<'a, T> {
    /// A view of a value; for calling a handler in a test, without a pod.
    #[inline]
    pub fn owned(value: &'a T) -> View<'a, T> {
        View(ViewOf::Owned(value))
    }

    /// A view of a value as it travels.
    #[inline]
    pub fn archived(value: &'a T::Archived) -> View<'a, T> {
        View(ViewOf::Archived(value))
    }

    /// What there is to read.
    #[inline]
    #[must_use]
    pub fn get(self) -> ViewOf<'a, T> {
        self.0
    }

    /// Makes a value of its own, to be kept.
    ///
    /// # Errors
    /// Never for the types of this crate and derived ones; [`CodecError::Malformed`] if a hand-written implementation
    /// of rkyv's `Deserialize` refuses what came over a link.
    pub fn to_owned(self) -> Result<T, CodecError>
    where
        T: Clone,
    {
        match self.0 {
            ViewOf::Owned(value) => Ok(value.clone()),
            ViewOf::Archived(value) => codec::owned(value),
        }
    }
}

impl<'a> View<'a, Vec<u8>> {
    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        match self.0 {
            ViewOf::Owned(value) => value,
            ViewOf::Archived(value) => ArchivedVec::as_slice(value),
        }
    }
}

impl<'a> View<'a, String> {
    /// The text.
    #[inline]
    #[must_use]
    pub fn as_str(self) -> &'a str {
        match self.0 {
            ViewOf::Owned(value) => value,
            ViewOf::Archived(value) => ArchivedString::as_str(value),
        }
    }
}

/// A message whose plain `fn` handler can read it where it was received. `State` is `&mut S` or `&S`.
pub trait ReadInPlace<'a, State>: Message {
    /// Decodes the arguments that the handler wants owned; what comes back runs the handler.
    ///
    /// # Errors
    /// If such an argument cannot be decoded.
    fn read(archived: &'a Self::Archived, state: State) -> Result<impl FnOnce() -> Answer<Self>, CodecError>;
}
