//! The two forms in which a message comes to its entity: as a value, or as the body of a frame.
//!
//! `hosting` delivers both the same way; what differs is here. Only messages whose method reads in place come as a
//! body ([`Method::in_place`]); all others are decoded before. Invariant: an incoming message is consumed exactly once,
//! by [`Incoming::start`], [`Incoming::wait`] or [`Incoming::discard`].
#![allow(unsafe_code)]

use core::any::Any;
use core::ptr::{NonNull, null_mut};

use super::call::Call;
use super::dispatch::{Method, Started};
use super::host::Host;
use super::mailbox::Waiting;
use super::pool::BlockPool;
use super::slot::SlotHeader;

/// A message on its way into an entity.
///
/// # Safety of all methods
/// The message is initialised (or a body that was validated) and of the method's type.
pub(super) trait Incoming: Copy {
    /// Drops it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn discard(self, method: &'static Method);

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

impl Incoming for Value {
    #[inline(always)]
    unsafe fn discard(self, method: &'static Method) {
        // SAFETY: passed on.
        unsafe { (method.message.drop)(self.0) };
    }

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

/// A message as a validated body of the method's message type.
#[derive(Clone, Copy)]
pub(super) struct Body<'a>(pub &'a [u8]);

impl Incoming for Body<'_> {
    unsafe fn discard(self, _: &'static Method) {}

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
        unsafe { (in_place.start)(host, slot, method, self.0, call) }
    }

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

/// Calls one of the two with a message that waited, by its form.
///
/// # Safety
/// `waiting` is in no queue and stays until this returns; its message is there, and is consumed.
pub(super) unsafe fn with_waiting<R>(
    waiting: NonNull<Waiting>,
    value: impl FnOnce(Value) -> R,
    body: impl FnOnce(Body<'_>) -> R,
) -> R {
    // SAFETY: the block is ours until it is released, which is after this.
    unsafe {
        match Waiting::body(waiting) {
            Some(bytes) => body(Body(bytes)),
            None => value(Value(Waiting::payload(waiting))),
        }
    }
}

/// No place for an answer.
pub(super) const NO_OUT: *mut () = null_mut();
