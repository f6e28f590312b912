//! What a core may serve: the shards that it owns, those that it hands over, and for how long.
//!
//! The fourth part of [`Host`]. A shard is *owned* with its token until its last entity is gone; it is *served*, which
//! means that messages start entities, unless it is being released, its senders here wait for what is still under way
//! to its former owner, or the whole core is frozen. Called by `engine`, `hosting`, `stopping` and `scope`.
//!
//! Invariants: a served shard is owned; while the core is frozen none is served and nothing of an entity is polled; a
//! shard that was released is not served again under the same token.
#![allow(unsafe_code)]

use core::cell::{Cell, OnceCell, RefCell};
use core::ptr::NonNull;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call::PendingKey;
use super::cell;
use super::dispatch::MessageVtable;
use super::host::{Host, Runnable, TimerKey};
use super::lifecycle::StopReason;
use super::pending::Location;
use super::slot::Phase;
use crate::base::{EntityId, LinkId, Nanos, ShardId, Token};

/// Slots that one turn looks at for entities of shards that are released: about the time of a slice.
const SCAN_SLOTS: usize = 2048;

/// Reads the time.
pub type Clock = Arc<dyn Fn() -> Nanos + Send + Sync>;

/// Until when a core may serve.
#[derive(Clone)]
pub struct Lease {
    /// Nanoseconds on the clock; `u64::MAX` for ever. The control thread extends it.
    pub until: Arc<AtomicU64>,
    /// The clock that it is on.
    pub clock: Clock,
}

impl Lease {
    /// Until when, at this moment. What was written before it was extended is seen after this.
    #[inline]
    pub fn until(&self) -> u64 {
        self.until.load(Ordering::Acquire)
    }

    /// Whether it is over. Reads the clock, unless it lasts for ever.
    #[inline]
    pub fn has_lapsed(&self) -> bool {
        let until = self.until();
        until != u64::MAX && (self.clock)().0 >= until
    }
}

struct Release {
    token: Token,
    done: bool,
}

/// A message that came back from another core, which had none of it.
struct Returned {
    block: NonNull<u8>,
    message_type: &'static MessageVtable,
}

/// The part of a host that is about ownership.
pub(super) struct Ownership {
    owned: RefCell<Box<[Token]>>,
    /// Entities of each shard.
    live: RefCell<Box<[u32]>>,
    releasing: RefCell<HashMap<ShardId, Release>>,
    /// Owned, but not served before the messages under way to the former owner are answered.
    closed: RefCell<HashSet<ShardId>>,
    released: RefCell<Vec<(ShardId, Token)>>,
    /// Where the look for entities to stop goes on.
    scan: Cell<Option<(usize, usize)>>,
    frozen: Cell<bool>,
    frozen_ready: RefCell<VecDeque<Runnable>>,
    frozen_timers: RefCell<Vec<TimerKey>>,
    lease: OnceCell<Lease>,
    returned: RefCell<HashMap<PendingKey, Returned>>,
    next_order: Cell<u64>,
}

impl Ownership {
    pub fn new(number_of_shards: u32) -> Ownership {
        Ownership {
            owned: RefCell::new(vec![Token(0); number_of_shards as usize].into_boxed_slice()),
            live: RefCell::new(vec![0; number_of_shards as usize].into_boxed_slice()),
            releasing: RefCell::default(),
            closed: RefCell::default(),
            released: RefCell::default(),
            scan: Cell::new(None),
            frozen: Cell::new(false),
            frozen_ready: RefCell::default(),
            frozen_timers: RefCell::default(),
            lease: OnceCell::new(),
            returned: RefCell::default(),
            next_order: Cell::new(1),
        }
    }

    /// Keeps a timer until the core may serve again.
    pub fn keep_timer(&self, key: TimerKey) {
        self.frozen_timers.borrow_mut().push(key);
    }
}

impl Host {
    // ---- what is owned and served ----

