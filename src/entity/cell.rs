//! Future cells: where a future lives from its first poll to its end, and the waker that finds it again.
//!
//! A cell is one block of the core's pool: header, then the future, which never moves. A future that is ready at its
//! first poll costs no task, no queue and no atomic read-modify-write. A waker that outlives the poll holds a
//! reference to the cell and to its [`WakeTarget`]; it may be used and dropped on any thread, also after the core is
//! gone. Called by `dispatch` and `host`.
//!
//! Invariants:
//! - `refs` counts the engine (1 until the cell is closed), each cloned waker, and the cell's place in a queue;
//! - foreign threads touch only `refs`, `state`, `next_woken`, `target` and `vtable`;
//! - a cell is in at most one queue, and only while its state is `QUEUED`;
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

    /// Hands the cells that foreign threads woke to `queue`, oldest first; each comes with its queue reference.
    pub(super) fn take_woken(&self, mut queue: impl FnMut(NonNull<CellHeader>)) {
        for cell in self.woken.take_all() {
            queue(cell);
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
    /// Drops the future; the memory stays.
    pub drop_future: unsafe fn(NonNull<CellHeader>),
    /// Belongs to an entity, so that it must not be polled while the core may not serve.
    pub of_entity: bool,
}

/// Start of every cell.
#[repr(C)]
pub struct CellHeader {
    refs: AtomicU32,
    state: AtomicU8,
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
            state: AtomicU8::new(IDLE),
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
    let pointer = cell.as_ptr();
    // SAFETY: the caller's reference keeps the cell alive. The new reference belongs to the queue.
    unsafe {
        let state = &(*pointer).state;
        // Release: what the waker's thread did before is seen by the poll that follows.
        if state.compare_exchange(IDLE, QUEUED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        (*pointer).refs.fetch_add(1, Ordering::Relaxed);
        let target = (*pointer).target;
        Host::with_current(|host| match host {
            Some(host) if core::ptr::eq(Arc::as_ptr(host.wake_target()), target.as_ptr()) => host.queue_cell(cell),
            _ => {
                let target = target.as_ref();
                target.woken.push(cell);
                target.doorbell.ring_if_sleeping();
            }
        });
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: this waker owns one reference to the cell and one count of the target. The target's count goes last:
    // until then its address is valid.
    unsafe {
        let cell = NonNull::new_unchecked(data.cast_mut().cast::<CellHeader>());
        let target = (*cell.as_ptr()).target;
        Host::with_current(|host| match host {
            Some(host) if core::ptr::eq(Arc::as_ptr(host.wake_target()), target.as_ptr()) => {
                drop_reference(cell, Some(host.pool()))
            }
            _ => drop_reference(cell, None),
        });
        Arc::decrement_strong_count(target.as_ptr());
    }
}

/// Takes a cell out of the queue for its poll: wake-ups from now on queue it again. False if it was closed.
///
/// # Safety
/// The caller owns the queue's reference.
pub(super) unsafe fn begin_poll(cell: NonNull<CellHeader>) -> bool {
    // SAFETY: the queue's reference keeps the cell alive.
    let state = unsafe { &(*cell.as_ptr()).state };
    state.compare_exchange(QUEUED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Ends a cell whose future was dropped, and gives up the engine's reference.
///
/// # Safety
/// The future is dropped, and the caller owns the engine's reference.
#[inline(always)]
pub(super) unsafe fn close(cell: NonNull<CellHeader>, pool: &BlockPool) {
    let pointer = cell.as_ptr();
    // SAFETY: the engine's reference keeps the cell alive until `drop_reference` or `give`. When ours is the only
    // reference nobody can make another one, so the block can go back without an atomic operation.
    unsafe {
        if (*pointer).refs.load(Ordering::Acquire) == 1 {
            pool.give(cell.cast(), (*pointer).vtable.layout);
            return;
        }
        (*pointer).state.store(CLOSED, Ordering::Release);
        drop_reference(cell, Some(pool));
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
