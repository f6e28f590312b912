//! The entities, tasks and waiting asks of one core.
//!
//! A `Host` is a state machine without I/O or clock: the engine tells it the time and lets it run; handles in user code
//! find it through a thread-local that is set while it runs ([`Host::enter`]). Messages come in by `deliver` (in
//! `hosting.rs`), results leave to asks here or through the [`Router`]. Called by `engine`, `ask` and `scope`.
//!
//! Invariants:
//! - no `RefCell` of the host is borrowed while user code is polled, dropped or woken;
//! - cells and slots are ended only when nothing of them is being polled further up the stack;
//! - each runnable cell or slot is in the ready queue at most once.
#![allow(unsafe_code)]

use core::any::Any;
use core::cell::{Cell, OnceCell, RefCell};
use core::future::Future;
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::{CallChain, PendingKey, ReplyTo};
use super::callers::Caller;
use super::cell::{self, CellHeader, CellList, WakeTarget};
use super::dispatch::{Answer, HandlerHead, LifecycleHead, Method, Tables, spawn_task};
use super::hosting::TypeHost;
use super::mailbox::Charge;
use super::message::{EntityRef, Message, Protocol};
use super::messenger::Messenger;
use super::options::EntityDefaults;
use super::ownership::Ownership;
use super::pending::{Location, PendingAsks, State};
use super::pool::BlockPool;
use super::router::Router;
use super::slot::SlotHeader;
use crate::base::hash::WordMap;
use crate::base::limits::{INLINE_DEPTH_MAX, TURN_BUDGET};
use crate::base::timers::{TimerId, TimerWheel};
use crate::base::{ClusterError, CoreIndex, LinkId, Nanos, ShardId, Token};
use crate::wire::Lane;

/// Unit of the times at which idle entities are looked at.
pub(super) const IDLE_TICK: Duration = Duration::from_millis(64);

thread_local! {
    static CURRENT: Cell<*const Host> = const { Cell::new(core::ptr::null()) };
}

