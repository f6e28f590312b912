//! How a host brings messages to its entities, and how entities live and die.
//!
//! The second half of [`Host`]: activation, delivery, what runs next at an entity (`stopping` has its end). Called by
//! `host`, `ask`, `dispatch` and `engine`. The order in which an entity's messages start is decided in
//! [`next_startable`] alone.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use super::call::{CallChain, ReplyTo};
use super::cell::{self, CellHeader};
use super::dispatch::{Call, HandlerHead, Lifecycle, LifecycleHead, LifecycleTable, Method, Started};
use super::host::{Host, add};
use super::incoming::{Body, Incoming, NO_OUT, Startable, Value, with_waiting};
use super::intercepted::{Interceptor, MakeAround};
use super::lifecycle::{Entity, StartError};
use super::mailbox::{Mailbox, Waiting};
use super::message::{Access, Protocol, Serves};
use super::options::{EntityDefaults, EntityOptions, ErasedOptions};
use super::pending::Location;
use super::slot::{Phase, SlotArena, SlotHeader};
use crate::base::hash::shard_of_hash;
use crate::base::{ClusterError, EntityId, LinkId};
use crate::wire::Lane;
use crate::wire::codec::CodecError;

/// Messages that one entity starts before others get their turn.
const STARTS_PER_TURN: usize = 32;

/// One entity type on one core.
pub struct TypeHost {
    pub(super) name: &'static str,
    pub(super) methods: &'static [Method],
    pub(super) lifecycle: &'static LifecycleTable,
    pub(super) options: ErasedOptions,
    pub(super) arena: SlotArena,
}

impl TypeHost {
    /// The type `E`, which gets the position `type_index` among the types of its host.
    pub fn new<E: Entity>(type_index: u16, options: EntityOptions<E::Protocol>, defaults: &EntityDefaults) -> TypeHost {
        TypeHost {
            name: <E::Protocol as Protocol>::NAME,
            methods: match options.interceptor {
                None => <E::Protocol as Serves<E>>::TABLE,
                Some(_) => <E::Protocol as Serves<E>>::INTERCEPTED,
            },
            lifecycle: Lifecycle::<E>::TABLE,
            options: ErasedOptions::new(options, defaults),
            arena: SlotArena::new(Lifecycle::<E>::TABLE.slot_layout, type_index),
        }
    }

    /// The name of the type.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The interceptor of the type, whose protocol is `P`.
    pub(super) fn interceptor<P: Protocol>(&self) -> Interceptor<P> {
        let interceptor = self.options.interceptor.as_ref().and_then(|interceptor| interceptor.downcast_ref());
        Interceptor::clone(
            interceptor.unwrap_or_else(|| unreachable!("only then its methods are the intercepted ones")),
        )
    }

    /// Makes what lies around an entity, if there is an interceptor.
    pub(super) fn make_around(&self) -> Option<&MakeAround> {
        self.options.make_around.as_ref()
    }

    /// How its messages are handled.
    pub(crate) fn methods(&self) -> &'static [Method] {
        self.methods
    }

    /// How many entities of the type live here.
    pub fn live(&self) -> usize {
        self.arena.live()
    }

    /// The ids of the entities that live here, at most `limit`.
    pub fn ids(&self, limit: usize) -> Vec<EntityId> {
        let slots = (0..self.arena.capacity()).filter_map(|position| self.arena.at(position));
        // SAFETY: slots of an arena are alive.
        slots
            .map(|slot| unsafe { slot.as_ref() })
            .filter(|header| header.phase.get() != Phase::Free)
            .take(limit)
            .map(|header| header.id().clone())
            .collect()
    }
}

/// What became of a delivered message.
#[derive(Debug)]
pub enum Delivered {
    /// Its handler is done; the answer went to `out`, or to who waits.
    Done,
    /// It waits at its entity.
    Queued(NonNull<Waiting>),
    /// Its handler runs.
    Running(NonNull<CellHeader>),
    /// It was not processed; nobody was told yet.
    Failed(ClusterError),
}

/// A message for an entity of this core.
pub struct Delivery<'a> {
    /// Position of the type.
    pub type_index: u16,
    /// Hash of the id.
    pub hash: u64,
    /// The id.
    pub id: &'a EntityId,
    /// The message type.
    pub method: &'static Method,
    /// Who waits, and the chain of calls.
    pub call: Call,
}

