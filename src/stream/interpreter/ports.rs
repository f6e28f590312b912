//! The ports of a running stage.
//!
//! Made by the island builder only, one for each end of a connection, and kept by the stage that they belong to. What a
//! stage may do and when is the table "operations called by stages" of the reference; what it may not do ends its
//! handler with an [`IllegalUse`] that names stage and port. Invariants: a port can be used with the context of its own
//! island only, which is checked, so its connection is alive.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::connection::*;
use super::context::{Context, IslandId};
use crate::stream::error::{Cancellation, IllegalUse, StreamError};

/// Where a stage takes elements from.
pub struct Inlet<T> {
    slot: NonNull<Slot<T>>,
    island: IslandId,
    /// Ports belong to one thread.
    marker: PhantomData<*const T>,
}

/// Where a stage gives elements to.
pub struct Outlet<T> {
    slot: NonNull<Slot<T>>,
    island: IslandId,
    marker: PhantomData<*const T>,
}

#[cold]
#[inline(never)]
fn foreign() -> ! {
    panic!("a port was used with the context of another island")
}

impl<T> Inlet<T> {
    pub(crate) fn new(slot: NonNull<Slot<T>>, island: IslandId) -> Inlet<T> {
        Inlet { slot, island, marker: PhantomData }
    }

    pub(crate) fn connection(&self) -> ConnectionRef {
        self.slot.cast()
    }

    /// A second handle of the same port, for the test kit.
    pub(crate) fn duplicate(&self) -> Self {
        Self::new(self.slot, self.island)
    }

    #[inline(always)]
    fn header(&self, context: &Context) -> &Connection {
        if self.island != context.island {
            foreign();
        }
        // SAFETY: the island of the port is the one of the context, which owns the memory of the connection.
        unsafe { &self.slot.as_ref().header }
    }

    /// Takes the element that arrived.
    #[inline(always)]
    pub fn grab(&self, context: &mut Context) -> T {
        match self.try_grab(context) {
            Some(element) => element,
            None => context.illegal(context.illegal_use(self.connection(), true, GRAB_EMPTY)),
        }
    }

    /// As [`Inlet::grab`]; `None` where that would be illegal.
    #[inline(always)]
    pub fn try_grab(&self, context: &mut Context) -> Option<T> {
        let header = self.header(context);
        let state = header.state.get();
        if state & (FULL | PUSHING | IN_READY) != (FULL | IN_READY) {
            return None;
        }
        header.state.set(state & !FULL);
        // SAFETY: the slot was full, and the bit is cleared; the context of the island is alive.
        Some(unsafe { self.slot.as_ref().take() })
    }

    /// Asks for the next element. An element that was not taken is dropped.
    #[inline(always)]
    pub fn pull(&self, context: &mut Context) {
        let header = self.header(context);
        let target = header.target.get();
        let state = header.state.get();
        if state & (IN_READY | CLOSED | FULL) == IN_READY {
            if target == self.connection() {
                header.state.set(state ^ PULL_START);
                context.chase_pull(Event { connection: Some(target), run: header.on_pull.get() });
                return;
            }
            // SAFETY: targets are connections of the same island.
            let upstream = unsafe { target.as_ref() };
            let upstream_state = upstream.state.get();
            if upstream_state & (IN_READY | CLOSED | FULL) == IN_READY {
                header.state.set(state ^ IN_READY);
                upstream.state.set(upstream_state ^ PULL_START);
                context.chase_pull(Event { connection: Some(target), run: upstream.on_pull.get() });
                return;
            }
        }
        self.pull_slowly(context);
    }

    #[cold]
    #[inline(never)]
    fn pull_slowly(&self, context: &mut Context) {
        if let Err(error) = self.check_pull(context) {
            context.illegal(error);
        }
        Self::pull_again(context, self.connection());
    }

    /// Why a pull would be illegal now, if it would be.
    ///
    /// # Errors
    /// The inlet is closed, or was pulled and no element came since.
    pub fn check_pull(&self, context: &Context) -> Result<(), IllegalUse> {
        let header = self.header(context);
        if header.has(IN_CLOSED) {
            return Err(context.illegal_use(self.connection(), true, "cannot pull a closed port"));
        }
        if !header.has(IN_READY) {
            return Err(context.illegal_use(self.connection(), true, "cannot pull a port twice"));
        }
        Ok(())
    }

    /// A pull that is legal, in all its cases.
    pub(crate) fn pull_again(context: &mut Context, connection: ConnectionRef) {
        context.drop_element(connection);
        // SAFETY: connections are those of the island of the context (both callers checked or are its events).
        let header = unsafe { connection.as_ref() };
        if !header.has(IN_READY) || header.has(IN_CLOSED) {
            return;
        }
        let target = header.target.get();
        // SAFETY: targets are connections of the same island.
        let upstream = unsafe { target.as_ref() };
        header.clear(IN_READY);
        // If upstream is closed the end is on its way: the pull is absorbed.
        if header.has(OUT_CLOSED) {
            if target == connection {
                header.set(PULLING);
            }
            return;
        }
        if target != connection {
            if upstream.has(CLOSED) || !upstream.has(IN_READY) {
                return;
            }
            upstream.clear(IN_READY);
        }
        upstream.set(PULLING);
        context.chase_pull(Event { connection: Some(target), run: upstream.on_pull.get() });
    }

    /// Asks for the next element unless the inlet is closed or was pulled already.
    pub fn try_pull(&self, context: &mut Context) {
        if self.check_pull(context).is_ok() {
            self.pull(context);
        }
    }

