//! Ports whose events go elsewhere for a while: `emit` on outlets, `read` on inlets.
//!
//! A stage that wants to push before it was asked, or several elements at once, leaves them here: the pulls of that
//! outlet are answered from the queue until it is empty, and then go to the stage again. Reading is the same for inlets.
//! Functions that were given along run when the handler that caused them has returned. Invariants: a connection has at
//! most one emitting and one reading override; ending either gives the events back to the stage.
#![allow(unsafe_code)]

use std::any::{Any, TypeId};
use std::collections::VecDeque;

use super::connection::*;
use super::context::{Context, StageEntry};
use super::ports::{Inlet, Outlet};
use crate::stream::stage::Logic;

type Then = Box<dyn FnOnce(&mut dyn Logic, &mut Context)>;
type ThenWith<T> = Box<dyn FnOnce(&mut dyn Logic, &mut Context, Vec<T>)>;

enum Emission<T> {
    One(T),
    Many(Box<dyn Iterator<Item = T>>),
    Then(Then),
}

struct Emitting<T> {
    queue: VecDeque<Emission<T>>,
}

struct Reading<T> {
    wanted: usize,
    read: Vec<T>,
    on_read: ThenWith<T>,
    on_close: ThenWith<T>,
}

struct Override {
    connection: ConnectionRef,
    saved: EventFunction,
    is_inlet: bool,
    /// Complete the outlet when everything is emitted.
    completes: bool,
    /// An `Emitting<T>` or a `Reading<T>`.
    what: Box<dyn Any>,
    /// For a reading one: how the end is told, and how an element is taken.
    close: fn(Box<dyn Any>, &mut Context, u32),
    element: fn(ConnectionRef, &mut Context),
}

#[derive(Default)]
pub(crate) struct Overrides {
    entries: Vec<Override>,
    /// Functions to run when the present handler has returned.
    deferred: VecDeque<(u32, Then)>,
}

impl Overrides {
    fn position(&self, connection: ConnectionRef, is_inlet: bool) -> Option<usize> {
        self.entries.iter().position(|entry| entry.connection == connection && entry.is_inlet == is_inlet)
    }

    fn remove(&mut self, connection: ConnectionRef, is_inlet: bool) -> Option<Override> {
        let at = self.position(connection, is_inlet)?;
        let entry = self.entries.swap_remove(at);
        // SAFETY: overrides are removed before the island ends, so the connection is alive.
        let header = unsafe { connection.as_ref() };
        match is_inlet {
            true => header.on_push.set(entry.saved),
            false => header.on_pull.set(entry.saved),
        }
        Some(entry)
    }

    /// Stops emitting on an outlet; what was not emitted is dropped.
    pub fn forget(&mut self, connection: ConnectionRef) {
        if !self.entries.is_empty() {
            drop(self.remove(connection, false));
        }
    }

    pub fn forget_stage(&mut self, stage: u32, stages: &[StageEntry], ports: &[ConnectionRef]) {
        if self.entries.is_empty() && self.deferred.is_empty() {
            return;
        }
        let entry = &stages[stage as usize];
        let first = entry.first_port as usize;
        for at in 0..usize::from(entry.inlets + entry.outlets) {
            drop(self.remove(ports[first + at], at < usize::from(entry.inlets)));
        }
        self.deferred.retain(|(owner, _)| *owner != stage);
    }
}

fn typed<S: Logic>(then: impl FnOnce(&mut S, &mut Context) + 'static) -> Then {
    Box::new(move |logic, context| context.with_stage(logic, then))
}

impl Context {
    /// Calls a function with the stage as what it is.
    pub(crate) fn with_stage<S: Logic, R>(
        &mut self,
        logic: &mut dyn Logic,
        then: impl FnOnce(&mut S, &mut Context) -> R,
    ) -> R {
        let type_id = self.stages[self.current as usize].type_id;
        assert!(type_id == TypeId::of::<S>(), "a callback names another type than that of its stage");
        // SAFETY: the current stage is of type `S` (checked), and `logic` is that stage: callers are `Context::call`s.
        then(unsafe { &mut *std::ptr::from_mut(logic).cast::<S>() }, self)
    }

