//! The context of an island: event queue, stages, and what a running stage may ask of its interpreter.
//!
//! Handed to each handler. The rules for closing are those of the reference: completion, failure and cancellation are
//! idempotent; they are announced by an event only if none is on its way over the same connection, because that one will
//! show them. Invariants: no method here calls a stage, so `&mut self` of a handler never nests; a stage that has closed
//! its last port is stopped after the event that did it, before the next event.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use super::arena::Arena;
use super::connection::*;
use super::inbox::IslandInbox;
use super::overrides::Overrides;
use super::timers::StageTimers;
use crate::base::Nanos;
use crate::stream::attributes::{Attributes, CancellationStrategy};
use crate::stream::error::{Cancellation, IllegalUse, StreamError};
use crate::stream::stage::Logic;

/// Names an island within a process; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IslandId(pub(crate) u64);

/// Flag beside the number of open ports: the stage lives on without ports.
const KEEP_GOING: u32 = 1 << 31;
/// Events that follow one another without going through the queue, as the loop counts them: how long one event of the
/// queue can keep the others waiting.
pub(crate) const CHASE_MAX: u32 = 64;
/// Element-wise stages that an element runs through by jumps, which the loop counts as one event. Bounds the stack where
/// the compiler makes calls of the jumps.
const JUMPS_MAX: u32 = 64;

pub(crate) struct StageEntry {
    /// `None` after the stage was stopped and dropped.
    pub logic: Option<NonNull<dyn Logic>>,
    /// The type of the stage, for callbacks that name it.
    pub type_id: std::any::TypeId,
    /// Ports that are open, and [`KEEP_GOING`].
    pub open: u32,
    /// Its connections in `Context::ports`: inlets, then outlets.
    pub first_port: u32,
    pub inlets: u16,
    pub outlets: u16,
    pub name: &'static str,
    pub attributes: Attributes,
}

pub(crate) struct ConnectionEntry {
    pub connection: ConnectionRef,
    pub element: &'static ElementType,
}

/// What a stage's handlers work with.
pub struct Context {
    pub(crate) island: IslandId,
    pub(crate) chased_push: Event,
    pub(crate) chased_pull: Event,
    /// A push and a pull that follow when the stages that have finished are stopped.
    stashed: [Event; 2],
    /// The stage whose handler runs.
    pub(crate) current: u32,
    head: u32,
    tail: u32,
    mask: u32,
    queue: Box<[Option<ConnectionRef>]>,
    pub(crate) chase: u32,
    /// State of the random order of events, zero for none.
    fuzzing: u64,
    pub(crate) stages: Vec<StageEntry>,
    pub(crate) connections: Vec<ConnectionEntry>,
    pub(crate) ports: Vec<ConnectionRef>,
    /// Stages that closed their last port and are to be stopped.
    finished: Vec<u32>,
    pub(crate) running: u32,
    failures: Vec<(u32, StreamError)>,
    causes: Vec<(u32, Cancellation)>,
    pub(crate) overrides: Overrides,
    pub(crate) timers: StageTimers,
    pub(crate) inbox: Arc<IslandInbox>,
    /// Stages to call at the end of the run.
    pub(crate) run_end: Vec<u32>,
    /// The last panic of a handler: the stage, and what it fails with.
    panicked: Option<(u32, StreamError)>,
    /// Stages to call in the next run, which follows without a wake-up.
    pub(crate) looking: Vec<u32>,
    pub(crate) now: Nanos,
    _arena: Arena,
}

/// What a builder hands over.
pub(crate) struct ContextParts {
    pub island: IslandId,
    pub stages: Vec<StageEntry>,
    pub connections: Vec<ConnectionEntry>,
    pub ports: Vec<ConnectionRef>,
    pub inbox: Arc<IslandInbox>,
    pub arena: Arena,
    /// Zero for the order of the queue.
    pub fuzzing: u64,
}

