//! From a message without a type to a handler with one, and back to a reply.
//!
//! For each message of each entity type there is one [`Method`]: functions made for exactly these types, reached
//! through pointers. The generic code here builds the handler's future in a cell, polls it, and hands the result to
//! whoever waits. Called by `host`; the macro builds the tables with [`Method::exclusive`] and friends.
//!
//! Invariants: `start` consumes the message in every case; a handler holds what its access says from before `start`
//! until `host.after_handler`; the result goes to exactly one place.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::any::Any;
use core::cell::UnsafeCell;
use core::future::Future;
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};
use std::panic::catch_unwind;

pub use super::call::Call;
use super::call::{CallChain, ReplyTo};
use super::cell::{CellHeader, CellVtable, borrowed_waker, close};
use super::host::Host;
use super::in_place::InPlaceVtable;
use super::interceptor::Within;
use super::lifecycle::Entity;
use super::message::{Access, HandledExclusive, HandledShared, Message};
use super::options::LoadRule;
use super::pool::BlockPool;
use super::slot::{SlotHeader, state_pointer};
use crate::base::{ClusterError, SendError};
use crate::wire::Wire;
use crate::wire::codec::{self, CodecError};

/// What a handler answers: the reply or the declared error of its message.
pub type Answer<M> = Result<<M as Message>::Reply, <M as Message>::Error>;

/// What can be done with a message without knowing its type.
pub struct MessageVtable {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Position among its methods.
    pub index: u16,
    /// What stands for the message on the wire.
    pub tag: u32,
    /// Hash over the shape of message, reply and error.
    pub schema: u64,
    /// Whether its handler runs to its end in any case.
    pub uninterruptible: bool,
    /// Layout of the message.
    pub layout: Layout,
    /// Drops a message in place.
    pub drop: unsafe fn(*mut ()),
    /// Archives a message at the end of a buffer.
    pub encode: unsafe fn(*const (), &mut Vec<u8>, usize) -> Result<(), CodecError>,
    /// Its answer.
    pub answer: &'static AnswerVtable,
}

/// What can be done with an answer without knowing its type.
pub struct AnswerVtable {
    /// Layout of the answer.
    pub layout: Layout,
    /// Drops an answer in place.
    pub drop: unsafe fn(*mut ()),
    /// Validates and decodes an answer into uninitialised memory.
    pub decode: unsafe fn(&[u8], *mut ()) -> Result<(), CodecError>,
    /// Which type it is.
    pub type_id: fn() -> core::any::TypeId,
}

/// The tables of a message type.
pub(super) struct Tables<M>(core::marker::PhantomData<M>);

impl<M: Message> Tables<M> {
    pub(super) const ANSWER: &'static AnswerVtable = &AnswerVtable {
        layout: Layout::new::<Answer<M>>(),
        drop: drop_in_place::<Answer<M>>,
        decode: decode_into::<Answer<M>>,
        type_id: core::any::TypeId::of::<Answer<M>>,
    };
    pub(super) const MESSAGE: &'static MessageVtable = &MessageVtable {
        protocol: <M::Protocol as super::message::Protocol>::NAME,
        index: M::INDEX,
        tag: M::TAG,
        schema: M::CALL_SCHEMA,
        uninterruptible: M::UNINTERRUPTIBLE,
        layout: Layout::new::<M>(),
        drop: drop_in_place::<M>,
        encode: encode_from::<M>,
        answer: Self::ANSWER,
    };
}

unsafe fn drop_in_place<T>(value: *mut ()) {
    // SAFETY: the caller has an initialised `T` there that it gives up.
    unsafe { value.cast::<T>().drop_in_place() };
}

unsafe fn encode_from<T: Wire>(value: *const (), into: &mut Vec<u8>, limit: usize) -> Result<(), CodecError> {
    // SAFETY: the caller has an initialised `T` there.
    codec::encode(unsafe { &*value.cast::<T>() }, into, limit)
}

unsafe fn decode_into<T: Wire>(bytes: &[u8], into: *mut ()) -> Result<(), CodecError> {
    let value = codec::decode::<T>(bytes)?;
    // SAFETY: the caller has room for a `T` there.
    unsafe { into.cast::<T>().write(value) };
    Ok(())
}