    /// Says which shards this core owns, with their tokens; the others it does not. Those in `closed` are not served
    /// before [`Host::open_shard`]. Entities of shards that were owned with another token are dropped.
    pub fn set_shards(
        &self,
        owned: impl Iterator<Item = (ShardId, Token)>,
        number_of_shards: u32,
        closed: HashSet<ShardId>,
    ) {
        let length = number_of_shards as usize;
        let mut now_owned = vec![Token(0); length].into_boxed_slice();
        // Released already, which the table does not show yet.
        let mut relinquished = HashSet::new();
        for (shard, token) in owned {
            let releasing = self.ownership.releasing.borrow();
            if releasing.get(&shard).is_some_and(|release| release.done && release.token == token) {
                relinquished.insert(shard);
            } else if let Some(entry) = now_owned.get_mut(shard.0 as usize) {
                *entry = token;
            }
        }
        if self.ownership.live.borrow().len() != length {
            // No entity can have lived under another number of shards.
            *self.ownership.live.borrow_mut() = vec![0; length].into_boxed_slice();
        }
        let before = self.ownership.owned.replace(now_owned);
        let lost = self.lost_shards(&before);
        if !lost.is_empty() {
            tracing::error!(shards = lost.len(), "shards were lost to another owner; their entities are dropped");
            self.drop_entities_where(|shard| lost.contains(&shard));
        }
        let mut releasing = self.ownership.releasing.borrow_mut();
        releasing.retain(|shard, release| !release.done || relinquished.contains(shard));
        drop(releasing);
        *self.ownership.closed.borrow_mut() = closed;
        self.refresh_served();
    }

    /// Shards with entities that this core does not own any more as it did before.
    fn lost_shards(&self, before: &[Token]) -> HashSet<ShardId> {
        let (owned, live) = (self.ownership.owned.borrow(), self.ownership.live.borrow());
        let is_lost = |at: &usize| {
            before[*at] != Token(0)
                && owned.get(*at) != Some(&before[*at])
                && live.get(*at).is_some_and(|live| *live > 0)
        };
        (0..before.len()).filter(is_lost).map(|at| ShardId(at as u32)).collect()
    }

    /// Serves a shard whose earlier messages from here are all answered.
    pub fn open_shard(&self, shard: ShardId) {
        if self.ownership.closed.borrow_mut().remove(&shard) {
            self.refresh_served();
        }
    }

    fn refresh_served(&self) {
        let owned = self.ownership.owned.borrow();
        let mut served = vec![Token(0); owned.len()].into_boxed_slice();
        if !self.is_frozen() {
            served.copy_from_slice(&owned);
            let releasing = self.ownership.releasing.borrow();
            let closed = self.ownership.closed.borrow();
            for shard in
                releasing.iter().filter(|(_, release)| !release.done).map(|(shard, _)| shard).chain(closed.iter())
            {
                if let Some(entry) = served.get_mut(shard.0 as usize) {
                    *entry = Token(0);
                }
            }
        }
        *self.shards.borrow_mut() = served;
    }

    /// The token of a shard that this core owns, also while it is not served.
    pub fn owned_token(&self, shard: ShardId) -> Option<Token> {
        self.ownership.owned.borrow().get(shard.0 as usize).copied().filter(|token| token.0 != 0)
    }

    pub(super) fn entity_enters(&self, shard: ShardId) {
        if let Some(live) = self.ownership.live.borrow_mut().get_mut(shard.0 as usize) {
            *live += 1;
        }
    }

    pub(super) fn entity_leaves(&self, shard: ShardId) {
        let is_last = match self.ownership.live.borrow_mut().get_mut(shard.0 as usize) {
            Some(live) => {
                *live = live.saturating_sub(1);
                *live == 0
            }
            None => false,
        };
        if is_last && self.is_releasing(shard) {
            self.finish_release(shard);
        }
    }

    /// How many entities of a shard live here.
    pub fn live_of_shard(&self, shard: ShardId) -> u32 {
        self.ownership.live.borrow().get(shard.0 as usize).copied().unwrap_or(0)
    }

    /// Ids of the entities of a type that live here, at most `limit`; of one shard, or of all.
    pub fn local_entities(&self, type_name: &str, shard: Option<ShardId>, limit: usize) -> Vec<EntityId> {
        let Some(kind) = self.types().iter().find(|kind| kind.name == type_name) else { return Vec::new() };
        let slots = (0..kind.arena.capacity()).filter_map(|position| kind.arena.at(position));
        // SAFETY: slots of an arena are alive.
        let headers = slots.map(|slot| unsafe { slot.as_ref() });
        headers
            .filter(|header| header.phase.get() != Phase::Free)
            .filter(|header| shard.is_none_or(|shard| header.shard.get() == shard))
            .take(limit)
            .map(|header| header.id().clone())
            .collect()
    }

    // ---- handing shards over ----

    /// Stops the entities of shards, which are not served from now on. Each comes back once from
    /// [`Host::take_released`]: when its last entity is gone; at once, without a token, if this core does not own it.
    pub fn release_shards(&self, shards: &[ShardId]) {
        let mut scan = false;
        for shard in shards {
            let Some(token) = self.owned_token(*shard) else {
                if !self.ownership.releasing.borrow().contains_key(shard) {
                    self.ownership.released.borrow_mut().push((*shard, Token(0)));
                }
                continue;
            };
            if self.is_releasing(*shard) {
                continue;
            }
            self.ownership.releasing.borrow_mut().insert(*shard, Release { token, done: false });
            if self.live_of_shard(*shard) == 0 {
                self.finish_release(*shard);
            } else {
                scan = true;
            }
        }
        self.refresh_served();
        if scan && self.ownership.scan.replace(Some((0, 0))).is_none() {
            self.ready.borrow_mut().push_back(Runnable::ReleaseScan);
        }
    }