impl Host {
    /// Brings a message to an entity, which is started if need be. The message is consumed in every case. If `out` is
    /// not null and the handler is done at once, the answer is written there.
    ///
    /// # Safety
    /// `message` points to an initialised message of the method's type; `out` is null or has room for its answer; the
    /// method belongs to the type.
    #[inline]
    pub(crate) unsafe fn deliver(&self, delivery: &Delivery<'_>, message: *mut (), out: *mut ()) -> Delivered {
        // SAFETY: passed on.
        unsafe { self.deliver_any(delivery, Value(message), out) }
    }

    /// Brings a message that came in a frame to its entity: decoded, or where it lies if its handler reads it there.
    ///
    /// # Errors
    /// If the body is no message of the method's type; nothing was done then.
    pub(crate) fn deliver_body(&self, delivery: &Delivery<'_>, body: &[u8]) -> Result<Delivered, CodecError> {
        if let Some(in_place) = delivery.method.in_place {
            let body = Body::validated(in_place, body)?;
            // SAFETY: the body was just validated as the method's message.
            return Ok(unsafe { self.deliver_any(delivery, body, NO_OUT) });
        }
        let mut delivered = Delivered::Failed(ClusterError::Serialization);
        delivery.method.decode_message(body, &mut |message| {
            // SAFETY: the message was just decoded as the method's type and is given away.
            delivered = unsafe { self.deliver(delivery, message, NO_OUT) };
        })?;
        Ok(delivered)
    }

    /// Brings a message in JSON to its entity.
    ///
    /// # Errors
    /// If the text is no message of the method's type; nothing was done then.
    pub(crate) fn deliver_json(&self, delivery: &Delivery<'_>, text: &str) -> Result<Delivered, String> {
        let mut delivered = Delivered::Failed(ClusterError::Serialization);
        delivery.method.decode_json(text, &mut |message| {
            // SAFETY: the message was just decoded as the method's type and is given away.
            delivered = unsafe { self.deliver(delivery, message, NO_OUT) };
        })?;
        Ok(delivered)
    }

    /// # Safety
    /// See [`Host::deliver`]; a body was validated as the method's message, and gets no `out`.
    #[inline(always)]
    unsafe fn deliver_any<I: Incoming>(&self, delivery: &Delivery<'_>, message: I, out: *mut ()) -> Delivered {
        let kind = &self.types()[usize::from(delivery.type_index)];
        let method = delivery.method;
        add(&self.counters().messages, 1);
        let slot = match kind.arena.find(delivery.hash, delivery.id) {
            Some(slot) => slot,
            // SAFETY: passed on.
            None => match unsafe { self.activate(kind, delivery, message) } {
                Ok(slot) => slot,
                Err(error) => {
                    // SAFETY: the message is still ours.
                    unsafe { message.discard(method) };
                    return Delivered::Failed(error);
                }
            },
        };
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        if may_start_now(header, method.access, kind.options.concurrency) && self.may_run_inline() {
            // SAFETY: the gate is open, and the message is ours to pass on.
            let delivered = unsafe { self.begin(slot, method, message, delivery.call, out) };
            if let Delivered::Running(cell) = delivered {
                self.remember_caller(delivery.call.reply_to, Location::Running(cell));
            }
            return delivered;
        }
        // SAFETY: passed on.
        unsafe { self.enqueue(kind, slot, delivery, message) }
    }

    /// Brings a message that came in a parcel to its entity.
    pub(crate) fn deliver_from_core(&self, delivery: &Delivery<'_>, message: *mut ()) -> Delivered {
        // SAFETY: a parcel holds an initialised message of its type, which it gives away here; both cores have the same
        // types in the same order, so the method that its numbers name is that of the message.
        unsafe { self.deliver(delivery, message, NO_OUT) }
    }

    /// Starts a handler whose gate is open.
    #[inline(always)]
    unsafe fn begin<I: Startable>(
        &self,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        message: I,
        call: Call,
        out: *mut (),
    ) -> Delivered {
        // SAFETY: slots are alive; the method belongs to the slot's type, and the gate gives it what it needs.
        let started = unsafe {
            slot.as_ref().gate.enter(method.access);
            message.start(self, slot, method, call, out)
        };
        match started {
            Started::Done => {
                self.after_handler(slot, method.access);
                Delivered::Done
            }
            Started::Pending(cell) => Delivered::Running(cell),
            Started::Defect => {
                self.mark_defect(slot);
                self.after_handler(slot, method.access);
                if out.is_null() { Delivered::Done } else { Delivered::Failed(ClusterError::EntityDefect) }
            }
            Started::Refused(error) => {
                self.after_handler(slot, method.access);
                Delivered::Failed(error)
            }
        }
    }