    /// Pushes as soon as downstream asks, now or later. Several are pushed in order.
    pub fn emit<T: 'static>(&mut self, outlet: &Outlet<T>, element: T) {
        if !self.is_emitting(outlet) && outlet.is_available(self) {
            outlet.push(self, element);
        } else {
            self.emit_later(outlet, Emission::One(element));
        }
    }

    /// As [`Context::emit`]; then, when the handler that pushed has returned, calls the function.
    pub fn emit_then<S: Logic, T: 'static>(
        &mut self,
        outlet: &Outlet<T>,
        element: T,
        then: impl FnOnce(&mut S, &mut Context) + 'static,
    ) {
        let then = typed::<S>(then);
        if !self.is_emitting(outlet) && outlet.is_available(self) {
            outlet.push(self, element);
            self.defer(then);
        } else {
            self.emit_later(outlet, Emission::One(element));
            self.emit_later(outlet, Emission::Then(then));
        }
    }

    /// Pushes all of them, each when downstream asks.
    pub fn emit_multiple<T: 'static>(&mut self, outlet: &Outlet<T>, elements: impl Iterator<Item = T> + 'static) {
        let mut elements = elements;
        if self.is_emitting(outlet) || !outlet.is_available(self) {
            self.emit_later(outlet, Emission::Many(Box::new(elements)));
            return;
        }
        if let Some(element) = elements.next() {
            outlet.push(self, element);
            self.emit_later(outlet, Emission::Many(Box::new(elements)));
        }
    }

    /// As [`Context::emit_multiple`]; then calls the function.
    pub fn emit_multiple_then<S: Logic, T: 'static>(
        &mut self,
        outlet: &Outlet<T>,
        elements: impl Iterator<Item = T> + 'static,
        then: impl FnOnce(&mut S, &mut Context) + 'static,
    ) {
        self.emit_multiple(outlet, elements);
        if self.is_emitting(outlet) {
            self.emit_later(outlet, Emission::Then(typed::<S>(then)));
        } else {
            self.defer(typed::<S>(then));
        }
    }

    /// Drops what is to be emitted.
    pub fn abort_emitting<T>(&mut self, outlet: &Outlet<T>) {
        self.overrides.forget(outlet.connection());
    }

    /// Whether something is to be emitted on this outlet.
    #[must_use]
    pub fn is_emitting<T>(&self, outlet: &Outlet<T>) -> bool {
        self.overrides.position(outlet.connection(), false).is_some()
    }

    fn emit_later<T: 'static>(&mut self, outlet: &Outlet<T>, emission: Emission<T>) {
        if outlet.is_closed(self) {
            return;
        }
        let connection = outlet.connection();
        let at = match self.overrides.position(connection, false) {
            Some(at) => at,
            None => {
                // SAFETY: the port belongs to this context (`is_closed` checked), so the connection is alive.
                let saved = unsafe { connection.as_ref() }.on_pull.replace(emitting_event::<T>);
                // A stage that is wired to itself may have pulled: the queue looks the function up again.
                self.queue_chased();
                self.overrides.entries.push(Override {
                    connection,
                    saved,
                    is_inlet: false,
                    completes: false,
                    what: Box::new(Emitting::<T> { queue: VecDeque::new() }),
                    close: |_, _, _| {},
                    element: |_, _| {},
                });
                self.overrides.entries.len() - 1
            }
        };
        if let Some(emitting) = self.overrides.entries[at].what.downcast_mut::<Emitting<T>>() {
            emitting.queue.push_back(emission);
        }
    }

    /// Has the outlet complete when everything is emitted. False if nothing is.
    pub(crate) fn complete_after_emitting(&mut self, connection: ConnectionRef) -> bool {
        match self.overrides.position(connection, false) {
            Some(at) => {
                self.overrides.entries[at].completes = true;
                true
            }
            None => false,
        }
    }

    fn has_emissions<T: 'static>(&self, connection: ConnectionRef) -> bool {
        let Some(at) = self.overrides.position(connection, false) else { return false };
        let emitting = self.overrides.entries[at].what.downcast_ref::<Emitting<T>>();
        emitting.is_some_and(|emitting| !emitting.queue.is_empty())
    }

    fn next_emission<T: 'static>(&mut self, connection: ConnectionRef) -> (Option<T>, Vec<Then>) {
        let mut thens = Vec::new();
        let Some(at) = self.overrides.position(connection, false) else { return (None, thens) };
        let Some(emitting) = self.overrides.entries[at].what.downcast_mut::<Emitting<T>>() else {
            return (None, thens);
        };
        let mut element = None;
        while let Some(emission) = emitting.queue.front_mut() {
            match emission {
                // Ahead of the next element there may be functions to call; behind it, too, but not more elements.
                Emission::Then(_) => {
                    if let Some(Emission::Then(then)) = emitting.queue.pop_front() {
                        thens.push(then);
                    }
                    continue;
                }
                Emission::Many(elements) => {
                    if element.is_some() {
                        break;
                    }
                    element = elements.next();
                    if element.is_none() {
                        emitting.queue.pop_front();
                    }
                }
                Emission::One(_) => {
                    if element.is_some() {
                        break;
                    }
                    if let Some(Emission::One(one)) = emitting.queue.pop_front() {
                        element = Some(one);
                    }
                }
            }
        }
        (element, thens)
    }

    /// Calls the function with the current stage when its handler has returned.
    fn defer(&mut self, then: Then) {
        self.overrides.deferred.push_back((self.current, then));
        self.queue_chased();
    }

    pub(crate) fn has_deferred(&self) -> bool {
        !self.overrides.deferred.is_empty()
    }

    pub(crate) fn run_deferred(&mut self) {
        while let Some((stage, then)) = self.overrides.deferred.pop_front() {
            self.call(stage, then);
            self.queue_chased();
        }
    }

    // ---- reading ----

    /// Takes one element and calls `on_read` with it, or `on_close` if upstream completes before. Then the inlet's
    /// events go to the stage again.
    pub fn read<S: Logic, T: 'static>(
        &mut self,
        inlet: &Inlet<T>,
        on_read: impl FnOnce(&mut S, &mut Context, T) + 'static,
        on_close: impl FnOnce(&mut S, &mut Context) + 'static,
    ) {
        self.read_n::<S, T>(
            inlet,
            1,
            move |stage, context, mut read| {
                if let Some(element) = read.pop() {
                    on_read(stage, context, element);
                }
            },
            move |stage, context, _| on_close(stage, context),
        );
    }

    /// Takes `wanted` elements and calls `on_read` with them; if upstream completes before, `on_close` gets those that
    /// came. A failure of upstream drops them.
    pub fn read_n<S: Logic, T: 'static>(
        &mut self,
        inlet: &Inlet<T>,
        wanted: usize,
        on_read: impl FnOnce(&mut S, &mut Context, Vec<T>) + 'static,
        on_close: impl FnOnce(&mut S, &mut Context, Vec<T>) + 'static,
    ) {
        let connection = inlet.connection();
        if self.overrides.position(connection, true).is_some() {
            self.illegal(self.illegal_use(connection, true, "cannot read from an inlet that is being read already"));
        }
        let on_read: ThenWith<T> = Box::new(move |logic, context, read| {
            context.with_stage(logic, |stage, context| on_read(stage, context, read))
        });
        let on_close: ThenWith<T> = Box::new(move |logic, context, read| {
            context.with_stage(logic, |stage, context| on_close(stage, context, read))
        });
        let mut read = Vec::new();
        if wanted > 0
            && let Some(element) = inlet.try_grab(self)
        {
            read.push(element);
        }
        if read.len() >= wanted {
            self.defer(Box::new(move |logic, context| on_read(logic, context, read)));
            return;
        }
        if inlet.is_closed(self) {
            self.defer(Box::new(move |logic, context| on_close(logic, context, read)));
            return;
        }
        // SAFETY: the port belongs to this context (`is_closed` checked), so the connection is alive.
        let saved = unsafe { connection.as_ref() }.on_push.replace(reading_event::<T>);
        self.queue_chased();
        self.overrides.entries.push(Override {
            connection,
            saved,
            is_inlet: true,
            completes: false,
            what: Box::new(Reading { wanted, read, on_read, on_close }),
            close: |what, context, stage| {
                if let Ok(reading) = what.downcast::<Reading<T>>() {
                    let Reading { read, on_close, .. } = *reading;
                    context.call(stage, |logic, context| on_close(logic, context, read));
                }
            },
            element: take_read::<T>,
        });
        inlet.try_pull(self);
    }

    /// Stops reading from an inlet; what was read so far is dropped.
    pub fn abort_reading<T>(&mut self, inlet: &Inlet<T>) {
        drop(self.overrides.remove(inlet.connection(), true));
    }

    /// Gives an element that came with the end to whoever reads the inlet.
    pub(crate) fn deliver_before_end(&mut self, connection: ConnectionRef, stage: u32, inlet: usize) {
        match self.overrides.position(connection, true) {
            Some(at) => {
                let element = self.overrides.entries[at].element;
                self.current = stage;
                element(connection, self);
            }
            None => self.call(stage, |logic, context| logic.on_push(context, inlet)),
        }
    }

    /// The inlet is at its end: whoever reads it is told, unless it failed.
    pub(crate) fn end_of_reading(&mut self, connection: ConnectionRef, stage: u32, failed: bool) {
        if let Some(entry) = self.overrides.remove(connection, true)
            && !failed
        {
            (entry.close)(entry.what, self, stage);
        }
    }
}

