//! Future cells: where a future lives from its first poll to its end, and the waker that finds it again.
//!
//! A cell is one block of the core's pool: header, then the future, which never moves. A future that is ready at its
//! first poll costs no task, no queue and no atomic read-modify-write. A waker that outlives the poll holds a
//! reference to the cell and to its [`WakeTarget`]; it may be used and dropped on any thread, also after the core is
//! gone. The table of waiting asks, which never leaves its core, keeps [wakers of the core's own](for_the_core) instead:
//! an ask that waits and is woken on its core needs no atomic read-modify-write either. Called by `dispatch`, `pending`
//! and `host`.
//!
//! Invariants:
//! - `local` counts the references of the core itself: the engine (1 until the cell is closed), each waker of the
//!   core's own, and the cell's place in the ready queue. `refs` counts 1 for all of those together, each other waker,
//!   and the cell's place in the stack of the woken;
//! - foreign threads touch only `refs`, `state`, `next_woken`, `target` and `vtable`;
//! - a cell is in the ready queue at most once, and only while it is `queued`; it is in the stack of the woken at most
//!   once, and only while its state is `QUEUED` (or was, when it was closed). It may be in both: then it is polled once
//!   more than needed;
//! - a closed cell holds no future any more, only memory that its last reference releases.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use core::task::{RawWaker, RawWakerVTable, Waker};
use std::sync::Arc;

use super::host::Host;
use super::pool::{BlockPool, release_foreign};
use crate::mesh::doorbell::Doorbell;
use crate::mesh::sync::AtomicPtr;
use crate::mesh::woken::{WokenNode, WokenStack};

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const CLOSED: u8 = 2;

/// Where wake-ups for the cells of one core go. Outlives the core while a waker holds it.
pub struct WakeTarget {
    woken: WokenStack<CellHeader>,
    doorbell: Arc<Doorbell>,
}

impl WakeTarget {
    /// A target whose core is woken by `doorbell`.
    pub fn new(doorbell: Arc<Doorbell>) -> Arc<WakeTarget> {
        Arc::new(WakeTarget { woken: WokenStack::new(), doorbell })
    }

    /// The doorbell of the core.
    pub fn doorbell(&self) -> &Arc<Doorbell> {
        &self.doorbell
    }

    /// Whether foreign threads woke something.
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Hands the cells that foreign threads woke to `queue`, oldest first; each comes with a reference of the core's.
    /// Called on the core, whose pool this is.
    pub(super) fn take_woken(&self, pool: &BlockPool, mut queue: impl FnMut(NonNull<CellHeader>)) {
        for cell in self.woken.take_all() {
            // SAFETY: each cell in the stack came with one reference, which is given up at the end. A cell whose state is
            // still `QUEUED` is not closed, so the core has its own reference, and this is the core's thread.
            unsafe {
                // Wake-ups from now on push it again. Acquire: the poll sees what the wakers did before.
                let state = &(*cell.as_ptr()).state;
                let open = state.compare_exchange(QUEUED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
                if open && enter_queue(cell) {
                    take_local(cell);
                    queue(cell);
                }
                drop_reference(cell, Some(pool));
            }
        }
    }
}

impl Drop for WakeTarget {
    fn drop(&mut self) {
        for cell in self.woken.take_all() {
            // SAFETY: each cell in the stack came with one reference, which we own now.
            unsafe { drop_reference(cell, None) };
        }
    }
}

/// What the engine does with the future in a cell, for its type.
pub struct CellVtable {
    /// Layout of the whole cell.
    pub layout: Layout,
    /// Polls the future once and deals with what comes of it.
    pub poll: unsafe fn(&Host, NonNull<CellHeader>),
    /// Drops the future, and gives what it borrowed to the pool; the memory of the cell stays.
    pub drop_future: unsafe fn(NonNull<CellHeader>, &BlockPool),
    /// Belongs to an entity, so that it must not be polled while the core may not serve.
    pub of_entity: bool,
}

/// Start of every cell.
#[repr(C)]
pub struct CellHeader {
    refs: AtomicU32,
    /// References of the core itself.
    local: Cell<u32>,
    state: AtomicU8,
    /// In the ready queue of the core.
    queued: Cell<bool>,
    /// The future is being polled further up the stack, so it cannot be dropped now.
    pub(super) polling: Cell<bool>,
    /// Drop the future as soon as its poll returns.
    pub(super) interrupted: Cell<bool>,
    next_woken: AtomicPtr<CellHeader>,
    target: NonNull<WakeTarget>,
    vtable: &'static CellVtable,
    /// Links of the list that the cell is in: the handlers of its entity, or the tasks of the core.
    pub(super) previous: Cell<Option<NonNull<CellHeader>>>,
    pub(super) next: Cell<Option<NonNull<CellHeader>>>,
}

// SAFETY: the only field that is linked by the stack is `next_woken`, an atomic that nothing else uses.
unsafe impl WokenNode for CellHeader {
    fn next_woken(&self) -> &AtomicPtr<CellHeader> {
        &self.next_woken
    }
}

impl CellHeader {
    /// The header of a new cell, with the engine's reference.
    #[inline(always)]
    pub(super) fn new(target: &Arc<WakeTarget>, vtable: &'static CellVtable) -> CellHeader {
        CellHeader {
            refs: AtomicU32::new(1),
            local: Cell::new(1),
            state: AtomicU8::new(IDLE),
            queued: Cell::new(false),
            polling: Cell::new(false),
            interrupted: Cell::new(false),
            next_woken: AtomicPtr::new(core::ptr::null_mut()),
            // SAFETY: the pointer of an `Arc` is not null.
            target: unsafe { NonNull::new_unchecked(Arc::as_ptr(target).cast_mut()) },
            vtable,
            previous: Cell::new(None),
            next: Cell::new(None),
        }
    }