/// What `start` did.
pub enum Started {
    /// The handler is done; its answer went to `out`, or to who waits.
    Done,
    /// The handler waits in its cell.
    Pending(NonNull<CellHeader>),
    /// The handler panicked; who waits was told unless `out` was given.
    Defect,
    /// The handler was not called; nobody was told.
    Refused(ClusterError),
}

type Start = unsafe fn(&Host, NonNull<SlotHeader>, &'static Method, *mut (), Call, *mut ()) -> Started;

/// Takes over a message that lies at a pointer.
type Consumer<'a> = &'a mut dyn FnMut(*mut ());

/// How one message is handled by one entity type.
pub struct Method {
    /// The message.
    pub message: &'static MessageVtable,
    /// What the handler does with the state.
    pub access: Access,
    pub(super) name: &'static str,
    /// Decodes a message from a frame and hands it over; it is consumed.
    pub(super) decode: unsafe fn(&[u8], Consumer<'_>) -> Result<(), CodecError>,
    pub(super) start: Start,
    pub(super) may_load: unsafe fn(&dyn Any, *const ()) -> bool,
    pub(super) json: Option<&'static JsonVtable>,
    pub(super) in_place: Option<&'static InPlaceVtable>,
}

/// How a message is called in JSON.
pub struct JsonVtable {
    pub(super) decode: unsafe fn(&str, Consumer<'_>) -> Result<(), String>,
    pub(super) encode: unsafe fn(*const ()) -> Result<Result<String, String>, String>,
}

impl Method {
    /// The method of a message with a `&mut self` handler.
    pub const fn exclusive<S: Entity, M: HandledExclusive<S>>() -> Method {
        Method::new::<M>(start_exclusive::<S, M>, None)
    }

    /// The method of a message with a `&self` handler.
    pub const fn shared<S: Entity, M: HandledShared<S>>() -> Method {
        Method::new::<M>(start_shared::<S, M>, None)
    }

    /// The same method, callable in JSON too.
    #[must_use]
    pub const fn with_json<M>(mut self) -> Method
    where
        M: Message<Reply: serde::Serialize, Error: serde::Serialize> + serde::de::DeserializeOwned,
    {
        self.json = Some(&JsonVtable { decode: decode_json::<M>, encode: encode_json::<M> });
        self
    }

    /// The name of the message.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Validates and decodes a message and hands it to `then`, which must consume it.
    pub(crate) fn decode_message(&self, bytes: &[u8], then: &mut dyn FnMut(*mut ())) -> Result<(), CodecError> {
        // SAFETY: the function needs nothing but its arguments.
        unsafe { (self.decode)(bytes, then) }
    }

    /// The same from JSON; the error says what is wrong with the text.
    pub(crate) fn decode_json(&self, text: &str, then: &mut dyn FnMut(*mut ())) -> Result<(), String> {
        match self.json {
            // SAFETY: as above.
            Some(json) => unsafe { (json.decode)(text, then) },
            None => Err("its protocol is not callable in JSON (`#[atoll::protocol(.., json)]`)".to_owned()),
        }
    }

    const fn new<M: Message>(start: Start, json: Option<&'static JsonVtable>) -> Method {
        Method {
            message: Tables::<M>::MESSAGE,
            access: M::ACCESS,
            name: M::NAME,
            decode: decode_message::<M>,
            start,
            may_load: may_load::<M>,
            json,
            in_place: None,
        }
    }
}

unsafe fn decode_message<M: Message>(bytes: &[u8], then: &mut dyn FnMut(*mut ())) -> Result<(), CodecError> {
    let mut message = ManuallyDrop::new(codec::decode::<M>(bytes)?);
    then((&raw mut message).cast());
    Ok(())
}

unsafe fn decode_json<M: serde::de::DeserializeOwned>(text: &str, then: &mut dyn FnMut(*mut ())) -> Result<(), String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let message = serde_json::from_str::<M>(text).map_err(|error| error.to_string())?;
    let mut message = ManuallyDrop::new(message);
    then((&raw mut message).cast());
    Ok(())
}

unsafe fn encode_json<M>(answer: *const ()) -> Result<Result<String, String>, String>
where
    M: Message<Reply: serde::Serialize, Error: serde::Serialize>,
{
    // SAFETY: the caller has an initialised answer there.
    match unsafe { &*answer.cast::<Answer<M>>() } {
        Ok(reply) => serde_json::to_string(reply).map(Ok),
        Err(error) => serde_json::to_string(error).map(Err),
    }
    .map_err(|error| error.to_string())
}

unsafe fn may_load<M: Message>(rule: &dyn Any, message: *const ()) -> bool {
    match rule.downcast_ref::<LoadRule<M::Protocol>>() {
        // SAFETY: the caller has an initialised message there.
        Some(rule) => rule.may_load(unsafe { &*message.cast::<M>() }.borrowed()),
        None => true,
    }
}

unsafe fn start_exclusive<S: Entity, M: HandledExclusive<S>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    message: *mut (),
    call: Call,
    out: *mut (),
) -> Started {
    // SAFETY: the message is initialised and ours; the slot has a state of type `S`; the gate was entered for writing,
    // so until the future is dropped nobody else refers to the state.
    let (message, state) = unsafe { (message.cast::<M>().read(), &mut *state_pointer::<S>(slot)) };
    start::<M, _>(host, slot, method, call, out, move || message.handle(state))
}

unsafe fn start_shared<S: Entity, M: HandledShared<S>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    message: *mut (),
    call: Call,
    out: *mut (),
) -> Started {
    // SAFETY: as in `start_exclusive`; the gate was entered for reading, so there is no writer.
    let (message, state) = unsafe { (message.cast::<M>().read(), &*state_pointer::<S>(slot)) };
    start::<M, _>(host, slot, method, call, out, move || message.handle(state))
}

