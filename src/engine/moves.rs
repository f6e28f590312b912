//! How senders of this core follow shards that move: newer owners, messages that have to be sent again, their order.
//!
//! The second part of [`Routes`]. A message belongs to its ask until it is answered, so it can be sent again; one that
//! moved to another core comes back from there. Called by `serving`, `frames`, `core` and the router.
//!
//! Invariants: messages of this core to one entity arrive in the order in which they were first sent, unless a link
//! broke. So a shard is *gated*, with a new owner while messages are under way to the former one, and while a large message
//! is not sent to its end: later ones wait, and asks that wait are woken in that order. Nothing here waits for a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::core::Core;
use super::counters::EngineCounters;
use super::link::{Link, Peer, Phase};
use super::parcel::Notice;
use super::routes::{LinkCommand, Routes};
use crate::base::hash::shard_of_hash;
use crate::base::limits::ORPHAN_GRACE;
use crate::base::{ClusterError, CoreIndex, Epoch, PodUid, ShardId, Token};
use crate::entity::{Host, PendingKey};
use crate::sharding::ShardTable;
use crate::wire::Frame;
use crate::wire::moved::{Moved, MovedOwner};

/// An owner that is newer than the one in the table.
pub(super) struct Learned {
    token: Token,
    uid: PodUid,
    core: CoreIndex,
    address: String,
    epoch: Epoch,
}

/// Where a shard is.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub token: Token,
    pub uid: PodUid,
    pub core: CoreIndex,
    pub address: &'a str,
    pub epoch: Epoch,
}

/// The newest owner of a shard that is known here.
#[inline]
pub(super) fn way_of<'a>(
    table: &'a ShardTable,
    learned: &'a HashMap<ShardId, Learned>,
    shard: ShardId,
) -> Option<Way<'a>> {
    if !learned.is_empty()
        && let Some(Learned { token, uid, core, address, epoch }) = learned.get(&shard)
    {
        return Some(Way { token: *token, uid: *uid, core: *core, address, epoch: *epoch });
    }
    way_in(table, shard)
}

/// The owner of a shard that a table names.
#[inline]
pub(super) fn way_in(table: &ShardTable, shard: ShardId) -> Option<Way<'_>> {
    let owner = table.owner(shard)?;
    let pod = table.pod(owner.pod)?;
    let epoch = table.epoch();
    Some(Way { token: owner.token, uid: pod.uid, core: owner.core, address: &pod.address, epoch })
}

impl Routes {
    /// Prepares for a newer table: lets go of pods that are gone, and gates the shards with a new owner to whose former
    /// one messages are under way. Returns the gated shards.
    pub(super) fn follow_table(&self, host: &Host, known: Option<&ShardTable>, table: &ShardTable) -> HashSet<ShardId> {
        if let Some(known) = known {
            self.let_go(host, known, table);
        }
        let mut learned = self.learned.borrow_mut();
        let changed: HashSet<ShardId> = {
            let tokens = table.owners().iter().enumerate().map(|(at, owner)| (ShardId(at as u32), owner.token));
            let before = |shard| known.and_then(|known| way_of(known, &learned, shard)).map(|way| way.token);
            tokens
                .filter(|(shard, token)| *token != Token(0) && before(*shard) != Some(*token))
                .map(|at| at.0)
                .collect()
        };
        learned.retain(|_, owner| owner.epoch > table.epoch());
        drop(learned);
        if !changed.is_empty() {
            self.gate(host, table.number_of_shards(), |shard| changed.contains(&shard));
        }
        self.closed_shards()
    }

    /// Later messages to these shards wait until those that are under way are answered.
    fn gate(&self, host: &Host, number_of_shards: u32, changed: impl Fn(ShardId) -> bool) {
        let (mut gated, mut gates) = (self.gated.borrow_mut(), self.gates.borrow_mut());
        for (key, hash) in host.asks_under_way() {
            let shard = shard_of_hash(hash, number_of_shards);
            if changed(shard) && gated.insert(key, shard).is_none() {
                *gates.entry(shard).or_insert(0) += 1;
            }
        }
    }

    /// Whether messages to a shard have to wait for earlier ones.
    #[inline]
    pub(super) fn is_gated(&self, shard: ShardId) -> bool {
        let gates = self.gates.borrow();
        !gates.is_empty() && gates.contains_key(&shard)
    }

    /// A message is not under way any more: it was answered, given up, or has to be sent again.
    #[inline]
    pub(super) fn arrived(&self, key: PendingKey) {
        if !self.gated.borrow().is_empty() {
            self.ungate(key);
        }
    }

    fn ungate(&self, key: PendingKey) {
        let shard = self.gated.borrow_mut().remove(&key);
        if let Some(shard) = shard {
            self.open_gate(shard);
        }
    }

    /// A large message to a shard is not sent to its end: later ones wait until it is.
    pub(super) fn close_gate(&self, shard: ShardId) {
        *self.gates.borrow_mut().entry(shard).or_insert(0) += 1;
    }