    pub(super) fn is_releasing(&self, shard: ShardId) -> bool {
        self.ownership.releasing.borrow().get(&shard).is_some_and(|release| !release.done)
    }

    fn finish_release(&self, shard: ShardId) {
        let mut releasing = self.ownership.releasing.borrow_mut();
        let Some(release) = releasing.get_mut(&shard) else { return };
        release.done = true;
        if let Some(entry) = self.ownership.owned.borrow_mut().get_mut(shard.0 as usize)
            && *entry == release.token
        {
            *entry = Token(0);
        }
        self.ownership.released.borrow_mut().push((shard, release.token));
    }

    /// Tells a part of the entities to stop; the rest in later turns.
    pub(super) fn scan_for_release(&self) {
        let Some((mut type_at, mut slot_at)) = self.ownership.scan.get() else { return };
        for _ in 0..SCAN_SLOTS {
            let Some(kind) = self.types().get(type_at) else {
                self.ownership.scan.set(None);
                return;
            };
            let Some(slot) = kind.arena.at(slot_at) else {
                (type_at, slot_at) = (type_at + 1, 0);
                continue;
            };
            slot_at += 1;
            // SAFETY: slots are alive as long as the host.
            let header = unsafe { slot.as_ref() };
            if header.phase.get() != Phase::Free && self.is_releasing(header.shard.get()) {
                self.request_stop(slot, StopReason::Moved);
            }
        }
        self.ownership.scan.set(Some((type_at, slot_at)));
        self.ready.borrow_mut().push_back(Runnable::ReleaseScan);
    }

    /// Whether [`Host::take_released`] would give any.
    #[inline]
    pub fn has_released(&self) -> bool {
        !self.ownership.released.borrow().is_empty()
    }

    /// The shards whose last entity is gone since the last call, with the tokens under which they were owned.
    pub fn take_released(&self) -> Vec<(ShardId, Token)> {
        core::mem::take(&mut self.ownership.released.borrow_mut())
    }

    /// The right to serve is lost: drops all entities at once, without `Entity::stop`; no shard is owned any more.
    pub fn abandon_entities(&self) {
        self.ownership.releasing.borrow_mut().clear();
        self.ownership.closed.borrow_mut().clear();
        self.ownership.frozen_timers.borrow_mut().clear();
        self.ownership.owned.borrow_mut().fill(Token(0));
        self.refresh_served();
        self.drop_entities();
        self.ownership.released.borrow_mut().clear();
    }

    // ---- the lease ----

    /// Sets the lease; once, before anything runs. Without one the host serves for ever.
    pub fn set_lease(&self, lease: Lease) {
        assert!(self.ownership.lease.set(lease).is_ok(), "the lease of a host is set once");
    }

    /// Whether the lease is over at this moment.
    pub fn has_lapsed(&self) -> bool {
        self.ownership.lease.get().is_some_and(Lease::has_lapsed)
    }

    /// Whether nothing of an entity may run.
    #[inline(always)]
    pub fn is_frozen(&self) -> bool {
        self.ownership.frozen.get()
    }

    /// From now on nothing of an entity runs; what becomes ready waits.
    pub fn freeze(&self) {
        self.ownership.frozen.set(true);
        self.refresh_served();
    }

    /// Everything goes on where it was, but shards in `closed` are not served before [`Host::open_shard`].
    pub fn thaw(&self, closed: HashSet<ShardId>) {
        self.ownership.frozen.set(false);
        *self.ownership.closed.borrow_mut() = closed;
        self.refresh_served();
        let mut ready = self.ready.borrow_mut();
        let mut frozen = core::mem::take(&mut *self.ownership.frozen_ready.borrow_mut());
        frozen.append(&mut ready);
        *ready = frozen;
        drop(ready);
        for key in core::mem::take(&mut *self.ownership.frozen_timers.borrow_mut()) {
            self.arm(self.now(), key);
        }
    }

    /// Keeps something that is ready until the core may serve again.
    pub(super) fn keep_frozen(&self, runnable: Runnable) {
        self.ownership.frozen_ready.borrow_mut().push_back(runnable);
    }