/// What the engine knows of a handler that runs; the future follows.
#[repr(C)]
pub struct HandlerHead {
    pub(super) header: CellHeader,
    pub(super) slot: NonNull<SlotHeader>,
    pub(super) method: &'static Method,
    pub(super) call: core::cell::Cell<Call>,
    /// The chain that asks made by this handler carry is this call's chain and its own id.
    pub(super) call_id: u64,
    /// The handler whose poll is around this one's, while it is polled.
    pub(super) outer: core::cell::Cell<Option<NonNull<HandlerHead>>>,
}

/// What stays in a cell because the handler's future may borrow it, and goes right after the future.
pub(super) trait Kept: Copy {
    /// Gives it up.
    ///
    /// # Safety
    /// It is given up once, and nothing borrows it any more.
    unsafe fn release(self, pool: &BlockPool);
}

/// Most futures own all that they need.
impl Kept for () {
    #[inline(always)]
    unsafe fn release(self, _: &BlockPool) {}
}

#[repr(C)]
struct HandlerCell<M: Message, F, K> {
    head: HandlerHead,
    kept: K,
    future: UnsafeCell<ManuallyDrop<F>>,
    marker: core::marker::PhantomData<M>,
}

impl<M: Message, F: Future<Output = Answer<M>>, K: Kept> HandlerCell<M, F, K> {
    const VTABLE: &'static CellVtable = &CellVtable {
        layout: Layout::new::<Self>(),
        poll: poll_handler::<M, F, K>,
        drop_future: drop_handler_future::<M, F, K>,
        of_entity: true,
    };
}

#[inline(always)]
pub(super) fn start<M: Message, F: Future<Output = Answer<M>>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    call: Call,
    out: *mut (),
    make: impl FnOnce() -> F,
) -> Started {
    start_keeping::<M, F, ()>(host, slot, method, call, out, (), make)
}

