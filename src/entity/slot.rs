//! Where entities live: slots in chunks that never move, and the table that finds a slot by id.
//!
//! A slot is a header and the state of the entity's type. Slots of one type share chunks; a freed one is used again
//! under a new generation. Called by `host`, `dispatch` and `scope`.
//!
//! Invariants: a slot's address is valid as long as its arena; the state is initialised exactly in the phases
//! `Running`, `Stopping` and `Defect` ([`Phase::has_state`]); a slot is in the table from its activation until it is
//! free.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::cell::{Cell, RefCell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::task::Waker;
use std::rc::Rc;

use hashbrown::HashTable;

use super::cell::{CellHeader, CellList};
use super::gate::Gate;
use super::interceptor::AroundEntity;
use super::lifecycle::StopReason;
use super::mailbox::Mailbox;
use crate::base::{EntityId, ShardId};

/// Bytes of one chunk of slots, about; small types share a chunk by the hundred.
const CHUNK_BYTES: usize = 64 * 1024;
/// Parts of a table: each grows by itself, which keeps the pause of a growing table short.
const TABLE_PARTS: usize = 64;

/// Where an entity is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody lives here.
    Free,
    /// `Entity::start` runs; messages wait.
    Starting,
    /// Handles messages.
    Running,
    /// Handles the messages that it had received when it was told to stop, then runs `Entity::stop`.
    Stopping,
    /// A handler panicked: the state is dropped as soon as nothing of it is on the stack.
    Defect,
}

impl Phase {
    /// Whether the state of the entity exists.
    pub fn has_state(self) -> bool {
        matches!(self, Phase::Running | Phase::Stopping | Phase::Defect)
    }
}

/// What few entities need, so that the others do not pay for it.
#[derive(Default)]
pub(super) struct SlotExtras {
    /// `scope.on_close`, run last, newest first.
    pub finalizers: Vec<Box<dyn FnOnce()>>,
    /// Who waits for the borrow in `scope.update`.
    pub update_waiters: Vec<Waker>,
    /// The stop in progress.
    pub stop: Option<StopProgress>,
    /// What the type's interceptor put around this entity.
    pub around: Option<Rc<dyn AroundEntity>>,
}

#[derive(Clone, Copy)]
pub(super) struct StopProgress {
    pub reason: StopReason,
    /// Messages with a smaller sequence number still belong to the stopping instance.
    pub cut: u32,
    /// `Entity::stop` has begun.
    pub hook_started: bool,
}

/// The part of a slot that does not depend on the entity's type.
#[repr(C)]
pub struct SlotHeader {
    pub(super) mailbox: Mailbox,
    /// The future of `Entity::start` or `Entity::stop`.
    pub(super) lifecycle: Cell<Option<NonNull<CellHeader>>>,
    pub(super) hash: Cell<u64>,
    pub(super) extras: RefCell<Option<Box<SlotExtras>>>,
    pub(super) handlers: CellList,
    // The end: all that an ask to an idle entity reads and writes, next to the state. With many entities each line of
    // memory that an ask touches is a cache miss.
    pub(super) shard: Cell<ShardId>,
    pub(super) generation: Cell<u32>,
    /// Coarse time of the last message, in [`IDLE_TICK`](super::host::IDLE_TICK)s.
    pub(super) last_active: Cell<u32>,
    pub(super) gate: Gate,
    pub(super) type_index: u16,
    pub(super) phase: Cell<Phase>,
    /// Something but the next message needs a look: waiting messages, a stop, a defect, a waiting update.
    pub(super) attention: Cell<bool>,
    /// Is in the core's ready queue.
    pub(super) scheduled: Cell<bool>,
    pub(super) id: UnsafeCell<EntityId>,
}

impl SlotHeader {
    /// The id of the entity; meaningful unless the slot is free.
    #[inline(always)]
    pub fn id(&self) -> &EntityId {
        // SAFETY: the id is written only while the slot is free, when nobody holds a reference to it.
        unsafe { &*self.id.get() }
    }

    pub(super) fn with_extras<R>(&self, with: impl FnOnce(&mut SlotExtras) -> R) -> R {
        with(self.extras.borrow_mut().get_or_insert_default())
    }

    pub(super) fn stop_progress(&self) -> Option<StopProgress> {
        self.extras.borrow().as_ref().and_then(|extras| extras.stop)
    }
}

/// A slot of an entity of type `S`.
#[repr(C)]
pub(super) struct Slot<S> {
    header: SlotHeader,
    state: UnsafeCell<MaybeUninit<S>>,
}

/// Where the state of type `S` lies.
///
/// # Safety
/// `slot` is a slot of the type `S`.
#[inline(always)]
pub(super) unsafe fn state_pointer<S>(slot: NonNull<SlotHeader>) -> *mut S {
    // SAFETY: `Slot<S>` is `repr(C)` with the header first, so the pointers are the same.
    unsafe { UnsafeCell::raw_get(&raw const (*slot.as_ptr().cast::<Slot<S>>()).state).cast() }
}

/// The layout of a slot for `S`.
pub(super) const fn slot_layout<S>() -> Layout {
    Layout::new::<Slot<S>>()
}

struct Entry {
    hash: u64,
    slot: NonNull<SlotHeader>,
}

/// All slots of one entity type on one core.
pub struct SlotArena {
    layout: Layout,
    type_index: u16,
    slots_per_chunk: usize,
    chunks: RefCell<Vec<NonNull<u8>>>,
    free: RefCell<Vec<NonNull<SlotHeader>>>,
    parts: Box<[RefCell<HashTable<Entry>>]>,
    live: Cell<usize>,
}

