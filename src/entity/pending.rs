//! Asks of one core that wait for their outcome.
//!
//! An entry remembers whom to wake, where the message is (so that it can be cancelled) and, once it is there, the
//! outcome. Called by `ask`, `host` and `engine`. Invariants: a key is valid until its entry is removed, and never again;
//! a stored answer is of the entry's answer type and is either taken by its ask or dropped with the entry.
#![allow(unsafe_code)]

use core::cell::RefCell;
use core::ptr::NonNull;
use core::task::Waker;

use super::call::PendingKey;
use super::cell::{self, CellHeader};
use super::dispatch::AnswerVtable;
use super::host::Host;
use super::mailbox::Waiting;
use super::pool::BlockPool;
use crate::base::timers::TimerId;
use crate::base::{ClusterError, CoreIndex, LinkId};

/// Where the message of a pending ask is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Nowhere that could be cancelled.
    Nowhere,
    /// It found no way out yet and still belongs to its ask.
    Unrouted,
    /// Waits at an entity of this core.
    Queued(NonNull<Waiting>),
    /// Its handler runs on this core.
    Running(NonNull<CellHeader>),
    /// On another core of this pod.
    Core(CoreIndex),
    /// Behind a link.
    Link(LinkId),
}

/// What became of a pending ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free {
        next: u32,
    },
    Waiting,
    /// The answer lies in a block.
    Answered(NonNull<u8>),
    /// A discard is in the mailbox.
    Acknowledged,
    Failed(ClusterError),
}

struct Entry {
    generation: u32,
    /// Position among the messages that this core has sent out; zero if it is none.
    order: u64,
    /// Hash of the entity's id, if it has an order.
    hash: u64,
    state: State,
    location: Location,
    /// Made [for the core](cell::for_the_core): it does not leave this table but to wake or to be dropped.
    waker: Option<Waker>,
    /// Is among those who are woken when a way opens.
    waits_for_route: bool,
    timer: Option<TimerId>,
    answer_type: &'static AnswerVtable,
}

const NO_ENTRY: u32 = u32::MAX;

/// The table.
pub struct PendingAsks {
    entries: RefCell<Vec<Entry>>,
    free: core::cell::Cell<u32>,
    live: core::cell::Cell<usize>,
}

impl Default for PendingAsks {
    fn default() -> Self {
        PendingAsks {
            entries: RefCell::default(),
            free: core::cell::Cell::new(NO_ENTRY),
            live: core::cell::Cell::new(0),
        }
    }
}

impl PendingAsks {
    /// How many wait.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    /// A new entry that waits; `waker` was made [for the core](cell::for_the_core).
    pub(super) fn insert(&self, answer_type: &'static AnswerVtable, waker: Option<Waker>) -> PendingKey {
        let mut entries = self.entries.borrow_mut();
        self.live.set(self.live.get() + 1);
        let index = self.free.get();
        if let Some(entry) = entries.get_mut(index as usize) {
            if let State::Free { next } = entry.state {
                self.free.set(next);
            }
            entry.state = State::Waiting;
            entry.location = Location::Nowhere;
            entry.waker = waker;
            entry.waits_for_route = false;
            entry.order = 0;
            entry.answer_type = answer_type;
            return PendingKey { index, generation: entry.generation };
        }
        let index = entries.len() as u32;
        entries.push(Entry {
            generation: 0,
            order: 0,
            hash: 0,
            state: State::Waiting,
            location: Location::Nowhere,
            waker,
            waits_for_route: false,
            timer: None,
            answer_type,
        });
        PendingKey { index, generation: 0 }
    }

    fn with<R>(&self, key: PendingKey, with: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation || matches!(entry.state, State::Free { .. }) {
            return None;
        }
        Some(with(entry))
    }

    pub(super) fn set_location(&self, key: PendingKey, location: Location) {
        self.with(key, |entry| entry.location = location);
    }

    pub(super) fn location(&self, key: PendingKey) -> Location {
        self.with(key, |entry| entry.location).unwrap_or(Location::Nowhere)
    }

    pub(super) fn timer(&self, key: PendingKey) -> Option<TimerId> {
        self.with(key, |entry| entry.timer).flatten()
    }

    pub(super) fn set_timer(&self, key: PendingKey, timer: TimerId) {
        self.with(key, |entry| entry.timer = Some(timer));
    }

    /// Says where the message is now, and which timer ends the waiting.
    pub(super) fn set_sent(&self, key: PendingKey, location: Location, timer: Option<TimerId>) {
        self.with(key, |entry| (entry.location, entry.timer) = (location, timer));
    }

    /// Remembers whom to wake. `host` is the host of this table.
    pub(super) fn set_waker(&self, host: &Host, key: PendingKey, waker: &Waker) {
        let mut old = None;
        self.with(key, |entry| match &mut entry.waker {
            Some(known) if cell::wakes_the_same(known, waker) => {}
            slot => old = slot.replace(cell::for_the_core(host, waker)),
        });
        drop(old);
    }

    /// Says that an ask waits for a way out. False if that was known.
    pub(super) fn wait_for_route(&self, key: PendingKey) -> bool {
        self.with(key, |entry| !core::mem::replace(&mut entry.waits_for_route, true)).unwrap_or(false)
    }