    /// One of those that later messages to a shard wait for is not under way any more.
    pub(super) fn open_gate(&self, shard: ShardId) {
        let mut gates = self.gates.borrow_mut();
        if let Some(open) = gates.get_mut(&shard) {
            *open -= 1;
            if *open == 0 {
                gates.remove(&shard);
                self.opened.borrow_mut().push(shard);
                self.wake_due.set(true);
            }
        }
    }

    /// A message has to be sent again when there is a way; its ask is woken then, in its turn.
    pub(super) fn unroute(&self, host: &Host, key: PendingKey) {
        if host.hash_of(key).is_none() {
            // A question about the pod, which is not asked again.
            host.fail_local(key, ClusterError::Transport);
        } else if host.unroute(key) {
            self.route_waiters.borrow_mut().push(key);
        }
        if let Some(hash) = host.hash_of(key) {
            self.enters(host, key, hash);
        }
        self.arrived(key);
    }

    // ---- the order of those who wait ----

    /// An ask waits for a way: later ones to the same shard wait behind it.
    pub(super) fn enters(&self, host: &Host, key: PendingKey, hash: u64) {
        let Some(shard) = self.table.borrow().as_deref().map(|table| table.shard_of(hash)) else { return };
        self.unsent.borrow_mut().entry(shard).or_default().insert(host.order_of(key), key);
    }

    /// Whether an ask waits for a way to a shard that came before this one.
    #[inline]
    pub(super) fn has_earlier(&self, host: &Host, key: PendingKey, shard: ShardId) -> bool {
        let unsent = self.unsent.borrow();
        if unsent.is_empty() {
            return false;
        }
        let first = unsent.get(&shard).and_then(|waiting| waiting.first_key_value());
        first.is_some_and(|(order, _)| *order < host.order_of(key))
    }

    /// An ask does not wait any more: the next one to its shard may go.
    pub(super) fn leave(&self, host: &Host, key: PendingKey, hash: u64) {
        if self.unsent.borrow().is_empty() {
            return;
        }
        let Some(shard) = self.table.borrow().as_deref().map(|table| table.shard_of(hash)) else { return };
        self.leave_shard(host, shard, host.order_of(key));
    }

    fn leave_shard(&self, host: &Host, shard: ShardId, order: u64) {
        let next = {
            let mut unsent = self.unsent.borrow_mut();
            let Some(waiting) = unsent.get_mut(&shard) else { return };
            if waiting.remove(&order).is_none() {
                return;
            }
            let next = waiting.first_key_value().map(|(_, key)| *key);
            if next.is_none() {
                unsent.remove(&shard);
            }
            next
        };
        match next {
            // One that was woken already is polled in any case.
            Some(next) if host.waits_for_route(next) => {
                self.route_waiters.borrow_mut().retain(|key| *key != next);
                host.wake_first(|| host.route_opened(next));
                if !self.barrier.replace(true) {
                    host.queue_barrier();
                }
            }
            Some(_) => {}
            None => {
                self.opened.borrow_mut().push(shard);
                self.wake_due.set(true);
            }
        }
    }

    /// Asks that were woken and not polled since keep nobody waiting: whoever holds them may never poll them.
    pub(super) fn pass_over(&self, host: &Host) {
        let skipped: Vec<(ShardId, u64)> = {
            let unsent = self.unsent.borrow();
            let all =
                unsent.iter().flat_map(|(shard, waiting)| waiting.iter().map(|(order, key)| (*shard, *order, *key)));
            all.filter(|(_, _, key)| !host.waits_for_route(*key)).map(|(shard, order, _)| (shard, order)).collect()
        };
        for (shard, order) in skipped {
            self.leave_shard(host, shard, order);
        }
    }

    /// Whether a shard is one of [`Routes::closed_shards`].
    pub(super) fn is_closed(&self, shard: ShardId) -> bool {
        self.is_gated(shard) || self.unsent.borrow().contains_key(&shard)
    }

    /// Shards that senders here must not reach by themselves, since others come before them.
    pub(super) fn closed_shards(&self) -> HashSet<ShardId> {
        self.gates.borrow().keys().chain(self.unsent.borrow().keys()).copied().collect()
    }

    /// Everything that waits for answers over a link has to be sent again.
    pub(super) fn unroute_link(&self, host: &Host, link: &Link) {
        for shard in link.leaving.give_up_all() {
            self.open_gate(shard);
        }
        let behind = host.asks_behind(link.id);
        EngineCounters::add(&self.counters.resends, behind.len() as u64);
        for key in behind {
            self.unroute(host, key);
        }
        self.wake_due.set(true);
    }

