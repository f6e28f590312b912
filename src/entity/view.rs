//! An argument that its handler reads where it lies.
//!
//! A method asks for it with `View<'_, T>` instead of `T`; its sender gives a `T` as ever. From the same process the
//! view borrows the value that was sent. From a link it borrows the value as it travelled, validated once and never
//! decoded: a plain `fn` that starts at once borrows the received bytes themselves; a message that must wait, or whose
//! handler is an `async fn`, is moved once into a block of the core, and the view borrows from there until the handler
//! ends. Called by the code that `#[atoll::protocol]` makes.
//!
//! Invariant: a view lives no longer than its handler; the compiler sees to it, since the handler is called for every
//! lifetime.

use core::future::IntoFuture;

use rkyv::string::ArchivedString;
use rkyv::vec::ArchivedVec;

use super::dispatch::Answer;
use super::message::Message;
use crate::wire::Wire;
use crate::wire::codec::{self, CodecError};

/// An argument borrowed for the time of its handler, over its awaits too: `fn scan(&mut self, body: View<'_, Blob>) -> u64`.
///
/// The sender gives a `T` and need not know. What is copied on the way:
///
/// | from | handler | what the view borrows | copies |
/// |---|---|---|---|
/// | the same core, another core of the pod | any | the value that the sender gave, moved as any message | none |
/// | a link | plain `fn`, starts at once | the receive buffer | none |
/// | a link | plain `fn`, had to wait | the body in a block of the core | the body, once |
/// | a link | `async fn` | the body in a block of the core | the body, once, waiting or not |
///
/// A block comes from the core's pool (up to 8 KiB; a larger one is allocated) and goes back when the handler has ended in
/// any way: answered, interrupted, panicked, or stopped with its entity. A body is validated once, when its frame
/// arrives. Arguments of the same message without a `View` are decoded one by one when the handler starts.
///
/// A call in JSON and a type with an interceptor, which is shown the message as a value, decode the message; so does a
/// rule of [`EntityOptions::load_entity`](crate::EntityOptions::load_entity) when it is asked. The view then borrows the
/// owned value. Handlers read both forms through [`View::get`], or through `as_bytes` and `as_str`.
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

/// A message whose `async fn` handler can read it in a block of the core. `State` is `&mut S` or `&S`.
pub trait ReadInBlock<'a, State>: Message {
    /// Decodes the arguments that the handler wants owned; what comes back makes the handler's future.
    ///
    /// # Errors
    /// If such an argument cannot be decoded.
    fn read(archived: &'a Self::Archived, state: State) -> Result<impl IntoFuture<Output = Answer<Self>>, CodecError>;
}