    /// Whether an ask waits to be woken when a way opens. False for one that was woken and has not been polled since.
    pub(crate) fn waits_for_route(&self, key: PendingKey) -> bool {
        self.with(key, |entry| entry.waits_for_route).unwrap_or(false)
    }

    /// A way may have opened: wakes an ask that waits for one.
    pub(crate) fn route_opened(&self, key: PendingKey) {
        let waker = self.with(key, |entry| {
            entry.waits_for_route = false;
            entry.waker.clone()
        });
        if let Some(Some(waker)) = waker {
            waker.wake();
        }
    }

    /// The state of an ask.
    pub(super) fn check(&self, key: PendingKey) -> Option<State> {
        self.with(key, |entry| entry.state)
    }

    /// Says which entity an ask that leaves the core goes to, and its position among those that do.
    pub(super) fn set_route(&self, key: PendingKey, hash: u64, order: u64) {
        self.with(key, |entry| (entry.hash, entry.order) = (hash, order));
    }

    /// Hash of the entity that an ask went out to.
    pub(super) fn hash(&self, key: PendingKey) -> Option<u64> {
        self.with(key, |entry| (entry.order != 0).then_some(entry.hash)).flatten()
    }

    /// Position of an ask among those that leave the core.
    pub(super) fn order(&self, key: PendingKey) -> u64 {
        self.with(key, |entry| entry.order).unwrap_or(0)
    }

    /// The message of an ask is not under way any more and has to be sent again. True if the ask was not known to wait
    /// for a way out; it does now.
    pub(super) fn unroute(&self, key: PendingKey) -> bool {
        self.with(key, |entry| {
            if !matches!(entry.state, State::Waiting) {
                return false;
            }
            entry.location = Location::Unrouted;
            !core::mem::replace(&mut entry.waits_for_route, true)
        })
        .unwrap_or(false)
    }

    /// The asks that are under way to other cores and pods, with the hashes of their entities.
    pub(super) fn under_way(&self) -> Vec<(PendingKey, u64)> {
        let entries = self.entries.borrow();
        let waiting = entries.iter().enumerate().filter(|(_, entry)| matches!(entry.state, State::Waiting));
        waiting
            .filter(|(_, entry)| entry.order != 0 && matches!(entry.location, Location::Core(_) | Location::Link(_)))
            .map(|(index, entry)| (PendingKey { index: index as u32, generation: entry.generation }, entry.hash))
            .collect()
    }

    /// Whether an ask still waits.
    pub fn is_waiting(&self, key: PendingKey) -> bool {
        self.with(key, |entry| matches!(entry.state, State::Waiting)).unwrap_or(false)
    }

    /// The answer type of an ask that still waits.
    pub(crate) fn answer_type(&self, key: PendingKey) -> Option<&'static AnswerVtable> {
        self.with(key, |entry| matches!(entry.state, State::Waiting).then_some(entry.answer_type)).flatten()
    }

    /// Ends the waiting of an ask. False if it does not wait (any more).
    pub(super) fn settle(&self, key: PendingKey, state: State) -> bool {
        let waker = self.with(key, |entry| {
            if !matches!(entry.state, State::Waiting) {
                return None;
            }
            entry.state = state;
            entry.location = Location::Nowhere;
            Some(entry.waker.take())
        });
        match waker {
            Some(Some(waker)) => {
                if let Some(waker) = waker {
                    waker.wake();
                }
                true
            }
            _ => false,
        }
    }

    /// Forgets an ask; its timer comes back to be cancelled. An answer that nobody took is dropped.
    pub(super) fn remove(&self, key: PendingKey, pool: &BlockPool) -> Option<TimerId> {
        let removed = self.with(key, |entry| {
            entry.generation = entry.generation.wrapping_add(1);
            let state = core::mem::replace(&mut entry.state, State::Free { next: self.free.get() });
            (state, entry.answer_type, entry.timer.take(), entry.waker.take())
        });
        let (state, answer_type, timer, waker) = removed?;
        self.free.set(key.index);
        self.live.set(self.live.get() - 1);
        drop(waker);
        if let State::Answered(block) = state {
            // SAFETY: the block holds an answer of this type that nobody took.
            unsafe {
                (answer_type.drop)(block.as_ptr().cast());
                pool.give(block, answer_type.layout);
            }
        }
        timer
    }

    /// Forgets an ask whose answer the caller takes out of the block.
    pub(super) fn remove_taken(&self, key: PendingKey) -> Option<TimerId> {
        let removed = self.with(key, |entry| {
            entry.generation = entry.generation.wrapping_add(1);
            entry.state = State::Free { next: self.free.get() };
            (entry.timer.take(), entry.waker.take())
        });
        let (timer, waker) = removed?;
        self.free.set(key.index);
        self.live.set(self.live.get() - 1);
        drop(waker);
        timer
    }

    /// All asks behind a link, in no order; for links that end.
    pub(super) fn behind(&self, link: LinkId) -> Vec<PendingKey> {
        let entries = self.entries.borrow();
        let waiting = entries.iter().enumerate().filter(|(_, entry)| matches!(entry.state, State::Waiting));
        waiting
            .filter(|(_, entry)| entry.location == Location::Link(link))
            .map(|(index, entry)| PendingKey { index: index as u32, generation: entry.generation })
            .collect()
    }
}