    /// Remembers an owner that is newer than what is known. True if it is.
    fn learn(&self, host: &Host, shard: ShardId, epoch: Epoch, owner: &MovedOwner<'_>) -> bool {
        let table = self.table.borrow();
        let Some(table) = table.as_deref().filter(|table| shard.0 < table.number_of_shards()) else { return false };
        let mut learned = self.learned.borrow_mut();
        let is_newer = match way_of(table, &learned, shard) {
            Some(way) => owner.token > way.token && epoch > way.epoch,
            None => epoch > table.epoch(),
        };
        if !is_newer {
            return false;
        }
        let MovedOwner { token, uid, core, address } = *owner;
        learned.insert(shard, Learned { token, uid, core, address: address.to_owned(), epoch });
        drop(learned);
        self.gate(host, table.number_of_shards(), |of| of == shard);
        true
    }

    /// Lets go of links to pods that are not in the newer table.
    fn let_go(&self, host: &Host, known: &ShardTable, table: &ShardTable) {
        for link in self.all_links() {
            let Peer::Pod(uid, _) = link.peer else { continue };
            if table.pod_index_of(uid).is_some() || !link.is_open() {
                continue;
            }
            let served = known.pod_index_of(uid).is_some_and(|pod| known.owners().iter().any(|owner| owner.pod == pod));
            if served {
                // It lost its shards with its membership, so it was not a clean leave: nothing it says counts any more.
                self.drop_link(host, &link);
            } else if link.orphaned_until.get() == crate::base::Nanos::NEVER {
                // It handed all over and answered all that it took; what it sent last may still be on its way.
                link.orphaned_until.set(host.now() + ORPHAN_GRACE);
            }
        }
    }

    /// Closes a link whose pod is gone, and sends again what waits behind it.
    pub(super) fn drop_link(&self, host: &Host, link: &Link) {
        link.muted.set(true);
        if link.phase.replace(Phase::Closing) == Phase::Open {
            EngineCounters::add(&self.counters.links_open, u64::MAX);
        }
        self.commands.borrow_mut().push(LinkCommand::Close { link: link.id });
        self.unroute_link(host, link);
    }

    /// Forgets the table and everything that belongs to it.
    pub(super) fn forget_table(&self) {
        *self.table.borrow_mut() = None;
        self.learned.borrow_mut().clear();
        self.unsent.borrow_mut().clear();
    }

    /// Gives another core this core's table, which may be newer.
    pub(super) fn tell_core(&self, core: CoreIndex, table: &Arc<ShardTable>) {
        let Some(Some(peer)) = self.peers.get(usize::from(core.0)) else { return };
        if peer.told.replace(table.epoch()) != table.epoch() {
            self.notify(core, Notice::Table(Arc::clone(table)));
        }
    }
}

impl Core {
    /// A pod refused a request, since its shard is elsewhere.
    pub(super) fn moved(&self, link: &Link, frame: &Frame<'_>, key: PendingKey) {
        let Ok(moved) = Moved::decode(frame.body) else { return self.close_link(link, "moved") };
        let host = &self.host;
        EngineCounters::add(&self.routes.counters.resends, 1);
        let number_of_shards = self.routes.table.borrow().as_ref().map_or(1, |table| table.number_of_shards());
        let shard = host.hash_of(key).map(|hash| shard_of_hash(hash, number_of_shards));
        if let (Some(shard), Some(owner)) = (shard, &moved.owner) {
            self.routes.learn(host, shard, moved.epoch, owner);
        }
        self.routes.unroute(host, key);
        let known = {
            let (table, learned) = (self.routes.table.borrow(), self.routes.learned.borrow());
            let way = table.as_deref().zip(shard).and_then(|(table, shard)| way_of(table, &learned, shard));
            way.map(|way| way.token)
        };
        if known.is_some_and(|token| token != frame.header.token) {
            self.routes.wake_due.set(true);
        } else {
            // Nothing newer is known: it waits for the next table.
            self.routes.ask_for_table(link);
        }
    }

    /// Whether a reply was made under an older token than the one that its request named: its pod is no owner.
    ///
    /// Messages that are under way to a former owner while a newer one is known are gated, and their replies are as
    /// good as ever: that owner took them while it was one, and hands over nothing before it has answered them.
    pub(super) fn is_stale(&self, token: Token, key: PendingKey) -> bool {
        if token == Token(0) || self.routes.gated.borrow().contains_key(&key) {
            return false;
        }
        let (table, learned) = (self.routes.table.borrow(), self.routes.learned.borrow());
        let Some((table, hash)) = table.as_deref().zip(self.host.hash_of(key)) else { return false };
        way_of(table, &learned, table.shard_of(hash)).is_some_and(|way| token < way.token)
    }

    /// Drops a stale reply; its request is sent again when a newer table says where to.
    pub(super) fn drop_stale(&self, link: &Link, key: PendingKey) {
        EngineCounters::add(&self.routes.counters.stale_replies, 1);
        self.routes.unroute(&self.host, key);
        self.routes.ask_for_table(link);
    }
}
