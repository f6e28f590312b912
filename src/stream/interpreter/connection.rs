//! A connection: the state of one wire between an outlet and an inlet, and the slot that its element lies in.
//!
//! Used by ports, by the events and by the context, which change `state` by the rules of the reference ("port state
//! bits"). The header is one cache line; behind it lies the element, whose type only the ports and the vtable know.
//! Invariants: `FULL` is set exactly while the slot holds an element; a connection lies in the event queue at most once;
//! `target` is the connection whose outlet answers a pull: the connection itself, or the furthest one upstream that is
//! reached through stages that pass a pull on.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::context::Context;

/// The inlet may pull.
pub(crate) const IN_READY: u32 = 1;
/// A pull is on its way.
pub(crate) const PULLING: u32 = 2;
/// A push is on its way.
pub(crate) const PUSHING: u32 = 4;
/// The outlet may push.
pub(crate) const OUT_READY: u32 = 8;
/// The inlet is closed.
pub(crate) const IN_CLOSED: u32 = 16;
/// The outlet is closed.
pub(crate) const OUT_CLOSED: u32 = 32;
/// The outlet was closed by a failure.
pub(crate) const IN_FAILED: u32 = 64;
/// The slot holds an element.
pub(crate) const FULL: u32 = 128;
/// The stage behind the outlet passes pulls on: its demand is implied by the pull of the consumer.
pub(crate) const IMPLIED: u32 = 256;
pub(crate) const CLOSED: u32 = IN_CLOSED | OUT_CLOSED;
pub(crate) const PULL_START: u32 = IN_READY | PULLING;
pub(crate) const PULL_END: u32 = PULLING | OUT_READY;
pub(crate) const PUSH_START: u32 = PUSHING | OUT_READY | FULL;
pub(crate) const PUSH_END: u32 = PUSHING | IN_READY;

/// No stage: the owner of a port that is not connected yet.
pub(crate) const NO_STAGE: u32 = u32::MAX;

pub(crate) type ConnectionRef = NonNull<Connection>;

/// What an event does: the shim of a stage type, or the slow path for closed connections. It returns the next event, so
/// that a chain of events is a chain of jumps and not of returns; the number is how many more it may jump to by itself.
pub(crate) type EventFunction = unsafe fn(ConnectionRef, &mut Context, u32) -> Event;

/// The next thing to do: nothing, or a function for a connection.
#[derive(Clone, Copy)]
#[must_use = "an event that is dropped is lost"]
pub(crate) struct Event {
    pub connection: Option<ConnectionRef>,
    pub run: EventFunction,
}

impl Event {
    pub const NONE: Event = Event { connection: None, run: nothing };

    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.connection.is_none()
    }
}

unsafe fn nothing(_: ConnectionRef, _: &mut Context, _: u32) -> Event {
    Event::NONE
}

/// What every connection has, whatever its elements are.
#[repr(C, align(64))]
pub(crate) struct Connection {
    pub state: Cell<u32>,
    /// Position of the inlet in its stage.
    pub inlet: Cell<u16>,
    /// Position of the outlet in its stage.
    pub outlet: Cell<u16>,
    pub on_push: Cell<EventFunction>,
    /// The stage of the inlet.
    pub in_stage: Cell<*mut ()>,
    pub on_pull: Cell<EventFunction>,
    /// The stage of the outlet.
    pub out_stage: Cell<*mut ()>,
    pub target: Cell<ConnectionRef>,
    pub in_owner: Cell<u32>,
    pub out_owner: Cell<u32>,
    pub index: u32,
}

const _: () = assert!(size_of::<Connection>() == 64);

impl Connection {
    pub fn new(index: u32) -> Connection {
        Connection {
            state: Cell::new(IN_READY),
            inlet: Cell::new(0),
            outlet: Cell::new(0),
            on_push: Cell::new(nothing),
            in_stage: Cell::new(std::ptr::null_mut()),
            on_pull: Cell::new(nothing),
            out_stage: Cell::new(std::ptr::null_mut()),
            target: Cell::new(NonNull::dangling()),
            in_owner: Cell::new(NO_STAGE),
            out_owner: Cell::new(NO_STAGE),
            index,
        }
    }

    #[inline(always)]
    pub fn has(&self, bits: u32) -> bool {
        self.state.get() & bits != 0
    }

    #[inline(always)]
    pub fn set(&self, bits: u32) {
        self.state.set(self.state.get() | bits);
    }

    #[inline(always)]
    pub fn clear(&self, bits: u32) {
        self.state.set(self.state.get() & !bits);
    }
}

/// A connection with the place for its element. The header comes first, so a pointer to it is a pointer to the slot.
#[repr(C)]
pub(crate) struct Slot<T> {
    pub header: Connection,
    element: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Slot<T> {
    pub fn new(index: u32) -> Slot<T> {
        Slot { header: Connection::new(index), element: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Moves the element out.
    ///
    /// # Safety
    /// `FULL` was set, and the caller cleared it.
    #[inline(always)]
    pub unsafe fn take(&self) -> T {
        // SAFETY: the slot held an element (the caller says so). No reference to the inside of the cell exists beyond
        // these methods, and a slot belongs to one thread.
        unsafe { (*self.element.get()).assume_init_read() }
    }

    /// Moves an element in.
    ///
    /// # Safety
    /// `FULL` was not set; the caller sets it.
    #[inline(always)]
    pub unsafe fn put(&self, element: T) {
        // SAFETY: as in `take`; what lay here was moved out before, so nothing is overwritten that needs dropping.
        unsafe { (*self.element.get()).write(element) };
    }
}

/// What can be done with an element whose type is not known.
pub(crate) struct ElementType {
    pub id: fn() -> TypeId,
    pub name: fn() -> &'static str,
    /// Drops the element of a slot whose `FULL` bit was set and is cleared by the caller.
    pub drop_element: unsafe fn(ConnectionRef),
}

pub(crate) trait HasElementType {
    const TYPE: ElementType;
}

impl<T: 'static> HasElementType for T {
    const TYPE: ElementType =
        ElementType { id: TypeId::of::<T>, name: std::any::type_name::<T>, drop_element: drop_element::<T> };
}

/// # Safety
/// The connection is the header of a living `Slot<T>` whose `FULL` bit was set and is cleared now.
unsafe fn drop_element<T>(connection: ConnectionRef) {
    // SAFETY: by the contract above.
    drop(unsafe { connection.cast::<Slot<T>>().as_ref().take() });
}