    #[cold]
    unsafe fn enqueue<I: Incoming>(
        &self,
        kind: &TypeHost,
        slot: NonNull<SlotHeader>,
        delivery: &Delivery<'_>,
        message: I,
    ) -> Delivered {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let method = delivery.method;
        let refused = if header.mailbox.length() + header.gate.running() >= kind.options.mailbox_capacity {
            Some(ClusterError::MailboxFull)
        } else if self.waits_for_itself(slot, method.access, kind.options.concurrency, &delivery.call.chain) {
            Some(ClusterError::Cycle)
        } else {
            None
        };
        if let Some(error) = refused {
            // SAFETY: the message is ours.
            unsafe { message.discard(method) };
            return Delivered::Failed(error);
        }
        let sequence = header.mailbox.take_sequence();
        // SAFETY: the message is initialised and moves into the block, which enters the mailbox of its slot.
        let waiting = unsafe {
            let waiting = message.wait(self.pool(), slot, method, sequence, delivery.call);
            header.mailbox.push(waiting);
            waiting
        };
        header.attention.set(true);
        if header.phase.get() != Phase::Starting {
            self.schedule(slot);
        }
        self.remember_caller(delivery.call.reply_to, Location::Queued(waiting));
        Delivered::Queued(waiting)
    }

    /// Whether a message that cannot start now would wait for a call of its own chain.
    fn waits_for_itself(&self, slot: NonNull<SlotHeader>, access: Access, concurrency: u16, chain: &CallChain) -> bool {
        if chain.is_empty() {
            return false;
        }
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        if let Some(lifecycle) = header.lifecycle.get() {
            // SAFETY: the slot's start or stop is alive, and begins with its head.
            let call_id = unsafe { lifecycle.cast::<LifecycleHead>().as_ref() }.call_id;
            if chain.calls().contains(&call_id) {
                return true;
            }
        }
        let (mut permits_of_chain, mut reads, mut writes) = (0, false, false);
        let mut count = |head: &HandlerHead| {
            if head.slot == slot && chain.calls().contains(&head.call_id) {
                permits_of_chain += u16::from(head.method.access != Access::Concurrent);
                reads |= head.method.access != Access::Exclusive;
                writes |= head.method.access == Access::Exclusive;
            }
        };
        // Handlers in their first poll are not in the entity's list yet; those in a later poll are in both.
        self.polled_handlers().filter(|head| !is_listed(head)).for_each(&mut count);
        for_each_handler(header, |cell| {
            // SAFETY: the entity's list holds handlers, which begin with their head.
            count(unsafe { cell.cast::<HandlerHead>().as_ref() });
        });
        let blocked = |access: Access| match access {
            Access::Exclusive => permits_of_chain >= concurrency || reads || writes,
            Access::Shared => permits_of_chain >= concurrency || writes,
            Access::Concurrent => writes,
        };
        // SAFETY: messages in a mailbox are alive.
        let head_blocked =
            header.mailbox.turn_head().is_some_and(|head| blocked(unsafe { head.as_ref() }.method.access));
        blocked(access) || (access != Access::Concurrent && head_blocked)
    }

    #[cold]
    unsafe fn activate<I: Incoming>(
        &self,
        kind: &TypeHost,
        delivery: &Delivery<'_>,
        message: I,
    ) -> Result<NonNull<SlotHeader>, ClusterError> {
        if let Some(rule) = &kind.options.load {
            // SAFETY: the message is initialised and of the method's type.
            if !unsafe { message.may_load(delivery.method, &**rule) } {
                return Err(ClusterError::MessageDiscarded);
            }
        }
        if self.stopping.get() {
            return Err(ClusterError::EntityInterrupted);
        }
        let shard = shard_of_hash(delivery.hash, self.number_of_shards());
        let slot = kind.arena.activate(delivery.hash, delivery.id.clone(), shard);
        self.entity_enters(shard);
        add(&self.counters().live, 1);
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let generation = header.generation.get();
        if self.may_start_inline() {
            self.start_entity(kind, slot);
        } else {
            // Starts that ask entities that start: the stack ends here, the next one starts from the queue.
            header.attention.set(true);
            self.schedule(slot);
        }
        if header.generation.get() == generation { Ok(slot) } else { Err(ClusterError::EntityDefect) }
    }

