//! The forms in which a message comes to its entity: as a value, as a body in a receive buffer, or as a body in a block.
//!
//! `hosting` delivers all the same way; what differs is here. Only messages whose handler takes a `View` come as a body
//! ([`Method::in_place`]); all others are decoded before. A body is moved into a [`BodyBlock`] at most once: when it has
//! to wait, or when its handler may be pending.
//!
//! Invariants: a message is consumed exactly once, by [`Startable::start`], [`Incoming::wait`] or [`Incoming::discard`];
//! a [`Body`] was validated by the method that it is started with.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::any::Any;
use core::ptr::{NonNull, null_mut};

use super::call::Call;
use super::dispatch::{Kept, Method, Started};
use super::host::Host;
use super::in_place::{InPlaceVtable, Place};
use super::mailbox::Waiting;
use super::pool::BlockPool;
use super::slot::SlotHeader;
use crate::wire::codec::CodecError;

/// A message whose turn has come.
///
/// # Safety of all methods
/// The message is initialised (or a body that was validated) and of the method's type.
pub(super) trait Startable {
    /// Starts its handler. The answer goes to `out` if that is not null, which it may be only for a value.
    ///
    /// # Safety
    /// See the trait, and [`Method::start`](Method).
    unsafe fn start(
        self,
        host: &Host,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        call: Call,
        out: *mut (),
    ) -> Started;
}

/// A message on its way into an entity.
///
/// # Safety of all methods
/// As for [`Startable`].
pub(super) trait Incoming: Startable + Copy {
    /// Drops it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn discard(self, method: &'static Method);

    /// Whether the rule lets it start an entity. Consumes nothing.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn may_load(self, method: &'static Method, rule: &dyn Any) -> bool;

    /// Moves it into a block, to wait there.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn wait(
        self,
        pool: &BlockPool,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        sequence: u32,
        call: Call,
    ) -> NonNull<Waiting>;
}

/// A message as a value.
#[derive(Clone, Copy)]
pub(super) struct Value(pub *mut ());

impl Startable for Value {
    #[inline(always)]
    unsafe fn start(
        self,
        host: &Host,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        call: Call,
        out: *mut (),
    ) -> Started {
        // SAFETY: passed on.
        unsafe { (method.start)(host, slot, method, self.0, call, out) }
    }
}

impl Incoming for Value {
    #[inline(always)]
    unsafe fn discard(self, method: &'static Method) {
        // SAFETY: passed on.
        unsafe { (method.message.drop)(self.0) };
    }

    unsafe fn may_load(self, method: &'static Method, rule: &dyn Any) -> bool {
        // SAFETY: passed on.
        unsafe { (method.may_load)(rule, self.0) }
    }

    unsafe fn wait(
        self,
        pool: &BlockPool,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        sequence: u32,
        call: Call,
    ) -> NonNull<Waiting> {
        // SAFETY: passed on.
        unsafe { Waiting::new(pool, slot, method, sequence, call, self.0) }
    }
}

/// A message as a validated body of the method's message type, where it was received.
#[derive(Clone, Copy)]
pub(super) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// Validates the body of a message whose method this is.
    ///
    /// # Errors
    /// If it is none of that type.
    pub fn validated(in_place: &'static InPlaceVtable, bytes: &'a [u8]) -> Result<Body<'a>, CodecError> {
        (in_place.validate)(bytes)?;
        Ok(Body(bytes))
    }
}

impl Startable for Body<'_> {
    unsafe fn start(
        self,
        host: &Host,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        call: Call,
        out: *mut (),
    ) -> Started {
        debug_assert!(out.is_null());
        let Some(in_place) = method.in_place else { unreachable!("only such methods get bodies") };
        // SAFETY: passed on.
        unsafe { (in_place.start)(host, slot, method, Place::Received(self.0), call) }
    }
}

