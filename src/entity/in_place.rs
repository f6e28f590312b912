//! Handlers that read their message where it was received.
//!
//! Only plain `fn` handlers with a `View` do: they are over when `start` returns, so what they borrow may be the receive
//! buffer. The macro adds these functions to the method of such a message; `incoming` calls them.
//!
//! Invariants: a body is validated before its entity is looked up; nothing made here outlives the call of `start`.
#![allow(unsafe_code)]

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use super::call::Call;
use super::dispatch::{Answer, Method, Started, start};
use super::host::Host;
use super::lifecycle::Entity;
use super::message::{HandledExclusive, HandledShared, Message};
use super::slot::{SlotHeader, state_pointer};
use super::view::ReadInPlace;
use crate::wire::Wire;
use crate::wire::codec::{self, CodecError};

/// How a message is handled where it was received.
pub struct InPlaceVtable {
    pub(super) validate: fn(&[u8]) -> Result<(), CodecError>,
    /// Like [`Method::start`], of a body that was validated.
    pub(super) start: unsafe fn(&Host, NonNull<SlotHeader>, &'static Method, &[u8], Call) -> Started,
}

impl Method {
    /// The same method, whose `&mut self` handler reads its message where it was received.
    #[must_use]
    pub const fn exclusive_in_place<S, M>(mut self) -> Method
    where
        S: Entity,
        M: HandledExclusive<S> + for<'a> ReadInPlace<'a, &'a mut S>,
    {
        self.in_place = Some(&InPlaceVtable { validate: validate::<M>, start: start_exclusive_in_place::<S, M> });
        self
    }

    /// The same method, whose `&self` handler reads its message where it was received.
    #[must_use]
    pub const fn shared_in_place<S, M>(mut self) -> Method
    where
        S: Entity,
        M: HandledShared<S> + for<'a> ReadInPlace<'a, &'a S>,
    {
        self.in_place = Some(&InPlaceVtable { validate: validate::<M>, start: start_shared_in_place::<S, M> });
        self
    }
}

fn validate<M: Message>(bytes: &[u8]) -> Result<(), CodecError> {
    codec::access::<M>(bytes).map(drop)
}

unsafe fn start_exclusive_in_place<S, M>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    body: &[u8],
    call: Call,
) -> Started
where
    S: Entity,
    M: HandledExclusive<S> + for<'a> ReadInPlace<'a, &'a mut S>,
{
    // SAFETY: the body was validated as an `M`; for the state see `start_exclusive`.
    let (archived, state) = unsafe { (access_again::<M>(body), &mut *state_pointer::<S>(slot)) };
    start_in_place::<M, _>(host, slot, method, call, M::read(archived, state))
}

unsafe fn start_shared_in_place<S, M>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    body: &[u8],
    call: Call,
) -> Started
where
    S: Entity,
    M: HandledShared<S> + for<'a> ReadInPlace<'a, &'a S>,
{
    // SAFETY: the body was validated as an `M`; for the state see `start_shared`.
    let (archived, state) = unsafe { (access_again::<M>(body), &*state_pointer::<S>(slot)) };
    start_in_place::<M, _>(host, slot, method, call, M::read(archived, state))
}

/// Runs a plain handler that borrows a body. The future that stands for it is ready at its first poll, so it is gone
/// when this returns, and the borrow with it: only a pending future outlives `start`.
fn start_in_place<M: Message, H: FnOnce() -> Answer<M>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    call: Call,
    handler: Result<H, CodecError>,
) -> Started {
    match handler {
        Ok(handler) => start::<M, _>(host, slot, method, call, core::ptr::null_mut(), || AtOnce(Some(handler))),
        Err(error) => Started::Refused(error.into()),
    }
}

/// A call as a future that never waits.
struct AtOnce<H>(Option<H>);

// The call is moved out, never pinned.
impl<H> Unpin for AtOnce<H> {}

impl<T, H: FnOnce() -> T> Future for AtOnce<H> {
    type Output = T;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        match self.0.take() {
            Some(handler) => Poll::Ready(handler()),
            None => unreachable!("a future is not polled after it was ready"),
        }
    }
}

/// Borrows the value in bytes that were validated before.
///
/// # Safety
/// `bytes` are a copy of bytes that [`codec::access`] accepted for this `T`, or those bytes themselves. (An archive has no
/// alignment and only relative pointers, so a copy of a valid one is valid wherever it lies.)
#[inline]
unsafe fn access_again<T: Wire>(bytes: &[u8]) -> &T::Archived {
    // SAFETY: `access` found a valid archive whose root is at the end of these bytes; see above for copies.
    unsafe { rkyv::access_unchecked::<T::Archived>(bytes) }
}