/// An element for an inlet that is read; its state says that it has arrived.
fn take_read<T: 'static>(connection: ConnectionRef, context: &mut Context) {
    let inlet = Inlet::<T>::new(connection.cast(), context.island);
    let Some(element) = inlet.try_grab(context) else { return };
    let Some(at) = context.overrides.position(connection, true) else { return };
    let Some(reading) = context.overrides.entries[at].what.downcast_mut::<Reading<T>>() else { return };
    reading.read.push(element);
    if reading.read.len() < reading.wanted {
        inlet.try_pull(context);
        return;
    }
    let Some(entry) = context.overrides.remove(connection, true) else { return };
    if let Ok(reading) = entry.what.downcast::<Reading<T>>() {
        let Reading { read, on_read, .. } = *reading;
        context.call(context.current, |logic, context| on_read(logic, context, read));
    }
}

/// # Safety
/// The connection belongs to the island of the context, its slot is a `Slot<T>`, and its inlet is being read.
unsafe fn reading_event<T: 'static>(connection: ConnectionRef, context: &mut Context, _: u32) -> Event {
    // SAFETY: the connection lives as long as the context.
    let header = unsafe { connection.as_ref() };
    let state = header.state.get();
    if state & (PUSHING | CLOSED) != PUSHING {
        context.process_closed(connection);
    } else {
        header.state.set(state ^ PUSH_END);
        context.current = header.in_owner.get();
        take_read::<T>(connection, context);
    }
    Event::NONE
}