    pub(super) fn start_entity(&self, kind: &TypeHost, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        header.phase.set(Phase::Starting);
        header.attention.set(true);
        header.last_active.set(self.idle_ticks());
        (kind.lifecycle.start)(self, slot);
    }

    /// `Entity::start` made a state.
    pub(super) fn entity_started(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        add(&self.counters().started, 1);
        header.last_active.set(self.idle_ticks());
        header.phase.set(Phase::Running);
        // Told to stop while it started.
        if let Some(stop) = header.stop_progress() {
            self.begin_stop(slot, stop.reason);
        }
        self.refresh_attention(header);
        if header.attention.get() {
            self.schedule(slot);
        }
    }

    /// `Entity::start` failed or panicked: all who wait are told.
    pub(super) fn entity_failed_to_start(&self, slot: NonNull<SlotHeader>, error: Option<&StartError>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let kind = &self.types()[usize::from(header.type_index)];
        if let Some(error) = error {
            tracing::error!(entity = kind.name, id = %header.id(), %error, "an entity failed to start");
        }
        self.fail_waiting(header, None, ClusterError::EntityDefect);
        header.run_finalizers();
        self.release(kind, slot);
    }

    pub(super) fn release(&self, kind: &TypeHost, slot: NonNull<SlotHeader>) {
        add(&self.counters().live, u64::MAX);
        // SAFETY: the callers have dropped the state, and nothing waits or runs.
        let shard = unsafe {
            let shard = slot.as_ref().shard.get();
            kind.arena.release(slot);
            shard
        };
        self.entity_leaves(shard);
    }

