//! Handlers that read their message in the bytes in which it came: those with a `View`.
//!
//! A plain `fn` is over when `start` returns, so what it borrows may be the receive buffer. An `async fn` may be pending
//! then: its body is moved into a block of the core's pool first (it may lie there already, if it had to wait), and the
//! cell keeps that block until the future is gone. The macro adds these functions to the method of such a message;
//! `incoming` calls them.
//!
//! Invariants: a body is validated once, before its entity is looked up; nothing that borrows a receive buffer outlives the
//! call of `start`; a block is released after the future that borrows it was dropped, and after every function has
//! returned whose arguments borrow it.
#![allow(unsafe_code)]

use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use super::call::Call;
use super::dispatch::{Answer, Kept, Method, Started, start, start_keeping};
use super::host::Host;
use super::incoming::BodyBlock;
use super::lifecycle::Entity;
use super::message::{HandledExclusive, HandledShared, Message};
use super::slot::{SlotHeader, state_pointer};
use super::view::{ReadInBlock, ReadInPlace};
use crate::wire::Wire;
use crate::wire::codec::{self, CodecError};

/// How a message is handled as the bytes in which it came.
pub struct InPlaceVtable {
    pub(super) validate: fn(&[u8]) -> Result<(), CodecError>,
    /// Like [`Method::start`], of a body that was validated; a block is given away.
    pub(super) start: unsafe fn(&Host, NonNull<SlotHeader>, &'static Method, Place<'_>, Call) -> Started,
}

/// Where a validated body lies.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// In a receive buffer, for the call.
    Received(&'a [u8]),
    /// In a block, since it had to wait.
    Block(BodyBlock),
}

impl Place<'_> {
    /// The block, or a new one: the only copy of a body on its way to its handler.
    fn into_block(self, host: &Host) -> BodyBlock {
        match self {
            Place::Received(bytes) => BodyBlock::copied(host.pool(), 0, bytes),
            Place::Block(block) => block,
        }
    }

    /// Runs a handler that is over when it returns.
    ///
    /// # Safety
    /// The block is given away, and nothing of the body stays with `run` or its result.
    unsafe fn read<R>(self, host: &Host, run: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Place::Received(bytes) => run(bytes),
            Place::Block(block) => {
                // SAFETY: the block is released after `run` has returned.
                unsafe {
                    let result = run(block.bytes());
                    block.release(host.pool());
                    result
                }
            }
        }
    }
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

    /// The same method, whose `&mut self` handler reads its message in a block, also after an await.
    #[must_use]
    pub const fn exclusive_in_block<S, M>(mut self) -> Method
    where
        S: Entity,
        M: HandledExclusive<S> + for<'a> ReadInBlock<'a, &'a mut S>,
    {
        self.in_place = Some(&InPlaceVtable { validate: validate::<M>, start: start_exclusive_in_block::<S, M> });
        self
    }

    /// The same method, whose `&self` handler reads its message in a block, also after an await.
    #[must_use]
    pub const fn shared_in_block<S, M>(mut self) -> Method
    where
        S: Entity,
        M: HandledShared<S> + for<'a> ReadInBlock<'a, &'a S>,
    {
        self.in_place = Some(&InPlaceVtable { validate: validate::<M>, start: start_shared_in_block::<S, M> });
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
    place: Place<'_>,
    call: Call,
) -> Started
where
    S: Entity,
    M: HandledExclusive<S> + for<'a> ReadInPlace<'a, &'a mut S>,
{
    // SAFETY: the body was validated as an `M`, and its handler is over when `start_in_place` returns; for the state see
    // `start_exclusive`.
    unsafe {
        place.read(host, |body| {
            let (archived, state) = (access_again::<M>(body), &mut *state_pointer::<S>(slot));
            start_in_place::<M, _>(host, slot, method, call, M::read(archived, state))
        })
    }
}

unsafe fn start_shared_in_place<S, M>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    place: Place<'_>,
    call: Call,
) -> Started
where
    S: Entity,
    M: HandledShared<S> + for<'a> ReadInPlace<'a, &'a S>,
{
    // SAFETY: the body was validated as an `M`, and its handler is over when `start_in_place` returns; for the state see
    // `start_shared`.
    unsafe {
        place.read(host, |body| {
            let (archived, state) = (access_again::<M>(body), &*state_pointer::<S>(slot));
            start_in_place::<M, _>(host, slot, method, call, M::read(archived, state))
        })
    }
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

unsafe fn start_exclusive_in_block<S, M>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    place: Place<'_>,
    call: Call,
) -> Started
where
    S: Entity,
    M: HandledExclusive<S> + for<'a> ReadInBlock<'a, &'a mut S>,
{
    let block = place.into_block(host);
    // SAFETY: the body was validated as an `M`; the block is released below, or with the future that borrows it; for the
    // state see `start_exclusive`.
    let (archived, state) = unsafe { (access_again::<M>(block.bytes()), &mut *state_pointer::<S>(slot)) };
    let started = start_in_block::<M, _>(host, slot, method, call, block, M::read(archived, state));
    // SAFETY: nothing borrows the body any more unless the handler is pending.
    unsafe { release_if_over(host, block, started) }
}

unsafe fn start_shared_in_block<S, M>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    place: Place<'_>,
    call: Call,
) -> Started
where
    S: Entity,
    M: HandledShared<S> + for<'a> ReadInBlock<'a, &'a S>,
{
    let block = place.into_block(host);
    // SAFETY: the body was validated as an `M`; the block is released below, or with the future that borrows it; for the
    // state see `start_shared`.
    let (archived, state) = unsafe { (access_again::<M>(block.bytes()), &*state_pointer::<S>(slot)) };
    let started = start_in_block::<M, _>(host, slot, method, call, block, M::read(archived, state));
    // SAFETY: nothing borrows the body any more unless the handler is pending.
    unsafe { release_if_over(host, block, started) }
}

/// Runs a handler that may keep borrowing a block. Unless it is pending the block is still to be released.
fn start_in_block<M: Message, H: IntoFuture<Output = Answer<M>>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    call: Call,
    block: BodyBlock,
    handler: Result<H, CodecError>,
) -> Started {
    let out = core::ptr::null_mut();
    match handler {
        Ok(handler) => start_keeping::<M, _, _>(host, slot, method, call, out, block, || handler.into_future()),
        Err(error) => Started::Refused(error.into()),
    }
}

/// # Safety
/// `started` is what became of the handler of the body in this block.
unsafe fn release_if_over(host: &Host, block: BodyBlock, started: Started) -> Started {
    if !matches!(started, Started::Pending(_)) {
        // SAFETY: the handler was refused or its future is gone, and `start_keeping` left the block to its caller.
        unsafe { block.release(host.pool()) };
    }
    started
}

/// The call of an `async fn`, to be made when its future is wanted. Made by the code of `#[atoll::protocol]`.
pub struct HandlerCall<C>(C);

impl<C> HandlerCall<C> {
    /// Of what makes the future. (The bound tells the compiler that the call is made once, so that it may give its borrow
    /// of the state away.)
    #[inline(always)]
    pub fn new<F>(call: C) -> HandlerCall<C>
    where
        C: FnOnce() -> F,
    {
        HandlerCall(call)
    }
}

impl<F: Future, C: FnOnce() -> F> IntoFuture for HandlerCall<C> {
    type Output = F::Output;
    type IntoFuture = F;

    #[inline(always)]
    fn into_future(self) -> F {
        (self.0)()
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