    /// The functions for the future in this cell.
    #[inline(always)]
    pub(super) fn vtable(&self) -> &'static CellVtable {
        self.vtable
    }
}

/// A waker for the duration of one poll: it holds no reference, its clones do.
///
/// # Safety
/// The engine's reference to `cell` must outlive the returned value.
#[inline(always)]
pub(super) unsafe fn borrowed_waker(cell: NonNull<CellHeader>) -> ManuallyDrop<Waker> {
    // SAFETY: the vtable's functions take such a pointer; that it stays valid is the caller's promise.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(cell.as_ptr().cast(), &WAKER)) })
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone_waker, wake, wake_by_ref, drop_waker);

unsafe fn clone_waker(data: *const ()) -> RawWaker {
    let cell = data.cast::<CellHeader>();
    // SAFETY: whoever clones holds a reference or is inside the poll, so the cell is alive, and its target too: the
    // core lives during a poll, and each clone holds its own count of the target.
    unsafe {
        (*cell).refs.fetch_add(1, Ordering::Relaxed);
        Arc::increment_strong_count((*cell).target.as_ptr());
    }
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: `wake` consumes the waker, which is alive until `drop_waker`.
    unsafe {
        wake_by_ref(data);
        drop_waker(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker's reference (or the poll) keeps cell and target alive; the block came from a pool, so it is
    // not null.
    unsafe {
        let cell = NonNull::new_unchecked(data.cast_mut().cast::<CellHeader>());
        wake_cell(cell);
    }
}

/// Queues a cell for its next poll unless it is queued or closed.
///
/// # Safety
/// The caller holds a reference to the cell, and its target is alive.
pub(super) unsafe fn wake_cell(cell: NonNull<CellHeader>) {
    Host::with_current(|host| match host {
        // SAFETY: passed on; the cell belongs to the core of this host, which runs on this thread.
        Some(host) if is_of(cell, host) => unsafe {
            if enter_queue(cell) {
                take_local(cell);
                host.queue_cell(cell);
            }
        },
        // SAFETY: passed on.
        _ => unsafe { wake_from_outside(cell) },
    });
}

/// # Safety
/// See [`wake_cell`].
unsafe fn wake_from_outside(cell: NonNull<CellHeader>) {
    let pointer = cell.as_ptr();
    // SAFETY: the caller's reference keeps the cell alive. The new reference belongs to the stack, in which the cell is
    // not, since its state was `IDLE`.
    unsafe {
        let state = &(*pointer).state;
        // Release: what the waker's thread did before is seen by the poll that follows.
        if state.compare_exchange(IDLE, QUEUED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        (*pointer).refs.fetch_add(1, Ordering::Relaxed);
        let target = (*pointer).target.as_ref();
        target.woken.push(cell);
        target.doorbell.ring_if_sleeping();
    }
}

/// Whether a cell belongs to the core of `host`.
#[inline(always)]
fn is_of(cell: NonNull<CellHeader>, host: &Host) -> bool {
    // SAFETY: the callers hold a reference to the cell; the target never changes.
    let target = unsafe { (*cell.as_ptr()).target };
    core::ptr::eq(Arc::as_ptr(host.wake_target()), target.as_ptr())
}

/// Says that a cell enters the ready queue. False if it must not: it is there already, or closed.
///
/// # Safety
/// On the cell's core, with a reference to it.
#[inline(always)]
unsafe fn enter_queue(cell: NonNull<CellHeader>) -> bool {
    // SAFETY: the caller's reference keeps the cell alive. Only the core closes it, so its own thread sees that.
    let header = unsafe { cell.as_ref() };
    header.state.load(Ordering::Relaxed) != CLOSED && !header.queued.replace(true)
}

/// One more reference of the core.
///
/// # Safety
/// On the cell's core, which holds one.
#[inline(always)]
unsafe fn take_local(cell: NonNull<CellHeader>) {
    // SAFETY: the core's reference keeps the cell alive.
    let local = unsafe { &cell.as_ref().local };
    local.set(local.get() + 1);
}

/// Gives up a reference of the core.
///
/// # Safety
/// On the cell's core; the caller owns the reference. `pool` as in [`drop_reference`].
#[inline(always)]
pub(super) unsafe fn drop_local(cell: NonNull<CellHeader>, pool: Option<&BlockPool>) {
    // SAFETY: the reference keeps the cell alive; with the last one of the core goes the one in `refs`.
    unsafe {
        let local = &cell.as_ref().local;
        local.set(local.get() - 1);
        if local.get() == 0 {
            drop_reference(cell, pool);
        }
    }
}

/// The functions of a waker that stays on the core of its cell: it holds one of the core's references, and none to the
/// target, since the core does.
static WAKER_OF_THE_CORE: RawWakerVTable = RawWakerVTable::new(clone_on_core, wake_on_core, wake_by_ref, drop_on_core);

/// A waker that does what `waker` does, for the use of this core alone: it must not leave the thread, nor outlive the host.
/// Cheaper than a clone if it belongs to a cell of this core, which is the common case.
pub(super) fn for_the_core(host: &Host, waker: &Waker) -> Waker {
    if let Some(cell) = NonNull::new(waker.data().cast_mut().cast::<CellHeader>())
        && core::ptr::eq(waker.vtable(), &raw const WAKER)
        && is_of(cell, host)
    {
        // SAFETY: a waker with these functions keeps its cell alive, by a reference or because the cell is being polled;
        // the cell belongs to this core, which is where we are. Of a closed one the core may hold no reference any more:
        // then there is none to add to.
        unsafe {
            if (*cell.as_ptr()).local.get() > 0 {
                take_local(cell);
                return Waker::from_raw(RawWaker::new(waker.data(), &WAKER_OF_THE_CORE));
            }
        }
    }
    waker.clone()
}

/// Whether `known`, made [`for_the_core`] or not, wakes what `waker` wakes.
#[inline]
pub(super) fn wakes_the_same(known: &Waker, waker: &Waker) -> bool {
    let of_the_core = || {
        core::ptr::eq(known.vtable(), &raw const WAKER_OF_THE_CORE) && core::ptr::eq(waker.vtable(), &raw const WAKER)
    };
    known.data() == waker.data() && (core::ptr::eq(known.vtable(), waker.vtable()) || of_the_core())
}

unsafe fn clone_on_core(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned holds a reference of the core, and stays on its thread.
    unsafe { take_local(NonNull::new_unchecked(data.cast_mut().cast())) };
    RawWaker::new(data, &WAKER_OF_THE_CORE)
}

unsafe fn wake_on_core(data: *const ()) {
    // SAFETY: the block came from a pool, so it is not null.
    let cell = unsafe { NonNull::new_unchecked(data.cast_mut().cast::<CellHeader>()) };
    Host::with_current(|host| match host {
        // SAFETY: this waker's reference goes to the queue, or is given up.
        Some(host) if is_of(cell, host) => unsafe {
            if enter_queue(cell) {
                host.queue_cell(cell);
            } else {
                drop_local(cell, Some(host.pool()));
            }
        },
        // SAFETY: the waker's reference keeps the cell alive, and the host, which the waker does not outlive, its target.
        _ => unsafe {
            wake_from_outside(cell);
            drop_local(cell, None);
        },
    });
}

unsafe fn drop_on_core(data: *const ()) {
    // SAFETY: the waker owns the reference; the block came from a pool, so it is not null.
    unsafe {
        let cell = NonNull::new_unchecked(data.cast_mut().cast::<CellHeader>());
        Host::with_current(|host| drop_local(cell, host.filter(|host| is_of(cell, host)).map(Host::pool)));
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: this waker owns one reference to the cell and one count of the target. The target's count goes last:
    // until then its address is valid.
    unsafe {
        let cell = NonNull::new_unchecked(data.cast_mut().cast::<CellHeader>());
        let target = (*cell.as_ptr()).target;
        Host::with_current(|host| match host {
            Some(host) if is_of(cell, host) => drop_reference(cell, Some(host.pool())),
            _ => drop_reference(cell, None),
        });
        Arc::decrement_strong_count(target.as_ptr());
    }
}

/// Takes a cell out of the ready queue for its poll: wake-ups from now on queue it again. False if it was closed.
///
/// # Safety
/// On the cell's core; the caller owns the queue's reference.
#[inline(always)]
pub(super) unsafe fn begin_poll(cell: NonNull<CellHeader>) -> bool {
    // SAFETY: the queue's reference keeps the cell alive. Only the core closes it, so its own thread sees that.
    let header = unsafe { cell.as_ref() };
    header.queued.set(false);
    header.state.load(Ordering::Relaxed) != CLOSED
}

/// Ends a cell whose future was dropped, and gives up the engine's reference.
///
/// # Safety
/// The future is dropped, and the caller owns the engine's reference.
#[inline(always)]
pub(super) unsafe fn close(cell: NonNull<CellHeader>, pool: &BlockPool) {
    let pointer = cell.as_ptr();
    // SAFETY: the engine's reference keeps the cell alive until `drop_local` or `give`. When ours is the only
    // reference nobody can make another one, so the block can go back without an atomic operation.
    unsafe {
        if (*pointer).local.get() == 1 && (*pointer).refs.load(Ordering::Acquire) == 1 {
            pool.give(cell.cast(), (*pointer).vtable.layout);
            return;
        }
        (*pointer).state.store(CLOSED, Ordering::Release);
        drop_local(cell, Some(pool));
    }
}

/// Gives up one reference; the last one releases the block.
///
/// # Safety
/// The caller owns the reference; `pool` is the pool of the calling thread's core, if the cell belongs to it.
pub(super) unsafe fn drop_reference(cell: NonNull<CellHeader>, pool: Option<&BlockPool>) {
    let pointer = cell.as_ptr();
    // SAFETY: the caller's reference keeps the cell alive until it is given up; the last one has it for itself.
    unsafe {
        if (*pointer).refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let layout = (*pointer).vtable.layout;
        match pool {
            Some(pool) => pool.give(cell.cast(), layout),
            None => release_foreign(cell.cast(), layout),
        }
    }
}

/// A list of cells that owns nothing: handlers of an entity, tasks of a core.
#[derive(Default)]
pub(super) struct CellList {
    first: Cell<Option<NonNull<CellHeader>>>,
}

impl CellList {
    pub(super) fn first(&self) -> Option<NonNull<CellHeader>> {
        self.first.get()
    }

    /// # Safety
    /// `cell` is alive until it is removed, and in no list.
    pub(super) unsafe fn insert(&self, cell: NonNull<CellHeader>) {
        // SAFETY: the cells of a list are alive, by the promise of this function.
        unsafe {
            let header = cell.as_ref();
            header.previous.set(None);
            header.next.set(self.first.get());
            if let Some(first) = self.first.get() {
                first.as_ref().previous.set(Some(cell));
            }
        }
        self.first.set(Some(cell));
    }

    /// # Safety
    /// `cell` is in this list.
    pub(super) unsafe fn remove(&self, cell: NonNull<CellHeader>) {
        // SAFETY: the cells of a list are alive.
        unsafe {
            let header = cell.as_ref();
            let (previous, next) = (header.previous.take(), header.next.take());
            match previous {
                Some(previous) => previous.as_ref().next.set(next),
                None => self.first.set(next),
            }
            if let Some(next) = next {
                next.as_ref().previous.set(previous);
            }
        }
    }
}