/// As [`start`], of a future that may borrow what is `kept`. If it is pending, that is given up when it ends; otherwise it
/// stays the caller's: `make` may hold such borrows too, and they count until this has returned.
#[inline(always)]
pub(super) fn start_keeping<M: Message, F: Future<Output = Answer<M>>, K: Kept>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    call: Call,
    out: *mut (),
    kept: K,
    make: impl FnOnce() -> F,
) -> Started {
    let cell = host.pool().take(Layout::new::<HandlerCell<M, F, K>>()).cast::<HandlerCell<M, F, K>>();
    // SAFETY: the block has the layout of the cell.
    unsafe {
        (&raw mut (*cell.as_ptr()).head).write(HandlerHead {
            header: CellHeader::new(host.wake_target(), HandlerCell::<M, F, K>::VTABLE),
            slot,
            method,
            call: core::cell::Cell::new(call),
            call_id: host.next_call_id(),
            outer: core::cell::Cell::new(None),
        });
        (&raw mut (*cell.as_ptr()).kept).write(kept);
    }
    // SAFETY: the cell was just made, but for the future, which is written before anything reads it. It is made only
    // now, since an entity may do (and panic) anything before it returns its future.
    let polled = unsafe { poll_once::<M, F, K>(host, cell, |future| future.write(ManuallyDrop::new(make()))) };
    match polled {
        Polled::Pending => {
            // SAFETY: the cell is alive until it is removed, and in no list.
            unsafe { slot.as_ref().handlers.insert(cell.cast()) };
            Started::Pending(cell.cast())
        }
        Polled::Answer(answer) => {
            // SAFETY: the future is dropped and the engine's reference is ours.
            unsafe { close(cell.cast(), host.pool()) };
            if out.is_null() {
                deliver::<M>(host, slot, method, call.reply_to, answer);
            } else {
                // SAFETY: `out` has room for the message's answer.
                unsafe { out.cast::<Answer<M>>().write(answer) };
            }
            Started::Done
        }
        Polled::Panicked => {
            // SAFETY: as above.
            unsafe { close(cell.cast(), host.pool()) };
            if out.is_null() {
                host.fail(call.reply_to, ClusterError::EntityDefect);
            }
            Started::Defect
        }
    }
}

enum Polled<T> {
    Pending,
    Answer(T),
    Panicked,
}

/// Polls the future once, after `prepare` has put it there if it is not. Unless it is pending, it is dropped afterwards.
#[inline(always)]
unsafe fn poll_once<M: Message, F: Future<Output = Answer<M>>, K: Kept>(
    host: &Host,
    cell: NonNull<HandlerCell<M, F, K>>,
    prepare: impl FnOnce(*mut ManuallyDrop<F>),
) -> Polled<Answer<M>> {
    // SAFETY: the cell is alive, and so is its head; the future is only pointed to.
    let (head, future) = unsafe { (&(*cell.as_ptr()).head, UnsafeCell::raw_get(&raw const (*cell.as_ptr()).future)) };
    // SAFETY: the engine's reference lives until `close`.
    let waker = unsafe { borrowed_waker(cell.cast()) };
    let mut exists = false;
    host.enter_handler(head);
    let polled = catch_unwind(AssertUnwindSafe(|| {
        prepare(future);
        exists = true;
        // SAFETY: the future is there and never moves. Only one poll of it is on the stack, since a cell is polled by
        // its start or from the ready queue, never from inside its own poll.
        unsafe { Pin::new_unchecked(&mut **future) }.poll(&mut Context::from_waker(&waker))
    }));
    let polled = match polled {
        Ok(Poll::Pending) => {
            host.leave_handler(head);
            return Polled::Pending;
        }
        Ok(Poll::Ready(answer)) => Polled::Answer(answer),
        Err(panic) => {
            host.log_defect(head.slot, head.method.name, &*panic);
            Polled::Panicked
        }
    };
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        if exists {
            // SAFETY: the future is there and not used again.
            unsafe { ManuallyDrop::drop(&mut *future) };
        }
    }));
    host.leave_handler(head);
    match dropped {
        Ok(()) => polled,
        Err(panic) => {
            host.log_defect(head.slot, head.method.name, &*panic);
            Polled::Panicked
        }
    }
}