    /// Gives up the references of what is kept; for the end of the host.
    pub(super) fn end_frozen(&self) {
        for runnable in core::mem::take(&mut *self.ownership.frozen_ready.borrow_mut()) {
            if let Runnable::Cell(cell) = runnable {
                // SAFETY: the queue's reference came with the cell.
                unsafe { cell::drop_reference(cell, Some(self.pool())) };
            }
        }
    }

    // ---- messages that have to be sent again ----

    /// Gives an ask that leaves the core its position among those that do.
    pub(super) fn enter_order(&self, key: PendingKey, hash: u64) {
        let order = self.ownership.next_order.get();
        self.ownership.next_order.set(order + 1);
        self.pending.set_route(key, hash, order);
    }

    /// Position of an ask among those that leave the core, in the order of their first polls.
    pub(crate) fn order_of(&self, key: PendingKey) -> u64 {
        self.pending.order(key)
    }

    /// Whether an ask waits to be woken when a way opens. False for one that was woken and has not been polled since.
    pub(crate) fn waits_for_route(&self, key: PendingKey) -> bool {
        self.pending.waits_for_route(key)
    }

    /// Whether an ask that waited for a way may start its message here: the shard is this core's, even if it is not
    /// served yet because asks wait that came before others.
    pub(super) fn may_start_waiting(&self, key: PendingKey, hash: u64) -> bool {
        let shard = crate::base::hash::shard_of_hash(hash, self.number_of_shards());
        !self.is_frozen()
            && self.owned_token(shard).is_some()
            && !self.is_releasing(shard)
            && self.router().is_next(self, key, hash)
    }

    /// Says when everything that is ready now has run.
    pub(crate) fn queue_barrier(&self) {
        self.ready.borrow_mut().push_back(Runnable::Barrier);
    }

    /// Hash of the entity that an ask went out to, if it did.
    pub(crate) fn hash_of(&self, key: PendingKey) -> Option<u64> {
        self.pending.hash(key)
    }

    /// The message of an ask has to be sent again. True if the ask has to be entered among those that wait for a way.
    pub(crate) fn unroute(&self, key: PendingKey) -> bool {
        self.pending.unroute(key)
    }

    /// The asks behind a link.
    pub(crate) fn asks_behind(&self, link: LinkId) -> Vec<PendingKey> {
        self.pending.behind(link)
    }

    /// The asks that are under way to other cores and pods, with the hashes of their entities.
    pub(crate) fn asks_under_way(&self) -> Vec<(PendingKey, u64)> {
        self.pending.under_way()
    }

    /// Another core gives a message back. False if nobody waits for it any more; it is dropped then.
    ///
    /// # Safety
    /// `message` is initialised, of the given type, moved out, and the one that the ask of this key sent.
    pub(crate) unsafe fn give_back(
        &self,
        key: PendingKey,
        message_type: &'static MessageVtable,
        message: *mut (),
    ) -> bool {
        let waits = self.pending.is_waiting(key) && matches!(self.pending.location(key), Location::Core(_));
        if !waits {
            // SAFETY: the message is ours.
            unsafe { (message_type.drop)(message) };
            return false;
        }
        let block = self.pool().take(message_type.layout);
        // SAFETY: the block has the layout of the message.
        unsafe {
            core::ptr::copy_nonoverlapping(message.cast::<u8>(), block.as_ptr(), message_type.layout.size());
        }
        self.ownership.returned.borrow_mut().insert(key, Returned { block, message_type });
        true
    }

    /// The block with the message that came back to an ask; the caller moves it out and releases the block.
    pub(super) fn take_returned(&self, key: PendingKey) -> Option<NonNull<u8>> {
        if self.ownership.returned.borrow().is_empty() {
            return None;
        }
        self.ownership.returned.borrow_mut().remove(&key).map(|returned| returned.block)
    }

    /// Drops the message that came back to an ask that ends.
    pub(super) fn forget_returned(&self, key: PendingKey) {
        if self.ownership.returned.borrow().is_empty() {
            return;
        }
        let returned = self.ownership.returned.borrow_mut().remove(&key);
        if let Some(returned) = returned {
            self.drop_returned_message(&returned);
        }
    }

    fn drop_returned_message(&self, returned: &Returned) {
        // SAFETY: the entry was just taken out of the table, so the message in its block is ours.
        unsafe {
            (returned.message_type.drop)(returned.block.as_ptr().cast());
            self.pool().give(returned.block, returned.message_type.layout);
        }
    }

    /// Drops all messages that came back; for the end of the host.
    pub(super) fn drop_returned(&self) {
        let returned = core::mem::take(&mut *self.ownership.returned.borrow_mut());
        returned.values().for_each(|returned| self.drop_returned_message(returned));
    }
}