impl Context {
    pub(crate) fn new(parts: ContextParts) -> Context {
        // A connection lies in the queue at most once, so the queue cannot overflow.
        let capacity = (parts.connections.len() + 1).next_power_of_two();
        Context {
            island: parts.island,
            chased_push: Event::NONE,
            chased_pull: Event::NONE,
            stashed: [Event::NONE; 2],
            current: NO_STAGE,
            head: 0,
            tail: 0,
            mask: capacity as u32 - 1,
            queue: vec![None; capacity].into_boxed_slice(),
            chase: if parts.fuzzing == 0 { CHASE_MAX } else { 0 },
            fuzzing: parts.fuzzing,
            running: parts.stages.len() as u32,
            stages: parts.stages,
            connections: parts.connections,
            ports: parts.ports,
            finished: Vec::new(),
            failures: Vec::new(),
            causes: Vec::new(),
            overrides: Overrides::default(),
            timers: StageTimers::default(),
            inbox: parts.inbox,
            run_end: Vec::new(),
            panicked: None,
            looking: Vec::new(),
            now: Nanos::ZERO,
            _arena: parts.arena,
        }
    }

    // ---- for stages ----

    /// The island that the stage is in.
    #[must_use]
    pub fn island(&self) -> IslandId {
        self.island
    }