/// A later poll, from the ready queue.
unsafe fn poll_handler<M: Message, F: Future<Output = Answer<M>>, K: Kept>(host: &Host, cell: NonNull<CellHeader>) {
    // SAFETY: the vtable belongs to cells of exactly this type.
    let typed = cell.cast::<HandlerCell<M, F, K>>();
    // SAFETY: the engine polls live cells only.
    let polled = unsafe { poll_once::<M, F, K>(host, typed, |_| ()) };
    // SAFETY: the cell is alive: nothing but this function ends a handler while it is polled.
    let (head, kept) = unsafe { (&typed.as_ref().head, typed.as_ref().kept) };
    let (slot, method, reply_to) = (head.slot, head.method, head.call.get().reply_to);
    if matches!(polled, Polled::Pending) {
        if head.header.interrupted.get() {
            // SAFETY: the handler is in its slot's list and is not being polled any more.
            unsafe { host.end_handler(cell, None) };
        }
        return;
    }
    // SAFETY: the handler was inserted when it became pending; its future is dropped, and with it all that borrowed what
    // was kept for it.
    unsafe {
        kept.release(host.pool());
        host.forget_caller(reply_to);
        slot.as_ref().handlers.remove(cell);
        close(cell, host.pool());
    }
    match polled {
        Polled::Answer(answer) => deliver::<M>(host, slot, method, reply_to, answer),
        _ => {
            host.fail(reply_to, ClusterError::EntityDefect);
            host.mark_defect(slot);
        }
    }
    host.after_handler(slot, method.access);
}

unsafe fn drop_handler_future<M: Message, F: Future<Output = Answer<M>>, K: Kept>(
    cell: NonNull<CellHeader>,
    pool: &BlockPool,
) {
    // SAFETY: the vtable belongs to cells of exactly this type; the caller drops the future once.
    let (future, kept) = unsafe {
        let typed = cell.cast::<HandlerCell<M, F, K>>().as_ref();
        (&mut *typed.future.get(), typed.kept)
    };
    // SAFETY: as above. A panic in a user's drop ends here: the future is gone either way.
    if catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(future) })).is_err() {
        tracing::error!("a handler panicked while it was dropped");
    }
    // SAFETY: the future is gone, and with it all that borrowed this.
    unsafe { kept.release(pool) };
}

/// Hands an answer to whoever waits.
fn deliver<M: Message>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    reply_to: ReplyTo,
    answer: Answer<M>,
) {
    match reply_to {
        ReplyTo::Nobody => {}
        ReplyTo::Local(key) => host.complete_local::<M>(key, answer),
        ReplyTo::Core(core, key) => {
            let mut answer = ManuallyDrop::new(answer);
            // SAFETY: the answer is initialised and moves into the queue.
            unsafe { host.router().answer_core(core, key, Tables::<M>::ANSWER, (&raw mut answer).cast()) };
        }
        ReplyTo::Link(link, correlation) => {
            // SAFETY: slots are alive as long as the host.
            let token = host.owned_token(unsafe { slot.as_ref() }.shard.get()).unwrap_or_default();
            let mut encode = |buffer: &mut Vec<u8>, limit| codec::encode(&answer, buffer, limit);
            host.router().answer_link(link, correlation, token, &mut encode);
        }
        ReplyTo::Json(link, correlation) => {
            let encoded = match method.json {
                // SAFETY: the answer is of the method's type.
                Some(json) => unsafe { (json.encode)((&raw const answer).cast()) },
                None => Err("this protocol is not callable in JSON".to_owned()),
            };
            host.router().answer_json(link, correlation, encoded);
        }
    }
}

/// How the entities of one type start and stop.
pub struct LifecycleTable {
    pub(super) slot_layout: Layout,
    pub(super) start: fn(&Host, NonNull<SlotHeader>),
    pub(super) stop: unsafe fn(&Host, NonNull<SlotHeader>, super::lifecycle::StopReason),
    pub(super) drop_state: unsafe fn(NonNull<SlotHeader>),
}

/// The life cycle table of an entity type.
pub(super) struct Lifecycle<S>(core::marker::PhantomData<S>);

impl<S: Entity> Lifecycle<S> {
    pub(super) const TABLE: &'static LifecycleTable = &LifecycleTable {
        slot_layout: super::slot::slot_layout::<S>(),
        start: start_entity::<S>,
        stop: stop_entity::<S>,
        drop_state: drop_state::<S>,
    };
}

unsafe fn drop_state<S>(slot: NonNull<SlotHeader>) {
    // SAFETY: the caller says that the state is initialised and that nobody refers to it.
    let state = unsafe { state_pointer::<S>(slot) };
    // SAFETY: as above.
    if catch_unwind(AssertUnwindSafe(|| unsafe { state.drop_in_place() })).is_err() {
        tracing::error!("the state of an entity panicked while it was dropped");
    }
}