    /// What follows the end of every handler, however it ended.
    #[inline(always)]
    pub(super) fn after_handler(&self, slot: NonNull<SlotHeader>, access: Access) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        header.gate.leave(access);
        header.last_active.set(self.idle_ticks());
        if header.attention.get() {
            self.schedule(slot);
        }
    }

    /// A handler panicked: the state goes as soon as nothing of the entity is on the stack.
    #[cold]
    pub(super) fn mark_defect(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        header.phase.set(Phase::Defect);
        header.attention.set(true);
        self.schedule(slot);
    }

    pub(super) fn refresh_attention(&self, header: &SlotHeader) {
        let waiters = header.extras.borrow().as_ref().is_some_and(|extras| !extras.update_waiters.is_empty());
        header.attention.set(header.phase.get() != Phase::Running || header.mailbox.length() > 0 || waiters);
    }

    /// Lets an entity go on. Only from the ready queue: nothing of the entity is on the stack.
    pub(super) fn run_slot(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        header.scheduled.set(false);
        let kind = &self.types()[usize::from(header.type_index)];
        for _ in 0..STARTS_PER_TURN {
            match header.phase.get() {
                Phase::Free => return,
                Phase::Starting => {
                    // Nothing is polled here, so if it has not begun it never did.
                    if header.lifecycle.get().is_none() {
                        self.start_entity(kind, slot);
                    }
                    return;
                }
                Phase::Defect => {
                    self.tear_down(kind, slot, ClusterError::EntityDefect);
                    return;
                }
                Phase::Running | Phase::Stopping => {}
            }
            let Some(waiting) = next_startable(header, kind.options.concurrency) else { break };
            // SAFETY: the message is in this mailbox; afterwards its block is ours.
            unsafe {
                self.take_out(header, waiting);
                self.start_waiting(slot, waiting);
            }
        }
        self.wake_updates(header);
        if header.phase.get() == Phase::Stopping {
            self.go_on_stopping(kind, slot);
        }
        self.refresh_attention(header);
        if next_startable(header, kind.options.concurrency).is_some() || header.phase.get() == Phase::Defect {
            self.schedule(slot);
        }
    }

    /// # Safety
    /// `waiting` was just unlinked, and the gate is open for it.
    unsafe fn start_waiting(&self, slot: NonNull<SlotHeader>, waiting: NonNull<Waiting>) {
        // SAFETY: the block is ours; the payload moves into the handler.
        unsafe {
            let (method, call) = (waiting.as_ref().method, waiting.as_ref().call.get());
            // While it runs without its sender being told otherwise, it can be cancelled only here.
            self.remember_caller(call.reply_to, Location::Nowhere);
            let delivered = with_waiting(
                waiting,
                self.pool(),
                |value| self.begin(slot, method, value, call, NO_OUT),
                |block| self.begin(slot, method, block, call, NO_OUT),
            );
            match delivered {
                Delivered::Failed(error) => {
                    self.forget_caller(call.reply_to);
                    self.fail(call.reply_to, error);
                }
                Delivered::Running(cell) => self.remember_caller(call.reply_to, Location::Running(cell)),
                _ => self.forget_caller(call.reply_to),
            }
        }
    }

    pub(super) fn wake_updates(&self, header: &SlotHeader) {
        if !header.gate.borrow_is_free() {
            return;
        }
        let waiters = header.extras.borrow_mut().as_mut().map(|extras| core::mem::take(&mut extras.update_waiters));
        for waker in waiters.into_iter().flatten() {
            waker.wake();
        }
    }

    /// Says who waits for a message that was delivered without a sender and is not done.
    pub(super) fn attach(&self, delivered: &Delivered, key: super::call::PendingKey) {
        let (call, location) = match *delivered {
            // SAFETY: the message was just delivered, so it is where it was put.
            Delivered::Queued(waiting) => (unsafe { &waiting.as_ref().call }, Location::Queued(waiting)),
            Delivered::Running(cell) => {
                // SAFETY: as above; handlers begin with their head.
                (unsafe { &cell.cast::<HandlerHead>().as_ref().call }, Location::Running(cell))
            }
            Delivered::Done | Delivered::Failed(_) => return,
        };
        call.set(Call { reply_to: ReplyTo::Local(key), ..call.get() });
        self.pending.set_location(key, location);
    }

    /// Takes a message out of its mailbox, and off the account of the link that it came by.
    ///
    /// # Safety
    /// `waiting` is in the mailbox of `header`.
    unsafe fn take_out(&self, header: &SlotHeader, waiting: NonNull<Waiting>) {
        // SAFETY: passed on; messages in a mailbox are alive.
        let charged = unsafe {
            header.mailbox.unlink(waiting);
            waiting.as_ref().charged.take()
        };
        if let Some(charge) = charged {
            self.release_bytes(charge);
        }
    }

    /// Counts a message that was just queued against the lane of the link that it came by.
    pub(crate) fn charge(&self, delivered: &Delivered, link: LinkId, lane: Lane, bytes: u32) {
        if let Delivered::Queued(waiting) = delivered {
            // SAFETY: it was just delivered, so it is where it was put.
            unsafe { waiting.as_ref() }.charged.set(Some((link, lane, bytes)));
            self.charge_bytes((link, lane, bytes));
        }
    }

    // ---- interruption ----

    /// Takes a message out of the mailbox, or drops its handler at its await; unless it is uninterruptible.
    pub(super) fn interrupt(&self, location: Location) {
        match location {
            Location::Queued(waiting) => {
                // SAFETY: a location is cleared before its message starts, so it is still in its mailbox.
                unsafe {
                    let (slot, method) = (waiting.as_ref().slot, waiting.as_ref().method);
                    if method.message.uninterruptible {
                        forget_reply(&waiting.as_ref().call);
                        return;
                    }
                    self.take_out(slot.as_ref(), waiting);
                    Waiting::discard(waiting, self.pool());
                    self.refresh_attention(slot.as_ref());
                    if slot.as_ref().phase.get() != Phase::Starting {
                        self.schedule(slot);
                    }
                }
            }
            Location::Running(cell) => {
                // SAFETY: a location is cleared before its handler ends.
                let head = unsafe { cell.cast::<HandlerHead>().as_ref() };
                forget_reply(&head.call);
                if head.method.message.uninterruptible {
                    return;
                }
                if head.header.polling.get() {
                    head.header.interrupted.set(true);
                } else {
                    // SAFETY: the handler is in its slot's list and is not being polled.
                    unsafe { self.end_handler(cell, None) };
                }
            }
            _ => {}
        }
    }

    /// Drops a handler that waits; with an error, its sender is told.
    ///
    /// # Safety
    /// `cell` is a handler in the list of its slot, and is not being polled.
    pub(super) unsafe fn end_handler(&self, cell: NonNull<CellHeader>, error: Option<ClusterError>) {
        // SAFETY: the handler is alive until it is closed here.
        unsafe {
            let head = cell.cast::<HandlerHead>().as_ref();
            let (slot, access, reply_to) = (head.slot, head.method.access, head.call.get().reply_to);
            slot.as_ref().handlers.remove(cell);
            self.forget_caller(reply_to);
            (head.header.vtable().drop_future)(cell, self.pool());
            cell::close(cell, self.pool());
            if let Some(error) = error {
                self.fail(reply_to, error);
            }
            self.after_handler(slot, access);
        }
    }

    /// Fails the messages that wait: all, or those that came before `cut`.
    pub(super) fn fail_waiting(&self, header: &SlotHeader, cut: Option<u32>, error: ClusterError) {
        loop {
            let heads = [header.mailbox.turn_head(), header.mailbox.concurrent_head()];
            let belongs = |waiting: &NonNull<Waiting>| {
                // SAFETY: messages in a mailbox are alive.
                let sequence = unsafe { waiting.as_ref() }.sequence;
                cut.is_none_or(|cut| Mailbox::is_before(sequence, cut))
            };
            let Some(waiting) = heads.into_iter().flatten().find(belongs) else { return };
            // SAFETY: it is in this mailbox; afterwards its block is ours.
            unsafe {
                self.take_out(header, waiting);
                let reply_to = waiting.as_ref().call.get().reply_to;
                self.forget_caller(reply_to);
                Waiting::discard(waiting, self.pool());
                self.fail(reply_to, error);
            }
        }
    }
}