impl SlotArena {
    pub(super) fn new(layout: Layout, type_index: u16) -> SlotArena {
        let layout = layout.pad_to_align();
        SlotArena {
            layout,
            type_index,
            slots_per_chunk: (CHUNK_BYTES / layout.size()).max(1),
            chunks: RefCell::default(),
            free: RefCell::default(),
            parts: (0..TABLE_PARTS).map(|_| RefCell::default()).collect(),
            live: Cell::new(0),
        }
    }

    /// How many entities there are.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    #[inline(always)]
    fn part(&self, hash: u64) -> &RefCell<HashTable<Entry>> {
        // hashbrown uses the lowest and the highest bits.
        &self.parts[(hash >> 32) as usize % TABLE_PARTS]
    }

    /// The slot of an entity that is there.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, id: &EntityId) -> Option<NonNull<SlotHeader>> {
        let part = self.part(hash).borrow();
        // SAFETY: slots in the table are alive.
        part.find(hash, |entry| entry.hash == hash && unsafe { entry.slot.as_ref() }.id() == id).map(|entry| entry.slot)
    }

    /// Takes a free slot for an id and puts it into the table, in phase `Starting`.
    pub(super) fn activate(&self, hash: u64, id: EntityId, shard: ShardId) -> NonNull<SlotHeader> {
        let free = self.free.borrow_mut().pop();
        let slot = free.unwrap_or_else(|| self.grow());
        // SAFETY: a free slot is initialised and nobody refers to its id.
        let header = unsafe {
            *slot.as_ref().id.get() = id;
            slot.as_ref()
        };
        header.phase.set(Phase::Starting);
        header.hash.set(hash);
        header.shard.set(shard);
        self.part(hash).borrow_mut().insert_unique(hash, Entry { hash, slot }, |entry| entry.hash);
        self.live.set(self.live.get() + 1);
        slot
    }

    /// Takes an entity out of the table; its slot can be used again.
    ///
    /// # Safety
    /// The state is dropped, nothing waits and nothing runs.
    pub(super) unsafe fn release(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots of an arena are alive.
        let header = unsafe { slot.as_ref() };
        let mut part = self.part(header.hash.get()).borrow_mut();
        if let Ok(entry) = part.find_entry(header.hash.get(), |entry| entry.slot == slot) {
            entry.remove();
        }
        header.phase.set(Phase::Free);
        header.generation.set(header.generation.get().wrapping_add(1));
        header.attention.set(false);
        *header.extras.borrow_mut() = None;
        self.live.set(self.live.get() - 1);
        self.free.borrow_mut().push(slot);
    }

    #[cold]
    fn grow(&self) -> NonNull<SlotHeader> {
        let size = self.layout.size();
        let layout = self.chunk_layout();
        // SAFETY: a slot is not empty, so the layout is not.
        let chunk = NonNull::new(unsafe { std::alloc::alloc(layout) })
            .unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        let mut free = self.free.borrow_mut();
        for at in (0..self.slots_per_chunk).rev() {
            // SAFETY: the chunk has room for `slots_per_chunk` slots, each aligned since the size is padded.
            unsafe {
                let slot = chunk.add(at * size).cast::<SlotHeader>();
                slot.write(empty_header(self.type_index));
                free.push(slot);
            }
        }
        self.chunks.borrow_mut().push(chunk);
        free.pop().unwrap_or_else(|| unreachable!("a chunk has at least one slot"))
    }

    fn chunk_layout(&self) -> Layout {
        Layout::from_size_align(self.layout.size() * self.slots_per_chunk, self.layout.align())
            .unwrap_or_else(|_| unreachable!("an entity type is larger than memory"))
    }

    /// Number of slots, free ones too; positions below it are valid for [`SlotArena::at`].
    pub(super) fn capacity(&self) -> usize {
        self.chunks.borrow().len() * self.slots_per_chunk
    }

    /// The slot at a position.
    pub(super) fn at(&self, position: usize) -> Option<NonNull<SlotHeader>> {
        let chunk = *self.chunks.borrow().get(position / self.slots_per_chunk)?;
        // SAFETY: the chunk has a slot at this position.
        Some(unsafe { chunk.add(position % self.slots_per_chunk * self.layout.size()) }.cast())
    }
}

impl Drop for SlotArena {
    fn drop(&mut self) {
        let layout = self.chunk_layout();
        for position in 0..self.capacity() {
            if let Some(slot) = self.at(position) {
                // SAFETY: every slot has an initialised header; `Host` has dropped the states before.
                unsafe { slot.drop_in_place() };
            }
        }
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: chunks were allocated with this layout.
            unsafe { std::alloc::dealloc(chunk.as_ptr(), layout) };
        }
    }
}

fn empty_header(type_index: u16) -> SlotHeader {
    SlotHeader {
        id: UnsafeCell::new(EntityId::placeholder()),
        phase: Cell::new(Phase::Free),
        attention: Cell::new(false),
        scheduled: Cell::new(false),
        gate: Gate::default(),
        type_index,
        generation: Cell::new(0),
        last_active: Cell::new(0),
        shard: Cell::new(ShardId(0)),
        handlers: CellList::default(),
        mailbox: Mailbox::default(),
        lifecycle: Cell::new(None),
        hash: Cell::new(0),
        extras: RefCell::new(None),
    }
}