fn start_entity<S: Entity>(host: &Host, slot: NonNull<SlotHeader>) {
    // SAFETY: the slot is alive as long as the host; its id is not written before the slot is free again, and the
    // future made from it is dropped before that.
    let id = unsafe { &*slot.as_ptr() }.id.get();
    let scope = super::scope::Scope::<S>::new(host, slot);
    // SAFETY: as above.
    let id = unsafe { &*id };
    // Inside of the future, so that a panic before the first await is the entity's too.
    let Ok(around) = host.begin_around(slot) else { return host.entity_failed_to_start(slot, None) };
    let future = Within::new(around, async move { S::start(id, scope).await });
    let lifecycle = make_lifecycle(host, slot, future, |host, slot, started| match started {
        Some(Ok(state)) => {
            // SAFETY: the slot is of type `S` and in phase `Starting`, so there is no state yet.
            unsafe { state_pointer::<S>(slot).write(state) };
            host.entity_started(slot);
        }
        Some(Err(error)) => host.entity_failed_to_start(slot, Some(&error)),
        None => host.entity_failed_to_start(slot, None),
    });
    run_lifecycle(host, lifecycle);
}

unsafe fn stop_entity<S: Entity>(host: &Host, slot: NonNull<SlotHeader>, reason: super::lifecycle::StopReason) {
    // SAFETY: the caller entered the gate for writing; the state lives until `entity_stopped`.
    let state = unsafe { &mut *state_pointer::<S>(slot) };
    // SAFETY: slots are alive as long as the host.
    let around = unsafe { slot.as_ref() }.around();
    let future = Within::new(around, async move { state.stop(reason).await });
    let lifecycle = make_lifecycle(host, slot, future, |host, slot, _| host.entity_stopped(slot));
    run_lifecycle(host, lifecycle);
}

/// What the engine knows of a start or stop in progress; the future follows.
#[repr(C)]
pub struct LifecycleHead {
    header: CellHeader,
    slot: NonNull<SlotHeader>,
    /// Stands for the start or stop in the chains of the asks that it makes.
    pub(super) call_id: u64,
    /// The calls that were known to wait for it when it began, and its own.
    pub(super) chain: CallChain,
}

/// A future of an entity's life cycle; `then` gets `None` if it panicked.
#[repr(C)]
struct LifecycleCell<F, T> {
    head: LifecycleHead,
    then: T,
    future: UnsafeCell<ManuallyDrop<F>>,
}

/// Puts a start or stop into its cell.
fn make_lifecycle<F, T>(host: &Host, slot: NonNull<SlotHeader>, future: F, then: T) -> NonNull<CellHeader>
where
    F: Future,
    T: Fn(&Host, NonNull<SlotHeader>, Option<F::Output>) + Copy,
{
    let cell = host.pool().take(Layout::new::<LifecycleCell<F, T>>()).cast::<LifecycleCell<F, T>>();
    let vtable = const {
        &CellVtable {
            layout: Layout::new::<LifecycleCell<F, T>>(),
            poll: poll_lifecycle::<F, T>,
            drop_future: drop_lifecycle::<F, T>,
            of_entity: true,
        }
    };
    // SAFETY: the block has the layout of the cell; the slot is alive as long as the host.
    unsafe {
        let call_id = host.next_call_id();
        cell.write(LifecycleCell {
            head: LifecycleHead {
                header: CellHeader::new(host.wake_target(), vtable),
                slot,
                call_id,
                chain: host.current_chain().with(call_id),
            },
            then,
            future: UnsafeCell::new(ManuallyDrop::new(future)),
        });
        slot.as_ref().lifecycle.set(Some(cell.cast()));
    }
    cell.cast()
}

/// The first poll of a start or stop. The future is not an argument of any function on the stack here: it may borrow the
/// state, which is dropped before this returns if the entity ends.
fn run_lifecycle(host: &Host, lifecycle: NonNull<CellHeader>) {
    // SAFETY: the cell was just made, so it is alive and not being polled.
    unsafe { (lifecycle.as_ref().vtable().poll)(host, lifecycle) };
}