    /// Closes the inlet: upstream is told that no more is needed.
    pub fn cancel(&self, context: &mut Context) {
        self.cancel_because(context, Cancellation::NoMoreElementsNeeded);
    }

    /// Closes the inlet and tells upstream why.
    pub fn cancel_because(&self, context: &mut Context, cause: Cancellation) {
        let _ = self.header(context);
        context.cancel_connection(self.connection(), cause);
    }

    /// Whether an element has arrived that was not taken.
    #[must_use]
    pub fn is_available(&self, context: &Context) -> bool {
        let state = self.header(context).state.get();
        state & (IN_READY | FULL | PUSHING) == (IN_READY | FULL)
    }

    /// Whether the inlet was pulled and no element came since.
    #[must_use]
    pub fn has_been_pulled(&self, context: &Context) -> bool {
        !self.header(context).has(IN_READY | IN_CLOSED)
    }

    /// Whether the inlet is closed.
    #[must_use]
    pub fn is_closed(&self, context: &Context) -> bool {
        self.header(context).has(IN_CLOSED)
    }
}

const GRAB_EMPTY: &str = "cannot take an element from an empty inlet";

impl<T> Outlet<T> {
    pub(crate) fn new(slot: NonNull<Slot<T>>, island: IslandId) -> Outlet<T> {
        Outlet { slot, island, marker: PhantomData }
    }

    pub(crate) fn connection(&self) -> ConnectionRef {
        self.slot.cast()
    }

    /// A second handle of the same port, for the test kit.
    pub(crate) fn duplicate(&self) -> Self {
        Self::new(self.slot, self.island)
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> NonNull<Slot<T>> {
        self.slot
    }

    #[inline(always)]
    fn header(&self, context: &Context) -> &Connection {
        if self.island != context.island {
            foreign();
        }
        // SAFETY: the island of the port is the one of the context, which owns the memory of the connection.
        unsafe { &self.slot.as_ref().header }
    }

    /// Gives an element to downstream, which must have asked for one. If it has cancelled meanwhile, the element is
    /// dropped.
    #[inline(always)]
    pub fn push(&self, context: &mut Context, element: T) {
        let header = self.header(context);
        let state = header.state.get();
        if state & (OUT_READY | CLOSED | FULL) == OUT_READY {
            // SAFETY: not full; the bit is set right after. The context of the island is alive.
            unsafe { self.slot.as_ref().put(element) };
            header.state.set(state ^ PUSH_START);
            context.chase_push(Event { connection: Some(self.connection()), run: header.on_push.get() });
        } else {
            self.push_slowly(context, element);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_slowly(&self, context: &mut Context, element: T) {
        if let Err(error) = self.check_push(context) {
            drop(element);
            context.illegal(error);
        }
        // Only the inlet is closed: the cancellation is on its way, the element is nobody's.
        let header = self.header(context);
        if header.has(IN_CLOSED) {
            header.state.set((header.state.get() & !OUT_READY) | PUSHING);
            drop(element);
            return;
        }
        // An element that was not taken gives way.
        context.drop_element(self.connection());
        self.push(context, element);
    }

    /// Why a push would be illegal now, if it would be.
    ///
    /// # Errors
    /// The outlet is closed, or downstream did not ask for an element.
    pub fn check_push(&self, context: &Context) -> Result<(), IllegalUse> {
        let header = self.header(context);
        if header.has(OUT_CLOSED) {
            return Err(context.illegal_use(self.connection(), false, "cannot push to a closed port"));
        }
        if !header.has(OUT_READY) {
            let what = "cannot push to a port twice, or before it was pulled";
            return Err(context.illegal_use(self.connection(), false, what));
        }
        Ok(())
    }

    /// Pushes for a stage that passes pulls on: its demand is the pull of the consumer.
    pub(crate) fn push_implied(&self, context: &mut Context, element: T) {
        let header = self.header(context);
        let state = header.state.get();
        if state & CLOSED != 0 {
            drop(element);
            return;
        }
        if state & FULL != 0 {
            context.drop_element(self.connection());
        }
        // SAFETY: not full (any more); the bit is set right after.
        unsafe { self.slot.as_ref().put(element) };
        let state = self.header(context).state.get();
        let header = self.header(context);
        header.state.set((state & !OUT_READY) | PUSHING | FULL);
        let event = Event { connection: Some(self.connection()), run: header.on_push.get() };
        context.chase_push(event);
    }

    /// Ends the outlet: downstream completes after what was pushed.
    pub fn complete(&self, context: &mut Context) {
        let _ = self.header(context);
        if !context.complete_after_emitting(self.connection()) {
            context.complete_connection(self.connection());
        }
    }

    /// Ends the outlet with a failure.
    pub fn fail(&self, context: &mut Context, error: StreamError) {
        let _ = self.header(context);
        context.overrides.forget(self.connection());
        context.fail_connection(self.connection(), error);
    }

    /// Whether downstream has asked for an element that was not pushed yet.
    #[must_use]
    pub fn is_available(&self, context: &Context) -> bool {
        self.header(context).state.get() & (OUT_READY | OUT_CLOSED) == OUT_READY
    }

    /// Whether the outlet is closed.
    #[must_use]
    pub fn is_closed(&self, context: &Context) -> bool {
        self.header(context).has(OUT_CLOSED)
    }

    /// Whether downstream had asked for an element before it cancelled: the bit stays when the outlet closes.
    pub(crate) fn had_demand(&self, context: &Context) -> bool {
        self.header(context).has(OUT_READY)
    }
}