/// Something that can run.
#[derive(Clone, Copy)]
pub(super) enum Runnable {
    Cell(NonNull<CellHeader>),
    Slot(NonNull<SlotHeader>),
    /// The next part of the look for entities of shards that are being released.
    ReleaseScan,
    /// Everything that was ready before it has run.
    Barrier,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerKey {
    /// The timeout of an ask.
    Ask(PendingKey),
    /// A sleep: an ask without a message.
    Sleep(PendingKey),
    /// The time that a sender behind a link said it would wait.
    Caller(LinkId, u64),
    /// The termination timeout of an entity (slot and generation).
    Terminate(NonNull<SlotHeader>, u32),
}

/// A start or stop whose poll is on the stack.
#[derive(Clone, Copy)]
pub(super) struct PolledLifecycle {
    head: NonNull<LifecycleHead>,
    depth: u32,
}

/// What a host needs to know from the start.
pub struct HostOptions {
    /// The pod or client of this process that the core belongs to.
    pub node: u32,
    /// The core.
    pub core: CoreIndex,
    /// Seed of the entity hash.
    pub hash_seed: u64,
    /// Shards of the role.
    pub number_of_shards: u32,
    /// A random number that makes the ids of this core's calls unique.
    pub call_id_base: u64,
    /// Defaults for entity types.
    pub defaults: EntityDefaults,
    /// Where wake-ups go.
    pub wake_target: Arc<WakeTarget>,
}

/// Counters of one core, written by the core and read by anyone.
#[derive(Default)]
pub struct HostCounters {
    /// Index of the entity type whose handler is being polled, plus one; zero if none is.
    pub polling: AtomicU64,
    /// Messages delivered to entities.
    pub messages: AtomicU64,
    /// Entities started.
    pub started: AtomicU64,
    /// Entities stopped.
    pub stopped: AtomicU64,
    /// Handlers that panicked.
    pub defects: AtomicU64,
    /// Requests that were ended since the time was over that their sender would wait, and it had not said so.
    pub expired: AtomicU64,
    /// Entities that live now.
    pub live: AtomicU64,
}

/// Adds to a counter that only this thread writes: no read-modify-write on the bus.
#[inline(always)]
pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// The entities, tasks and waiting asks of one core.
pub struct Host {
    pub(super) options: HostOptions,
    pub(super) types: OnceCell<Box<[TypeHost]>>,
    tags: RefCell<WordMap<u32, (u16, &'static Method)>>,
    pool: BlockPool,
    pub(super) ready: RefCell<VecDeque<Runnable>>,
    tasks: CellList,
    pub(super) pending: PendingAsks,
    pub(super) timers: RefCell<TimerWheel<TimerKey>>,
    now: Cell<Nanos>,
    depth: Cell<u32>,
    budget: Cell<u32>,
    current: Cell<Option<NonNull<HandlerHead>>>,
    /// The start or stop that is being polled, innermost, and the depth of its poll.
    lifecycle: Cell<Option<PolledLifecycle>>,
    next_call: Cell<u64>,
    /// Tokens of the shards whose messages are taken now; zero for all others.
    pub(super) shards: RefCell<Box<[Token]>>,
    pub(super) ownership: Ownership,
    router: OnceCell<Rc<dyn Router>>,
    /// Calls from elsewhere that wait or run here, so that their senders can cancel them.
    pub(super) callers: RefCell<HashMap<ReplyTo, Caller>>,
    /// Bytes of acknowledged discards that wait in mailboxes, by the link that they came by.
    charged: RefCell<WordMap<(LinkId, Lane), u64>>,
    pub(super) sweep: Cell<(usize, usize)>,
    pub(super) next_sweep: Cell<Nanos>,
    pub(super) stopping: Cell<bool>,
    counters: Arc<HostCounters>,
}

/// While it lives, handles on this thread find the host.
pub struct Entered<'a> {
    previous: *const Host,
    marker: core::marker::PhantomData<&'a Host>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}

impl Host {
    /// A host without entity types and shards.
    pub fn new(options: HostOptions) -> Host {
        let options_shards = options.number_of_shards;
        let shards = vec![Token(0); options_shards as usize].into_boxed_slice();
        Host {
            next_call: Cell::new(options.call_id_base),
            options,
            types: OnceCell::new(),
            tags: RefCell::default(),
            pool: BlockPool::default(),
            ready: RefCell::default(),
            tasks: CellList::default(),
            pending: PendingAsks::default(),
            timers: RefCell::new(TimerWheel::with_capacity(0)),
            now: Cell::new(Nanos::ZERO),
            depth: Cell::new(0),
            budget: Cell::new(TURN_BUDGET),
            current: Cell::new(None),
            lifecycle: Cell::new(None),
            ownership: Ownership::new(options_shards),
            shards: RefCell::new(shards),
            router: OnceCell::new(),
            callers: RefCell::default(),
            charged: RefCell::default(),
            sweep: Cell::new((0, 0)),
            next_sweep: Cell::new(Nanos::ZERO),
            stopping: Cell::new(false),
            counters: Arc::default(),
        }
    }

    /// Sets the way out; once, before anything runs.
    pub fn set_router(&self, router: Rc<dyn Router>) {
        assert!(self.router.set(router).is_ok(), "the router of a host is set once");
    }

    /// Sets the entity types; once, before anything runs.
    pub fn set_types(&self, types: Vec<TypeHost>) {
        let mut tags = self.tags.borrow_mut();
        for (index, kind) in types.iter().enumerate() {
            for method in kind.methods {
                tags.insert(method.message.tag, (index as u16, method));
            }
        }
        drop(tags);
        assert!(self.types.set(types.into_boxed_slice()).is_ok(), "the types of a host are set once");
    }

    /// Makes this the host that handles on this thread find.
    #[must_use]
    pub fn enter(&self) -> Entered<'_> {
        Entered { previous: CURRENT.replace(self), marker: core::marker::PhantomData }
    }

    /// Runs `with` on the host of this thread, if one is entered.
    #[inline(always)]
    pub fn with_current<R>(with: impl FnOnce(Option<&Host>) -> R) -> R {
        let current = CURRENT.get();
        // SAFETY: the pointer is set only while `Entered` borrows the host, and `with` cannot keep the reference.
        with(unsafe { current.as_ref() })
    }

    /// The node that the core belongs to.
    #[inline(always)]
    pub fn node(&self) -> u32 {
        self.options.node
    }

    /// The core.
    pub fn core(&self) -> CoreIndex {
        self.options.core
    }

    /// Seed of the entity hash.
    pub fn hash_seed(&self) -> u64 {
        self.options.hash_seed
    }

    /// Defaults for entity types.
    pub fn defaults(&self) -> &EntityDefaults {
        &self.options.defaults
    }