unsafe fn poll_lifecycle<F, T>(host: &Host, cell: NonNull<CellHeader>)
where
    F: Future,
    T: Fn(&Host, NonNull<SlotHeader>, Option<F::Output>) + Copy,
{
    // SAFETY: the vtable belongs to cells of exactly this type, and the future never moves.
    let (typed, future) = unsafe {
        let typed = cell.cast::<LifecycleCell<F, T>>().as_ref();
        (typed, Pin::new_unchecked(&mut **typed.future.get()))
    };
    // SAFETY: the engine's reference lives until `close`.
    let waker = unsafe { borrowed_waker(cell) };
    typed.head.header.polling.set(true);
    let outer = host.enter_lifecycle(&typed.head);
    let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker))));
    host.leave_lifecycle(outer);
    typed.head.header.polling.set(false);
    let (slot, then) = (typed.head.slot, typed.then);
    let output = match polled {
        Ok(Poll::Pending) => return,
        Ok(Poll::Ready(output)) => Some(output),
        Err(panic) => {
            host.log_defect(slot, "start or stop", &*panic);
            None
        }
    };
    // SAFETY: the future is not used again, and the engine's reference is ours.
    unsafe {
        drop_lifecycle::<F, T>(cell, host.pool());
        slot.as_ref().lifecycle.set(None);
        close(cell, host.pool());
    }
    then(host, slot, output);
}

unsafe fn drop_lifecycle<F, T>(cell: NonNull<CellHeader>, _: &BlockPool) {
    // SAFETY: the vtable belongs to cells of exactly this type; the caller drops the future once.
    let future = unsafe { &mut *cell.cast::<LifecycleCell<F, T>>().as_ref().future.get() };
    // SAFETY: as above.
    if catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(future) })).is_err() {
        tracing::error!("the start or stop of an entity panicked while it was dropped");
    }
}

/// A task of the core that belongs to no entity.
#[repr(C)]
struct TaskCell<F> {
    header: CellHeader,
    future: UnsafeCell<ManuallyDrop<F>>,
}

/// Makes a task and queues it for its first poll.
pub(super) fn spawn_task<F: Future<Output = ()> + 'static>(host: &Host, future: F) -> NonNull<CellHeader> {
    let cell = host.pool().take(Layout::new::<TaskCell<F>>()).cast::<TaskCell<F>>();
    let vtable = const {
        &CellVtable {
            layout: Layout::new::<TaskCell<F>>(),
            poll: poll_task::<F>,
            drop_future: drop_task::<F>,
            of_entity: false,
        }
    };
    // SAFETY: the block has the layout of the cell.
    unsafe {
        cell.write(TaskCell {
            header: CellHeader::new(host.wake_target(), vtable),
            future: UnsafeCell::new(ManuallyDrop::new(future)),
        });
    }
    cell.cast()
}

unsafe fn poll_task<F: Future<Output = ()> + 'static>(host: &Host, cell: NonNull<CellHeader>) {
    // SAFETY: the vtable belongs to cells of exactly this type, and the future never moves.
    let (header, future) = unsafe {
        let typed = cell.cast::<TaskCell<F>>().as_ref();
        (&typed.header, Pin::new_unchecked(&mut **typed.future.get()))
    };
    // SAFETY: the engine's reference lives until `close`.
    let waker = unsafe { borrowed_waker(cell) };
    header.polling.set(true);
    let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(&waker))));
    header.polling.set(false);
    match polled {
        Ok(Poll::Pending) => return,
        Ok(Poll::Ready(())) => {}
        Err(panic) => tracing::error!(panic = super::host::panic_text(&*panic), "a task panicked"),
    }
    // SAFETY: the future is not used again; a task is in the core's list until here.
    unsafe {
        drop_task::<F>(cell, host.pool());
        host.end_task(cell);
    }
}

unsafe fn drop_task<F>(cell: NonNull<CellHeader>, _: &BlockPool) {
    // SAFETY: the vtable belongs to cells of exactly this type; the caller drops the future once.
    let future = unsafe { &mut *cell.cast::<TaskCell<F>>().as_ref().future.get() };
    // SAFETY: as above.
    if catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(future) })).is_err() {
        tracing::error!("a task panicked while it was dropped");
    }
}

/// The typed outcome of an ask, as its sender sees it.
pub(super) fn outcome<M: Message>(answer: Answer<M>) -> Result<M::Reply, SendError<M::Error>> {
    answer.map_err(SendError::Declared)
}
