//! What happens at an event: the shims between connections and the handlers of stages.
//!
//! One shim for each stage type and direction. The shim of an element-wise stage ends by jumping into the next event: the
//! arms that do so are straight-line code on purpose, since a call there costs more than the whole hop. The others return
//! the next event to the loop.
//! Invariants: the state of the connection is changed before user code runs, and is checked for closed sides at each
//! event, so an end that came meanwhile is never lost.
#![allow(unsafe_code)]
// Each arm returns by itself: that is what makes jumps of the calls.
#![allow(clippy::needless_return)]

use super::connection::*;
use super::context::Context;
use super::ports::Inlet;
use crate::stream::stage::Logic;
use crate::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};

/// Returns what the handler left to do, for the loop to go on with: the push first, so that an element runs through
/// before the next is asked for. The compiler makes a call of a jump here, whose frames cost more than the way back to
/// the loop: see ADR 16.
macro_rules! follow {
    ($context:ident) => {{
        if let Some(connection) = $context.chased_push.connection {
            $context.chased_push.connection = None;
            return Event { connection: Some(connection), run: $context.chased_push.run };
        }
        if let Some(connection) = $context.chased_pull.connection {
            $context.chased_pull.connection = None;
            return Event { connection: Some(connection), run: $context.chased_pull.run };
        }
        return Event::NONE;
    }};
}

/// # Safety
/// The inlet of the connection belongs to a living stage of type `S`, in the island of the context.
pub(crate) unsafe fn push_event<S: Logic>(connection: ConnectionRef, context: &mut Context, _: u32) -> Event {
    // SAFETY: the connection lives as long as the context.
    let header = unsafe { connection.as_ref() };
    let state = header.state.get();
    if state & (PUSHING | CLOSED) != PUSHING {
        context.process_closed(connection);
        follow!(context)
    }
    header.state.set(state ^ PUSH_END);
    context.current = header.in_owner.get();
    // SAFETY: the stage lives (its inlet is open), is of type `S` (the caller), and no other reference to it exists:
    // handlers run one at a time and nothing that a handler can call calls a stage.
    let stage = unsafe { &mut *header.in_stage.get().cast::<S>() };
    stage.on_push(context, usize::from(header.inlet.get()));
    follow!(context)
}

/// # Safety
/// The outlet of the connection belongs to a living stage of type `S`, in the island of the context.
pub(crate) unsafe fn pull_event<S: Logic>(connection: ConnectionRef, context: &mut Context, _: u32) -> Event {
    // SAFETY: the connection lives as long as the context.
    let header = unsafe { connection.as_ref() };
    let state = header.state.get();
    if state & (PULLING | CLOSED) != PULLING {
        context.process_closed(connection);
        follow!(context)
    }
    header.state.set(state ^ PULL_END);
    context.current = header.out_owner.get();
    // SAFETY: as in `push_event`.
    let stage = unsafe { &mut *header.out_stage.get().cast::<S>() };
    stage.on_pull(context, usize::from(header.outlet.get()));
    follow!(context)
}

/// An event of a connection with a closed side.
///
/// # Safety
/// The connection belongs to the island of the context.
pub(crate) unsafe fn closed_event(connection: ConnectionRef, context: &mut Context, _: u32) -> Event {
    context.process_closed(connection);
    follow!(context)
}

/// An element for a stage that handles it by a function: deliver, take, step and push in one go.
///
/// # Safety
/// The inlet of the connection belongs to a living `ElementwiseStage<E>`, in the island of the context.
pub(crate) unsafe fn elementwise_event<E: Elementwise>(
    connection: ConnectionRef,
    context: &mut Context,
    budget: u32,
) -> Event {
    // SAFETY: the connection lives as long as the context.
    let header = unsafe { connection.as_ref() };
    let state = header.state.get();
    if state & (PUSHING | CLOSED) != PUSHING {
        context.process_closed(connection);
        follow!(context)
    }
    // Delivered and taken before the function runs: if it panics, the element is its own.
    header.state.set((state & !(PUSHING | FULL)) | IN_READY);
    context.current = header.in_owner.get();
    // SAFETY: as in `push_event`; the slot was full, and the bit is cleared.
    let (stage, element) = unsafe {
        (&mut *header.in_stage.get().cast::<ElementwiseStage<E>>(), connection.cast::<Slot<E::In>>().as_ref().take())
    };
    match stage.function.step(element) {
        Step::Emit(element) => {
            let outlet = stage.outlet.slot();
            // SAFETY: ports live as long as their island.
            let out = unsafe { &outlet.as_ref().header };
            let state = out.state.get();
            if state & (PUSHING | CLOSED | FULL) != 0 {
                stage.outlet.push_implied(context, element);
                follow!(context)
            }
            // SAFETY: not full; the bit is set right after.
            unsafe { outlet.as_ref().put(element) };
            out.state.set((state & !OUT_READY) | PUSHING | FULL);
            if budget == 0 {
                return Event { connection: Some(outlet.cast()), run: out.on_push.get() };
            }
            // SAFETY: registered for this connection.
            return unsafe { (out.on_push.get())(outlet.cast(), context, budget - 1) };
        }
        Step::Skip => {
            let target = header.target.get();
            // SAFETY: targets are connections of the same island.
            let upstream = unsafe { target.as_ref() };
            let state = upstream.state.get();
            if state & (IN_READY | CLOSED | FULL) != IN_READY {
                Inlet::<E::In>::pull_again(context, connection);
                follow!(context)
            }
            if target != connection {
                header.clear(IN_READY);
            }
            upstream.state.set(state ^ PULL_START);
            if budget == 0 {
                return Event { connection: Some(target), run: upstream.on_pull.get() };
            }
            // SAFETY: registered for this connection.
            return unsafe { (upstream.on_pull.get())(target, context, budget - 1) };
        }
        other => {
            stage.end(context, other);
            follow!(context)
        }
    }
}