/// # Safety
/// The connection belongs to the island of the context, its slot is a `Slot<T>`, and its outlet is emitting.
unsafe fn emitting_event<T: 'static>(connection: ConnectionRef, context: &mut Context, _: u32) -> Event {
    // SAFETY: the connection lives as long as the context.
    let header = unsafe { connection.as_ref() };
    let state = header.state.get();
    if state & (PULLING | CLOSED) != PULLING {
        context.process_closed(connection);
        return Event::NONE;
    }
    header.state.set(state ^ PULL_END);
    let stage = header.out_owner.get();
    context.current = stage;
    // Until the pull is answered: an iterator may be empty, and a function may emit more.
    let mut pushed = false;
    while !pushed && context.has_emissions::<T>(connection) {
        let (element, thens) = context.next_emission::<T>(connection);
        pushed = element.is_some();
        if let Some(element) = element {
            Outlet::<T>::new(connection.cast(), context.island).push(context, element);
        }
        // No handler is running, so the functions can be called here. What they emit comes before a completion.
        for then in thens {
            context.call(stage, then);
        }
    }
    if context.has_emissions::<T>(connection) {
        return Event::NONE;
    }
    let completes = context.overrides.remove(connection, false).is_some_and(|entry| entry.completes);
    if completes {
        context.complete_connection(connection);
    } else if header.state.get() & (OUT_READY | CLOSED) == OUT_READY {
        // Nothing was left to emit: the pull is the stage's.
        let outlet = usize::from(header.outlet.get());
        context.call(stage, |logic, context| logic.on_pull(context, outlet));
    }
    Event::NONE
}