    /// The time of the core, read at the beginning of its turn.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The attributes that are in force for the stage.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        &self.stages[self.current as usize].attributes
    }

    /// Name of the stage: its own name, or the one that its attributes give it.
    #[must_use]
    pub fn stage_name(&self) -> String {
        self.name_of(self.current)
    }

    /// Completes all outlets and cancels all inlets. What is being emitted is emitted first.
    pub fn complete_stage(&mut self) {
        self.close_stage(self.current, |context, connection, is_inlet| {
            if is_inlet {
                context.cancel_connection(connection, Cancellation::StageWasCompleted);
            } else if !context.complete_after_emitting(connection) {
                context.complete_connection(connection);
            }
        });
    }

    /// Fails all outlets and cancels all inlets, at once: what is being emitted is dropped.
    pub fn fail_stage(&mut self, error: StreamError) {
        self.fail_stage_of(self.current, &error);
    }

    /// In `post_stop`: what the stage failed with, if one of its handlers panicked.
    #[must_use]
    pub fn panic_of_stage(&self) -> Option<&StreamError> {
        self.panicked.as_ref().filter(|(stage, _)| *stage == self.current).map(|(_, error)| error)
    }

    /// Does what the attribute [`CancellationStrategy`] says about the cancellation of an outlet.
    pub fn cancel_stage(&mut self, cause: Cancellation) {
        let strategy = self.attributes().mandatory::<CancellationStrategy>().clone();
        self.cancel_stage_by(&strategy, cause);
    }

    pub(crate) fn cancel_stage_by(&mut self, strategy: &CancellationStrategy, cause: Cancellation) {
        let completes = match strategy {
            CancellationStrategy::CompleteStage => true,
            CancellationStrategy::FailStage => false,
            CancellationStrategy::PropagateFailure => cause.error().is_none(),
            CancellationStrategy::AfterDelay { delay, then } => {
                self.timers.cancel_later(self.current, self.now + *delay, (**then).clone(), cause);
                return;
            }
        };
        if completes {
            self.close_stage(self.current, |context, connection, is_inlet| {
                if is_inlet {
                    context.cancel_connection(connection, cause.clone());
                } else {
                    context.complete_connection(connection);
                }
            });
        } else {
            let error = match &cause {
                Cancellation::Failed(error) => error.clone(),
                Cancellation::NoMoreElementsNeeded => StreamError::text("the consumer needs no more elements"),
                Cancellation::StageWasCompleted => StreamError::text("the consumer was completed"),
            };
            self.close_stage(self.current, |context, connection, is_inlet| {
                if is_inlet {
                    context.cancel_connection(connection, cause.clone());
                } else {
                    context.fail_connection(connection, error.clone());
                }
            });
        }
    }

    /// Whether the stage lives on when all its ports are closed. It then has to end itself: by [`complete_stage`],
    /// [`fail_stage`] or `set_keep_going(false)`.
    ///
    /// [`complete_stage`]: Context::complete_stage
    /// [`fail_stage`]: Context::fail_stage
    pub fn set_keep_going(&mut self, keep_going: bool) {
        let current = self.current;
        let Some(entry) = self.stages.get_mut(current as usize) else { return };
        if keep_going {
            entry.open |= KEEP_GOING;
        } else {
            self.stop_keeping(current);
        }
    }

    // ---- closing ----

    fn stop_keeping(&mut self, stage: u32) {
        let entry = &mut self.stages[stage as usize];
        if entry.open & KEEP_GOING != 0 {
            entry.open &= !KEEP_GOING;
            if entry.open == 0 {
                self.finish_soon(stage);
            }
        }
    }

    fn close_stage(&mut self, stage: u32, mut close: impl FnMut(&mut Context, ConnectionRef, bool)) {
        let Some(entry) = self.stages.get(stage as usize) else { return };
        let (first, inlets, outlets) =
            (entry.first_port as usize, usize::from(entry.inlets), usize::from(entry.outlets));
        for at in 0..inlets + outlets {
            let connection = self.ports[first + at];
            close(self, connection, at < inlets);
        }
        self.stop_keeping(stage);
    }

    pub(crate) fn fail_stage_of(&mut self, stage: u32, error: &StreamError) {
        self.overrides.forget_stage(stage, &self.stages, &self.ports);
        self.close_stage(stage, |context, connection, is_inlet| {
            if is_inlet {
                context.cancel_connection(connection, Cancellation::Failed(error.clone()));
            } else {
                context.fail_connection(connection, error.clone());
            }
        });
    }

    fn port_closed(&mut self, owner: u32) {
        let entry = &mut self.stages[owner as usize];
        entry.open -= 1;
        if entry.open == 0 {
            self.finish_soon(owner);
        }
    }

    /// The stage is stopped before the next event: what would follow directly has to wait so long.
    fn finish_soon(&mut self, stage: u32) {
        self.finished.push(stage);
        self.stash_chased();
    }

    fn stash_chased(&mut self) {
        for (at, event) in [self.chased_push, self.chased_pull].into_iter().enumerate() {
            if self.stashed[at].is_none() {
                self.stashed[at] = event;
            } else if let Some(connection) = event.connection {
                self.enqueue(connection);
            }
        }
        (self.chased_push, self.chased_pull) = (Event::NONE, Event::NONE);
    }

    /// What was stashed follows now, the push first.
    fn next_stashed(&mut self) -> Option<Event> {
        let next = self.stashed.iter_mut().find(|event| !event.is_none())?;
        Some(std::mem::replace(next, Event::NONE))
    }

    /// Leaves to the queue what would follow directly.
    pub(crate) fn queue_chased(&mut self) {
        for at in 0..4 {
            let event = match at {
                0 | 1 => &mut self.stashed[at],
                2 => &mut self.chased_push,
                _ => &mut self.chased_pull,
            };
            if let Some(connection) = std::mem::replace(event, Event::NONE).connection {
                self.enqueue(connection);
            }
        }
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, connection: ConnectionRef) {
        debug_assert!(self.tail.wrapping_sub(self.head) <= self.mask, "a connection was queued twice");
        self.queue[(self.tail & self.mask) as usize] = Some(connection);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline(always)]
    pub(crate) fn chase_push(&mut self, event: Event) {
        if self.chased_push.is_none() {
            self.chased_push = event;
        } else if let Some(connection) = event.connection {
            self.enqueue(connection);
        }
    }

    #[inline(always)]
    pub(crate) fn chase_pull(&mut self, event: Event) {
        if self.chased_pull.is_none() {
            self.chased_pull = event;
        } else if let Some(connection) = event.connection {
            self.enqueue(connection);
        }
    }

    fn header<'a>(connection: ConnectionRef) -> &'a Connection {
        // SAFETY: connections live in the arena of the context that hands them out, and it is only called by methods of
        // that context, which do not keep the reference.
        unsafe { connection.as_ref() }
    }

    /// Closes the outlet of a connection.
    pub(crate) fn complete_connection(&mut self, connection: ConnectionRef) {
        let header = Self::header(connection);
        let state = header.state.get();
        if state & OUT_CLOSED != 0 {
            return;
        }
        header.set(OUT_CLOSED);
        if self.chased_push.connection == Some(connection) {
            self.chased_push = Event::NONE;
            self.enqueue(connection);
        } else if state & (IN_CLOSED | PUSHING | PULLING) == 0 {
            self.enqueue(connection);
        }
        self.port_closed(header.out_owner.get());
    }

    /// Closes the outlet of a connection with a failure.
    pub(crate) fn fail_connection(&mut self, connection: ConnectionRef, error: StreamError) {
        let header = Self::header(connection);
        if !header.has(CLOSED) {
            header.set(IN_FAILED);
            self.failures.push((header.index, error));
        }
        self.complete_connection(connection);
    }

    /// Closes the inlet of a connection, and drops what it did not take.
    pub(crate) fn cancel_connection(&mut self, connection: ConnectionRef, cause: Cancellation) {
        let header = Self::header(connection);
        let state = header.state.get();
        if state & IN_CLOSED != 0 {
            return;
        }
        header.set(IN_CLOSED);
        self.drop_element(connection);
        if state & OUT_CLOSED == 0 {
            self.causes.push((header.index, cause));
            if self.chased_pull.connection == Some(connection) {
                self.chased_pull = Event::NONE;
                self.enqueue(connection);
            } else if state & (PULLING | PUSHING) == 0 {
                self.enqueue(connection);
            }
        }
        self.port_closed(header.in_owner.get());
    }

    pub(crate) fn drop_element(&mut self, connection: ConnectionRef) {
        let header = Self::header(connection);
        if header.has(FULL) {
            header.clear(FULL);
            let element = self.connections[header.index as usize].element;
            // SAFETY: `FULL` was set and is cleared; the vtable was made for the type of this slot.
            unsafe { (element.drop_element)(connection) };
        }
    }

    /// What an event means if a side of the connection is closed. Sets what follows as the handlers do.
    #[cold]
    #[inline(never)]
    pub(crate) fn process_closed(&mut self, connection: ConnectionRef) {
        let header = Self::header(connection);
        let state = header.state.get();
        if state & CLOSED == IN_CLOSED {
            header.set(OUT_CLOSED);
            let cause = take_by_index(&mut self.causes, header.index).unwrap_or(Cancellation::NoMoreElementsNeeded);
            let (owner, outlet) = (header.out_owner.get(), usize::from(header.outlet.get()));
            self.port_closed(owner);
            self.overrides.forget(connection);
            self.call(owner, |logic, context| logic.on_downstream_finish(context, outlet, cause));
            if !self.finished.is_empty() {
                self.stash_chased();
            }
        } else if state & CLOSED == OUT_CLOSED {
            let (owner, inlet) = (header.in_owner.get(), usize::from(header.inlet.get()));
            if state & PUSHING != 0 {
                // The element first; the end follows. Whoever implies its demand never cleared `IN_READY`.
                header.state.set((state & !PUSHING) | IN_READY);
                self.enqueue(connection);
                self.deliver_before_end(connection, owner, inlet);
                return;
            }
            header.set(IN_CLOSED);
            self.port_closed(owner);
            self.end_of_reading(connection, owner, state & IN_FAILED != 0);
            if state & IN_FAILED != 0 {
                let error = take_by_index(&mut self.failures, header.index)
                    .unwrap_or_else(|| StreamError::text("upstream failed"));
                self.call(owner, |logic, context| logic.on_upstream_failure(context, inlet, error));
            } else {
                self.call(owner, |logic, context| logic.on_upstream_finish(context, inlet));
            }
            if !self.finished.is_empty() {
                self.stash_chased();
            }
        }
    }

    /// Calls a handler of a stage that is not stopped.
    pub(crate) fn call(&mut self, stage: u32, handler: impl FnOnce(&mut dyn Logic, &mut Context)) {
        let Some(logic) = self.stages.get(stage as usize).and_then(|entry| entry.logic) else { return };
        self.current = stage;
        // SAFETY: the logic lives in the arena until it is taken out of the entry. No other reference to it exists:
        // handlers run one at a time, and nothing that a handler can call calls a stage.
        handler(unsafe { &mut *logic.as_ptr() }, self);
    }

    // ---- the loop ----

    /// Processes up to so many events of the queue. Returns what is left of the limit.
    pub(crate) fn execute(&mut self, limit: u32) -> u32 {
        let mut left = limit;
        while left > 0 && !self.is_idle() {
            let run = catch_unwind(AssertUnwindSafe(|| self.execute_unguarded(&mut left)));
            if let Err(payload) = run {
                self.stage_panicked(StreamError::from_panic(payload));
            }
        }
        left
    }

    #[inline(never)]
    fn execute_unguarded(&mut self, left: &mut u32) {
        loop {
            if self.has_deferred() {
                self.run_deferred();
            }
            if !self.finished.is_empty() {
                self.stop_finished();
            }
            if *left == 0 {
                self.queue_chased();
                return;
            }
            let stashed = self.next_stashed();
            if stashed.is_none() && self.head == self.tail {
                return;
            }
            *left -= 1;
            let connection = stashed.and_then(|event| event.connection).unwrap_or_else(|| self.dequeue());
            let header = Self::header(connection);
            let state = header.state.get();
            let run = if state & CLOSED != 0 {
                super::events::closed_event
            } else if state & PUSHING != 0 {
                header.on_push.get()
            } else if state & PULLING != 0 {
                header.on_pull.get()
            } else {
                continue;
            };
            // SAFETY: the function was registered for this connection by the builder (or by an override that knows it),
            // and the connection is alive.
            let mut next = unsafe { run(connection, self, self.chase.min(JUMPS_MAX)) };
            let mut chase = self.chase;
            while let Some(connection) = next.connection {
                if chase == 0 {
                    self.enqueue(connection);
                    break;
                }
                chase -= 1;
                // SAFETY: as above; what an event returns is registered for its connection.
                next = unsafe { (next.run)(connection, self, JUMPS_MAX) };
            }
            if self.finished.is_empty() {
                self.queue_chased();
            } else {
                self.stash_chased();
            }
        }
    }

    fn dequeue(&mut self) -> ConnectionRef {
        if self.fuzzing != 0 {
            // xorshift64 (Marsaglia 2003): which event comes next is random, but the same for the same seed.
            self.fuzzing ^= self.fuzzing << 13;
            self.fuzzing ^= self.fuzzing >> 7;
            self.fuzzing ^= self.fuzzing << 17;
            let queued = self.tail.wrapping_sub(self.head);
            let chosen = self.head.wrapping_add((self.fuzzing % u64::from(queued)) as u32);
            self.queue.swap((self.head & self.mask) as usize, (chosen & self.mask) as usize);
        }
        let connection = self.queue[(self.head & self.mask) as usize].take();
        self.head = self.head.wrapping_add(1);
        connection.unwrap_or_else(|| unreachable!("head and tail enclose queued connections only"))
    }

    fn is_idle(&self) -> bool {
        self.head == self.tail
            && self.stashed.iter().all(Event::is_none)
            && self.finished.is_empty()
            && !self.has_deferred()
    }

    /// Whether events wait.
    pub(crate) fn is_suspended(&self) -> bool {
        !self.is_idle()
    }

    /// A handler of the current stage panicked: the stage fails, the others go on.
    pub(crate) fn stage_panicked(&mut self, error: StreamError) {
        self.queue_chased();
        let stage = self.current;
        self.log_failure(stage, &error);
        self.fail_stage_of(stage, &error);
        self.panicked = Some((stage, error));
    }

    pub(crate) fn log_failure(&self, stage: u32, error: &StreamError) {
        let Some(entry) = self.stages.get(stage as usize) else { return };
        crate::stream::stage::logging::log_failure(&entry.attributes, &self.name_of(stage), error);
    }

    /// Calls a handler outside of the loop (start, timer, callback): what it does is queued.
    pub(crate) fn call_guarded(&mut self, stage: u32, handler: impl FnOnce(&mut dyn Logic, &mut Context)) {
        let run = catch_unwind(AssertUnwindSafe(|| self.call(stage, handler)));
        if let Err(payload) = run {
            self.stage_panicked(StreamError::from_panic(payload));
        }
        self.stop_finished();
        self.queue_chased();
    }

    /// Uses ports in the name of a stage, from outside: what that does is queued.
    pub(crate) fn act_as<R>(&mut self, stage: u32, action: impl FnOnce(&mut Context) -> R) -> R {
        self.current = stage;
        let result = action(self);
        self.stop_finished();
        self.queue_chased();
        result
    }

    /// Stops the stages that have closed their last port.
    #[cold]
    pub(crate) fn stop_finished(&mut self) {
        let mut at = 0;
        while let Some(stage) = self.finished.get(at).copied() {
            at += 1;
            // It may have decided to go on without ports.
            if self.stages[stage as usize].open == 0 {
                self.stop_stage(stage);
            }
        }
        self.finished.clear();
    }

    pub(crate) fn stop_stage(&mut self, stage: u32) {
        let Some(logic) = self.stages[stage as usize].logic else { return };
        self.timers.forget_stage(stage);
        let stopped = catch_unwind(AssertUnwindSafe(|| self.call(stage, |logic, context| logic.post_stop(context))));
        if let Err(payload) = stopped {
            let error = StreamError::from_panic(payload);
            tracing::error!(%error, stage = self.name_of(stage), "error in the end of a stage");
        }
        self.overrides.forget_stage(stage, &self.stages, &self.ports);
        let (first, inlets) = {
            let entry = &mut self.stages[stage as usize];
            entry.logic = None;
            (entry.first_port as usize, usize::from(entry.inlets))
        };
        for at in first..first + inlets {
            // What it did not take before upstream ended.
            self.drop_element(self.ports[at]);
        }
        self.running -= 1;
        // SAFETY: the logic was placed in the arena by the builder, is dropped once (the entry no longer names it), and
        // is not borrowed: `stop_stage` is called between handlers only.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { std::ptr::drop_in_place(logic.as_ptr()) }));
        if dropped.is_err() {
            tracing::error!(stage = self.name_of(stage), "a stage panicked while it was dropped");
        }
        self.stash_chased();
    }

    /// Stops all stages, wherever the stream is.
    pub(crate) fn abort(&mut self) {
        for stage in 0..self.stages.len() as u32 {
            self.stop_stage(stage);
        }
        for at in 0..self.connections.len() {
            let connection = self.connections[at].connection;
            Self::header(connection).set(CLOSED);
            self.drop_element(connection);
        }
        (self.head, self.tail) = (0, 0);
        self.stashed = [Event::NONE; 2];
        self.finished.clear();
        self.failures.clear();
        self.causes.clear();
    }

    // ---- illegal use ----

    pub(crate) fn name_of(&self, stage: u32) -> String {
        let Some(entry) = self.stages.get(stage as usize) else { return "unknown".to_owned() };
        entry.attributes.name().map_or_else(|| entry.name.to_owned(), str::to_owned)
    }

    /// Ends the handler with an error that names stage and port. The interpreter fails the stage with it.
    #[cold]
    #[inline(never)]
    pub(crate) fn illegal(&self, error: IllegalUse) -> ! {
        resume_unwind(Box::new(error))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn illegal_use(&self, connection: ConnectionRef, is_inlet: bool, what: &'static str) -> IllegalUse {
        let header = Self::header(connection);
        let (owner, side, index) = match is_inlet {
            true => (header.in_owner.get(), "in", header.inlet.get()),
            false => (header.out_owner.get(), "out", header.outlet.get()),
        };
        IllegalUse { stage: self.name_of(owner), port: format!("{side}{index}"), what }
    }
}

fn take_by_index<T>(entries: &mut Vec<(u32, T)>, index: u32) -> Option<T> {
    let at = entries.iter().position(|(connection, _)| *connection == index)?;
    Some(entries.swap_remove(at).1)
}

impl Drop for Context {
    fn drop(&mut self) {
        self.abort();
    }
}