    /// The counters, for any thread.
    pub fn counters(&self) -> &Arc<HostCounters> {
        &self.counters
    }

    #[inline(always)]
    pub(super) fn wake_target(&self) -> &Arc<WakeTarget> {
        &self.options.wake_target
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub(crate) fn router(&self) -> &dyn Router {
        &**self.router.get().unwrap_or_else(|| unreachable!("a host runs with a router"))
    }

    /// The time that the engine told last.
    #[inline(always)]
    pub fn now(&self) -> Nanos {
        self.now.get()
    }

    #[inline(always)]
    pub(super) fn idle_ticks(&self) -> u32 {
        (self.now.get().0 / IDLE_TICK.as_nanos() as u64) as u32
    }

    /// The types, in order of registration.
    #[inline(always)]
    pub(crate) fn types(&self) -> &[TypeHost] {
        self.types.get().map_or(&[], |types| types)
    }

    /// Position of a type by its name.
    pub fn type_index(&self, name: &str) -> Option<u16> {
        self.types().iter().position(|kind| kind.name == name).map(|index| index as u16)
    }

    /// Sends messages from this core.
    #[must_use]
    pub fn messenger<R: EntityRef>(&self) -> Messenger<R> {
        Messenger::new(self.node(), self.type_index(<R::Protocol as Protocol>::NAME), self.hash_seed())
    }

    /// The type and method that a tag stands for.
    pub(crate) fn method_of_tag(&self, tag: u32) -> Option<(u16, &'static Method)> {
        self.tags.borrow().get(&tag).copied()
    }

    /// The token of a shard if this core takes messages for it.
    #[inline(always)]
    pub fn shard_token(&self, shard: ShardId) -> Option<Token> {
        self.shards.borrow().get(shard.0 as usize).copied().filter(|token| token.0 != 0)
    }

    /// Whether this core owns the shard of a hash.
    #[inline(always)]
    pub(super) fn hosts(&self, hash: u64) -> bool {
        let shards = self.shards.borrow();
        let shard = crate::base::hash::shard_of_hash(hash, shards.len() as u32);
        shards.get(shard.0 as usize).is_some_and(|token| token.0 != 0)
    }

    /// Shards of the role.
    #[inline(always)]
    pub fn number_of_shards(&self) -> u32 {
        self.shards.borrow().len() as u32
    }

    #[inline(always)]
    pub(super) fn next_call_id(&self) -> u64 {
        let id = self.next_call.get();
        self.next_call.set(id.wrapping_add(1));
        id
    }

    /// The chain that an ask made now carries.
    #[inline(always)]
    pub(super) fn current_chain(&self) -> CallChain {
        if let Some(polled) = self.lifecycle.get()
            && polled.depth == self.depth.get()
        {
            // SAFETY: it is being polled, so its cell is alive.
            return unsafe { polled.head.as_ref() }.chain;
        }
        match self.current.get() {
            None => CallChain::EMPTY,
            Some(head) => {
                // SAFETY: the current handler is being polled, so its cell is alive.
                let head = unsafe { head.as_ref() };
                head.call.get().chain.with(head.call_id)
            }
        }
    }

    /// Handlers that are being polled, innermost first.
    pub(super) fn polled_handlers(&self) -> impl Iterator<Item = &HandlerHead> {
        let mut next = self.current.get();
        core::iter::from_fn(move || {
            // SAFETY: handlers on the stack are alive until their poll returns.
            let head = unsafe { next?.as_ref() };
            next = head.outer.get();
            Some(head)
        })
    }

    #[inline(always)]
    pub(super) fn enter_handler(&self, head: &HandlerHead) {
        head.header.polling.set(true);
        head.outer.set(self.current.replace(Some(NonNull::from(head))));
        self.depth.set(self.depth.get() + 1);
        // SAFETY: slots are alive as long as the host.
        let type_index = unsafe { head.slot.as_ref() }.type_index;
        self.counters.polling.store(u64::from(type_index) + 1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn leave_handler(&self, head: &HandlerHead) {
        head.header.polling.set(false);
        self.current.set(head.outer.get());
        self.depth.set(self.depth.get() - 1);
        if self.depth.get() == 0 {
            self.counters.polling.store(0, Ordering::Relaxed);
        }
    }

    /// Says that a start or stop is being polled; what it returns goes to [`Host::leave_lifecycle`].
    pub(super) fn enter_lifecycle(&self, head: &LifecycleHead) -> Option<PolledLifecycle> {
        let depth = self.depth.get() + 1;
        self.depth.set(depth);
        self.lifecycle.replace(Some(PolledLifecycle { head: NonNull::from(head), depth }))
    }

    pub(super) fn leave_lifecycle(&self, outer: Option<PolledLifecycle>) {
        self.depth.set(self.depth.get() - 1);
        self.lifecycle.set(outer);
    }

    /// Whether an entity may start inside the present poll.
    pub(super) fn may_start_inline(&self) -> bool {
        self.depth.get() < INLINE_DEPTH_MAX
    }

    /// Whether one more handler may run inside the present poll.
    #[inline(always)]
    pub(super) fn may_run_inline(&self) -> bool {
        self.depth.get() < INLINE_DEPTH_MAX
    }

    /// Takes one ask from the budget of the present poll. When it is spent the ask has to yield, so that a task whose
    /// asks are all ready at once does not keep the core.
    #[inline(always)]
    pub(super) fn take_budget(&self) -> bool {
        let budget = self.budget.get();
        self.budget.set(budget.saturating_sub(1));
        budget != 0
    }

    // ---- the ready queue ----

    #[inline]
    pub(super) fn queue_cell(&self, cell: NonNull<CellHeader>) {
        self.ready.borrow_mut().push_back(Runnable::Cell(cell));
    }

    #[inline]
    pub(super) fn schedule(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        if !unsafe { slot.as_ref() }.scheduled.replace(true) {
            self.ready.borrow_mut().push_back(Runnable::Slot(slot));
        }
    }

    /// Whether something can run at once.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || self.options.wake_target.has_woken()
    }

    /// How many things can run at once.
    #[inline]
    pub fn ready_length(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Tells the time.
    #[inline]
    pub fn set_now(&self, now: Nanos) {
        self.now.set(now);
    }

    /// Gives every poll that follows its full budget of asks that complete at once.
    #[inline]
    pub fn refill_budget(&self) {
        self.budget.set(TURN_BUDGET);
    }

    /// Takes over what foreign threads woke. True if there was anything.
    pub fn take_woken(&self) -> bool {
        if !self.options.wake_target.has_woken() {
            return false;
        }
        self.options.wake_target.take_woken(&self.pool, |cell| self.queue_cell(cell));
        true
    }

    /// Whatever `wake` wakes runs before what is ready already: its turn was earlier.
    pub(crate) fn wake_first(&self, wake: impl FnOnce()) {
        let ready_before = self.ready.borrow().len();
        wake();
        self.ready.borrow_mut().rotate_left(ready_before);
    }

    /// Runs one thing that is ready. False if nothing is.
    pub fn run_one(&self) -> bool {
        let next = self.ready.borrow_mut().pop_front();
        match next {
            None => false,
            Some(Runnable::Slot(slot)) => {
                if self.is_frozen() {
                    self.keep_frozen(Runnable::Slot(slot));
                    return true;
                }
                self.refill_budget();
                self.run_slot(slot);
                true
            }
            Some(Runnable::Barrier) => {
                self.router().woken_have_run(self);
                true
            }
            Some(Runnable::ReleaseScan) => {
                self.scan_for_release();
                true
            }
            Some(Runnable::Cell(cell)) => {
                // SAFETY: the queue's reference keeps the cell alive.
                if self.is_frozen() && unsafe { cell.as_ref() }.vtable().of_entity {
                    self.keep_frozen(Runnable::Cell(cell));
                    return true;
                }
                self.refill_budget();
                // SAFETY: the queue's reference came with the cell and is given up here.
                unsafe {
                    if cell::begin_poll(cell) {
                        (cell.as_ref().vtable().poll)(self, cell);
                    }
                    cell::drop_local(cell, Some(&self.pool));
                }
                true
            }
        }
    }

    // ---- tasks ----

    /// Runs a future on this core until it ends or the core stops.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let cell = spawn_task(self, future);
        // SAFETY: the cell is alive until `end_task`, in no list, and the engine's reference keeps it alive here.
        unsafe {
            self.tasks.insert(cell);
            let _entered = self.enter();
            cell::wake_cell(cell);
        }
    }

    /// # Safety
    /// The task's future is dropped.
    pub(super) unsafe fn end_task(&self, cell: NonNull<CellHeader>) {
        // SAFETY: a task is in the list from `spawn` to here; the engine's reference is ours.
        unsafe {
            self.tasks.remove(cell);
            cell::close(cell, &self.pool);
        }
    }

    // ---- outcomes ----

    /// Hands an answer to an ask of this core.
    pub(super) fn complete_local<M: Message>(&self, key: PendingKey, answer: Answer<M>) {
        let layout = Tables::<M>::ANSWER.layout;
        let block = self.pool.take(layout);
        // SAFETY: the block has the layout of the answer.
        unsafe { block.cast::<Answer<M>>().write(answer) };
        self.settle_with_block(key, block, Tables::<M>::ANSWER);
    }

    /// Hands an answer that lies in a block of its layout to an ask of this core, or drops it if nobody waits.
    fn settle_with_block(
        &self,
        key: PendingKey,
        block: NonNull<u8>,
        answer_type: &'static super::dispatch::AnswerVtable,
    ) {
        if !self.pending.settle(key, State::Answered(block)) {
            // SAFETY: the block holds an answer of this type that nobody else knows of.
            unsafe {
                (answer_type.drop)(block.as_ptr().cast());
                self.pool.give(block, answer_type.layout);
            }
        }
    }

    /// An answer came in an archive: decodes it for the ask that waits for it.
    pub(crate) fn complete_encoded(&self, key: PendingKey, bytes: &[u8]) {
        let Some(answer_type) = self.pending.answer_type(key) else { return };
        let block = self.pool.take(answer_type.layout);
        // SAFETY: the block has the layout of the answer.
        match unsafe { (answer_type.decode)(bytes, block.as_ptr().cast()) } {
            Ok(()) => self.settle_with_block(key, block, answer_type),
            Err(_) => {
                // SAFETY: the block holds nothing.
                unsafe { self.pool.give(block, answer_type.layout) };
                self.pending.settle(key, State::Failed(ClusterError::Serialization));
            }
        }
    }

    /// An answer came from another core: moves it to the ask that waits for it.
    ///
    /// # Safety
    /// `answer` is initialised, of the type `answer_type`, and moved out.
    pub(crate) unsafe fn complete_moved(
        &self,
        key: PendingKey,
        answer_type: &'static super::dispatch::AnswerVtable,
        answer: *mut (),
    ) {
        let block = self.pool.take(answer_type.layout);
        // SAFETY: the block has the layout of the answer.
        unsafe {
            core::ptr::copy_nonoverlapping(answer.cast::<u8>(), block.as_ptr(), answer_type.layout.size());
        }
        self.settle_with_block(key, block, answer_type);
    }

    /// An answer came in a parcel: moves it to the ask that waits for it.
    pub(crate) fn complete_from_core(
        &self,
        key: PendingKey,
        answer_type: &'static super::dispatch::AnswerVtable,
        answer: *mut (),
    ) {
        // SAFETY: a parcel holds an initialised answer of its type, which it gives away here.
        unsafe { self.complete_moved(key, answer_type, answer) };
    }

    /// The doorbell of the core.
    pub fn doorbell(&self) -> &Arc<crate::mesh::Doorbell> {
        self.options.wake_target.doorbell()
    }

    /// A discard is in the mailbox.
    pub(crate) fn acknowledge(&self, key: PendingKey) {
        self.pending.settle(key, State::Acknowledged);
    }

    /// Whether an ask of this core waits for an answer over that link.
    pub(crate) fn is_at_link(&self, key: PendingKey, link: LinkId) -> bool {
        self.pending.location(key) == Location::Link(link)
    }

    /// An ask of this core failed.
    pub(crate) fn fail_local(&self, key: PendingKey, error: ClusterError) {
        self.pending.settle(key, State::Failed(error));
    }

    /// Tells whoever waits that the message failed.
    pub(crate) fn fail(&self, reply_to: ReplyTo, error: ClusterError) {
        match reply_to {
            ReplyTo::Nobody => {}
            ReplyTo::Local(key) => self.fail_local(key, error),
            ReplyTo::Core(core, key) => self.router().fail_core(core, key, error),
            ReplyTo::Link(link, correlation) => self.router().fail_link(link, correlation, error),
            ReplyTo::Json(link, correlation) => self.router().fail_json(link, correlation, error),
        }
    }

    /// Bytes of acknowledged discards of a lane of a link that still wait in mailboxes.
    pub(crate) fn charged_bytes(&self, link: LinkId, lane: Lane) -> u64 {
        self.charged.borrow().get(&(link, lane)).copied().unwrap_or(0)
    }

    pub(super) fn charge_bytes(&self, (link, lane, bytes): Charge) {
        *self.charged.borrow_mut().entry((link, lane)).or_default() += u64::from(bytes);
    }

    pub(super) fn release_bytes(&self, (link, lane, bytes): Charge) {
        let mut charged = self.charged.borrow_mut();
        if let Some(open) = charged.get_mut(&(link, lane)) {
            *open = open.saturating_sub(u64::from(bytes));
            if *open == 0 {
                charged.remove(&(link, lane));
            }
        }
    }

    // ---- senders that stop waiting ----

    /// Ends the waiting of an ask for good: its sender was dropped or ran out of time.
    pub(super) fn abandon(&self, key: PendingKey) {
        let location = self.pending.location(key);
        match location {
            Location::Core(_) | Location::Link(_) | Location::Unrouted => self.router().cancel(location, key),
            _ => self.interrupt(location),
        }
    }

    /// A way out may have opened: wakes an ask that waits for one.
    pub(crate) fn route_opened(&self, key: PendingKey) {
        self.pending.route_opened(key);
    }

    // ---- timers ----

    pub(super) fn arm(&self, deadline: Nanos, key: TimerKey) -> TimerId {
        self.timers.borrow_mut().insert(deadline, key)
    }

    pub(super) fn disarm(&self, timer: Option<TimerId>) {
        if let Some(timer) = timer {
            self.timers.borrow_mut().cancel(timer);
        }
    }

    /// When something has to happen next without an event.
    pub fn next_deadline(&self) -> Nanos {
        let timer = self.timers.borrow().next_deadline().unwrap_or(Nanos::NEVER);
        if self.types().is_empty() { timer } else { timer.min(self.next_sweep.get()) }
    }

    /// Does what is due.
    pub fn advance(&self) {
        let now = self.now.get();
        loop {
            let due = self.timers.borrow_mut().pop_expired(now);
            match due {
                None => break,
                Some(TimerKey::Ask(key)) => {
                    // The timer is gone already.
                    if self.pending.is_waiting(key) {
                        self.abandon(key);
                        self.pending.settle(key, State::Failed(ClusterError::SendTimeout));
                    }
                }
                Some(TimerKey::Sleep(key)) => self.acknowledge(key),
                Some(TimerKey::Caller(link, correlation)) => self.caller_is_late(link, correlation),
                Some(key @ TimerKey::Terminate(..)) if self.is_frozen() => self.ownership.keep_timer(key),
                Some(TimerKey::Terminate(slot, generation)) => self.termination_timed_out(slot, generation),
            }
        }
        if !self.is_frozen() {
            self.sweep_idle(now);
        }
    }

    /// Writes the text of a panic to the log.
    #[cold]
    pub(super) fn log_defect(&self, slot: NonNull<SlotHeader>, what: &str, panic: &(dyn Any + Send)) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let kind = self.types().get(usize::from(header.type_index)).map_or("?", |kind| kind.name);
        add(&self.counters.defects, 1);
        tracing::error!(entity = kind, id = %header.id(), what, panic = panic_text(panic), "an entity panicked");
    }

    /// How many asks of this core wait for their outcome.
    pub fn waiting_asks(&self) -> usize {
        self.pending.live()
    }

    /// Blocks of memory in use; for tests of leaks.
    pub fn blocks_in_use(&self) -> usize {
        self.pool.outstanding()
    }
}

/// What a panic says.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

impl Drop for Host {
    fn drop(&mut self) {
        // Futures and states may look for their host while they are dropped: it is still whole here.
        let host = ManuallyDrop::new(self);
        let _entered = host.enter();
        while let Some(task) = host.tasks.first() {
            // SAFETY: a task in the list is alive and nothing is being polled.
            unsafe {
                (task.as_ref().vtable().drop_future)(task, &host.pool);
                host.end_task(task);
            }
        }
        host.drop_entities();
        host.drop_returned();
        host.end_frozen();
        let ready: Vec<Runnable> = host.ready.borrow_mut().drain(..).collect();
        for runnable in ready {
            if let Runnable::Cell(cell) = runnable {
                // SAFETY: the queue's reference came with the cell.
                unsafe { cell::drop_local(cell, Some(&host.pool)) };
            }
        }
    }
}