fn forget_reply(call: &core::cell::Cell<Call>) {
    call.set(Call { reply_to: ReplyTo::Nobody, ..call.get() });
}

fn is_listed(head: &HandlerHead) -> bool {
    let cell = NonNull::from(&head.header);
    // SAFETY: the slot of a live handler is alive.
    let first = unsafe { head.slot.as_ref() }.handlers.first();
    head.header.previous.get().is_some() || first == Some(cell)
}

fn for_each_handler(header: &SlotHeader, mut with: impl FnMut(NonNull<CellHeader>)) {
    let mut next = header.handlers.first();
    while let Some(cell) = next {
        with(cell);
        // SAFETY: cells in the list are alive.
        next = unsafe { cell.as_ref() }.next.get();
    }
}

/// Whether a new message may start before everything that waits (which is nothing, or does not mind).
#[inline(always)]
fn may_start_now(header: &SlotHeader, access: Access, concurrency: u16) -> bool {
    if !header.attention.get() {
        return header.gate.is_open(access, concurrency);
    }
    access == Access::Concurrent
        && header.phase.get() == Phase::Running
        && header.gate.is_open(access, concurrency)
        && header.mailbox.concurrent_head().is_none()
        && !writer_waits(header, concurrency)
}

/// Whether the next message in turn is a `&mut self` one that lacks nothing but the end of readers.
fn writer_waits(header: &SlotHeader, concurrency: u16) -> bool {
    // SAFETY: messages in a mailbox are alive.
    header.mailbox.turn_head().is_some_and(|head| unsafe { head.as_ref() }.method.access == Access::Exclusive)
        && header.gate.writer_waits_for_readers(concurrency)
}

/// Which of the waiting messages may start now: the first in turn or the first concurrent one, by arrival.
fn next_startable(header: &SlotHeader, concurrency: u16) -> Option<NonNull<Waiting>> {
    let cut = match header.phase.get() {
        Phase::Running => None,
        Phase::Stopping => Some(header.stop_progress()?.cut),
        _ => return None,
    };
    let open = |waiting: &NonNull<Waiting>| {
        // SAFETY: messages in a mailbox are alive.
        let waiting = unsafe { waiting.as_ref() };
        header.gate.is_open(waiting.method.access, concurrency)
            && cut.is_none_or(|cut| Mailbox::is_before(waiting.sequence, cut))
    };
    let turn = header.mailbox.turn_head();
    let concurrent = header.mailbox.concurrent_head().filter(open).filter(|waiting| {
        // SAFETY: messages in a mailbox are alive.
        let overtakes =
            turn.is_some_and(|turn| unsafe { Mailbox::is_before(turn.as_ref().sequence, waiting.as_ref().sequence) });
        !(overtakes && writer_waits(header, concurrency))
    });
    match (turn.filter(open), concurrent) {
        (Some(turn), Some(concurrent)) => {
            // SAFETY: messages in a mailbox are alive.
            let earlier = unsafe { Mailbox::is_before(turn.as_ref().sequence, concurrent.as_ref().sequence) };
            Some(if earlier { turn } else { concurrent })
        }
        (turn, concurrent) => turn.or(concurrent),
    }
}