impl Incoming for Body<'_> {
    unsafe fn discard(self, _: &'static Method) {}

    /// A rule matches values, so one is made for it; this is the start of an entity, which costs more anyway.
    unsafe fn may_load(self, method: &'static Method, rule: &dyn Any) -> bool {
        let mut may_load = true;
        // If it cannot be decoded its handler says so.
        let _ = method.decode_message(self.0, &mut |message| {
            // SAFETY: the message was just decoded as the method's type and is dropped here.
            unsafe {
                may_load = (method.may_load)(rule, message);
                (method.message.drop)(message);
            }
        });
        may_load
    }

    unsafe fn wait(
        self,
        pool: &BlockPool,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        sequence: u32,
        call: Call,
    ) -> NonNull<Waiting> {
        // SAFETY: passed on.
        unsafe { Waiting::with_body(pool, slot, method, sequence, call, self.0) }
    }
}

/// A validated body in a block of the core's pool; something else may lie before it. Whoever has the last copy of this
/// releases it.
#[derive(Clone, Copy)]
pub(super) struct BodyBlock {
    block: NonNull<u8>,
    offset: u32,
    length: u32,
}

impl BodyBlock {
    /// Alignment of the block; the body needs none.
    pub const ALIGN: usize = 16;

    /// Copies a body into a new block, behind room for `offset` bytes.
    pub fn copied(pool: &BlockPool, offset: usize, body: &[u8]) -> BodyBlock {
        let block = pool.take(BodyBlock::layout(offset, body.len()));
        // SAFETY: the block has room for the body behind the offset, and is new.
        unsafe {
            core::ptr::copy_nonoverlapping(body.as_ptr(), block.as_ptr().add(offset), body.len());
            BodyBlock::at(block, offset, body.len())
        }
    }

    /// One that was made by [`BodyBlock::copied`].
    ///
    /// # Safety
    /// It was made so with these numbers, and is not released yet.
    pub unsafe fn at(block: NonNull<u8>, offset: usize, length: usize) -> BodyBlock {
        // A body is shorter than `BODY_BYTES_MAX`, and what lies before it is a header.
        BodyBlock { block, offset: offset as u32, length: length as u32 }
    }

    fn layout(offset: usize, length: usize) -> Layout {
        Layout::from_size_align(offset + length, BodyBlock::ALIGN)
            .unwrap_or_else(|_| unreachable!("a body is larger than memory"))
    }

    /// Where the block starts.
    pub fn start(self) -> NonNull<u8> {
        self.block
    }

    /// The body.
    ///
    /// # Safety
    /// The block is not released during `'a`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: so many bytes were copied there, and nothing changes them before the block is released.
        unsafe { core::slice::from_raw_parts(self.block.as_ptr().add(self.offset as usize), self.length as usize) }
    }
}

impl Kept for BodyBlock {
    unsafe fn release(self, pool: &BlockPool) {
        // SAFETY: the block was taken with this layout, and the caller gives up the only use of it. What lies in it needs
        // no drop.
        unsafe { pool.give(self.block, BodyBlock::layout(self.offset as usize, self.length as usize)) };
    }
}

/// A message that waited as a body: its handler takes over the block.
impl Startable for BodyBlock {
    unsafe fn start(
        self,
        host: &Host,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        call: Call,
        out: *mut (),
    ) -> Started {
        debug_assert!(out.is_null());
        let Some(in_place) = method.in_place else { unreachable!("only such methods get bodies") };
        // SAFETY: passed on; the block is given away.
        unsafe { (in_place.start)(host, slot, method, Place::Block(self), call) }
    }
}

/// Calls one of the two with a message that waited, by its form, and releases its block or leaves that to `body`.
///
/// # Safety
/// `waiting` is in no queue and not used again; its message is there, and is consumed.
pub(super) unsafe fn with_waiting<R>(
    waiting: NonNull<Waiting>,
    pool: &BlockPool,
    value: impl FnOnce(Value) -> R,
    body: impl FnOnce(BodyBlock) -> R,
) -> R {
    // SAFETY: the block is ours until it is released or given away.
    unsafe {
        match Waiting::body(waiting) {
            Some(block) => body(block),
            None => {
                let result = value(Value(Waiting::value(waiting)));
                Waiting::release(waiting, pool);
                result
            }
        }
    }
}

/// No place for an answer.
pub(super) const NO_OUT: *mut () = null_mut();
