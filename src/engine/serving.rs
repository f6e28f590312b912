//! What this core serves as an owner of shards: where a request belongs, shards that are handed over, the lease.
//!
//! Called by `core` and `frames`. A request is compared with what the core owns by role, shard and token: it is handled
//! here, waits (`held`) until a newer table says where its shard is, or is refused with the newest owner that is known.
//!
//! Invariants: no request is handled under another token than its sender named; while the lease is over nothing of an
//! entity starts or goes on, and nothing but control frames leaves the core; what the control thread said before it
//! extended the lease is done before anything else happens under the extended one.

use core::cmp::Ordering;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use super::core::{Command, Core};
use super::counters::EngineCounters;
use super::held::Held;
use super::link::{Link, Phase};
use super::moves::{way_in, way_of};
use super::parcel::{CallParcel, Notice};
use super::routes::LinkCommand;
use crate::base::{ClusterError, CoreIndex, PodUid, ShardId, Token};
use crate::entity::router::Router;
use crate::mesh::InPlace;
use crate::sharding::ShardTable;
use crate::wire::moved::{Moved, MovedOwner};
use crate::wire::{Frame, FrameKind};

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To an entity of this core.
    Here,
    /// That is not known yet.
    Wait,
    /// To another core or pod, or to this one under another token.
    Elsewhere,
}

/// What the sender of a refused request learns: it has to be newer than what it knew, or the request comes again at once.
#[derive(Clone, Copy)]
enum Refusal {
    /// The newest owner known here, also one that was learned and is in no table yet: told over a link.
    NamesOwner,
    /// The table of this core: told to another core of the pod.
    GivesTable,
}

impl Core {
    // ---- the lease ----

    /// Looks at the lease. True if nothing of an entity may run now.
    #[inline]
    pub(super) fn is_frozen_now(&self) -> bool {
        let until = self.lease.until();
        if until == u64::MAX && self.seen_until.get() == u64::MAX {
            return false;
        }
        self.look_at_lease(until)
    }

    fn look_at_lease(&self, until: u64) -> bool {
        if self.seen_until.replace(until) != until {
            // What was said before may be that the old lease was lost, and everything under it.
            self.take_commands_now();
        }
        let frozen = self.lease.has_lapsed();
        if frozen != self.host.is_frozen() {
            if frozen { self.freeze() } else { self.thaw() }
        }
        frozen
    }

    fn freeze(&self) {
        tracing::warn!("frozen: the pod's lease could not be renewed in time");
        EngineCounters::add(&self.routes.counters.freezes, 1);
        self.host.freeze();
    }

    fn thaw(&self) {
        tracing::info!("thawed: the pod's lease is valid again");
        self.host.thaw(self.routes.closed_shards());
        for link in core::mem::take(&mut *self.withheld.borrow_mut()) {
            if let Some(link) = self.routes.link(link) {
                self.routes.mark_dirty(&link);
            }
        }
        self.routes.wake_due.set(true);
        self.look_at_held();
    }

    /// Whether the output of a link has to stay here now.
    pub(super) fn withholds(&self, link: &Link) -> bool {
        if link.muted.get() {
            return true;
        }
        if !self.is_frozen_now() || !link.has_messages.get() {
            return false;
        }
        let mut withheld = self.withheld.borrow_mut();
        if !withheld.contains(&link.id) {
            withheld.push(link.id);
        }
        true
    }

    /// The lease is lost: whatever this core served is another's now. Nothing is saved and nobody is answered.
    pub(super) fn abandon(&self) {
        for link in self.routes.all_links() {
            link.muted.set(true);
            if link.phase.replace(Phase::Closing) == Phase::Open {
                EngineCounters::add(&self.routes.counters.links_open, u64::MAX);
            }
            self.held.forget_link(link.id);
            self.routes.commands.borrow_mut().push(LinkCommand::Close { link: link.id });
        }
        self.withheld.borrow_mut().clear();
        self.routes.forget_table();
        self.host.abandon_entities();
    }

    /// From now on the process is another member of the cluster.
    pub(super) fn become_incarnation(&self, uid: PodUid) {
        self.routes.uid.set(uid);
    }

    // ---- shards ----

    /// Stops the entities of shards, to hand them over.
    pub(super) fn release(&self, shards: &[ShardId]) {
        self.host.release_shards(shards);
        self.report_released();
    }

    /// Tells the control thread of shards whose last entity is gone.
    #[inline]
    pub(super) fn report_released(&self) {
        if !self.host.has_released() {
            return;
        }
        for (shard, token) in self.host.take_released() {
            (self.released)(shard, token);
        }
    }

    /// Uses a table from now on, if it is newer.
    pub fn set_table(&self, table: Arc<ShardTable>) {
        let _entered = self.host.enter();
        let known = self.routes.table.borrow().clone();
        if known.as_ref().is_some_and(|known| !table.is_newer_than(known)) {
            return;
        }
        let gated = self.routes.follow_table(&self.host, known.as_deref(), &table);
        let identity = &self.routes.identity;
        if identity.is_pod {
            let here = table.pod_index_of(self.routes.uid.get());
            let owned = table.owners().iter().enumerate().filter_map(|(shard, owner)| {
                let mine = Some(owner.pod) == here && owner.core == identity.core;
                mine.then_some((ShardId(shard as u32), owner.token))
            });
            self.host.set_shards(owned, table.number_of_shards(), gated);
        }
        *self.routes.table.borrow_mut() = Some(Arc::clone(&table));
        self.spread_table(&table);
        self.routes.wake_due.set(true);
        self.look_at_held();
        self.settle();
    }

    /// Does what the events before it made due: opens shards, wakes asks that may be sent, reports. Mostly nothing is.
    #[inline]
    pub(super) fn settle(&self) {
        if self.routes.wake_due.get() || !self.routes.opened.borrow().is_empty() {
            self.settle_routes();
        }
        self.report_released();
    }

    #[inline(never)]
    fn settle_routes(&self) {
        loop {
            let opened = core::mem::take(&mut *self.routes.opened.borrow_mut());
            if !opened.is_empty() {
                // Others may have come to wait since.
                let opened = opened.into_iter().filter(|shard| !self.routes.is_closed(*shard));
                opened.for_each(|shard| self.host.open_shard(shard));
                self.look_at_held();
            }
            if self.routes.wake_due.replace(false) {
                self.routes.wake_route_waiters();
            }
            if self.routes.opened.borrow().is_empty() {
                break;
            }
        }
    }

    /// Looks again at the requests that wait, in order.
    pub(super) fn look_at_held(&self) {
        for held in self.held.take_all() {
            match held {
                Held::Frame(held) => {
                    if let Some(link) = self.routes.link(held.link).filter(|link| link.is_open()) {
                        let waited = self.host.now().since(held.since);
                        self.request_taken(&link, &held.frame(), held.header.kind == FrameKind::Tell, waited);
                    }
                }
                Held::Call(from, call) => InPlace::lend(call, |call| self.call(from, call)),
            }
        }
    }

    /// How many requests wait here.
    pub fn held_requests(&self) -> usize {
        self.held.length()
    }

    // ---- where a request belongs ----

    /// Compares a frame's shard and token with what this core owns. Token zero is a sender without a table.
    pub(super) fn place_frame(&self, shard: ShardId, token: Token) -> Place {
        let compare = |other| if token == Token(0) { Ordering::Equal } else { token.cmp(&other) };
        self.place(shard, compare, Refusal::NamesOwner)
    }

    /// Where a request belongs for a shard whose token, as the sender named it, compares so with another one.
    #[inline]
    fn place(&self, shard: ShardId, compare: impl Fn(Token) -> Ordering, refusal: Refusal) -> Place {
        if self.is_frozen_now() {
            return Place::Wait;
        }
        if let Some(own) = self.host.shard_token(shard) {
            return match compare(own) {
                Ordering::Equal => Place::Here,
                // The shard may have left and come back since: one that was sent before is on its way back then.
                Ordering::Less => Place::Elsewhere,
                Ordering::Greater => Place::Wait,
            };
        }
        self.place_of_others(shard, compare, refusal)
    }

    #[inline(never)]
    fn place_of_others(&self, shard: ShardId, compare: impl Fn(Token) -> Ordering, refusal: Refusal) -> Place {
        let table = self.routes.table.borrow();
        let learned = self.routes.learned.borrow();
        let way = table.as_deref().and_then(|table| match refusal {
            Refusal::NamesOwner => way_of(table, &learned, shard),
            Refusal::GivesTable => way_in(table, shard),
        });
        let Some(way) = way else { return Place::Wait };
        let here = way.uid == self.routes.uid.get() && way.core == self.routes.identity.core;
        if here || compare(way.token) == Ordering::Greater { Place::Wait } else { Place::Elsewhere }
    }

    /// Keeps a request, which has waited so long, until it is known where its shard is.
    pub(super) fn hold_frame(&self, link: &Link, frame: &Frame<'_>, waited: Duration) -> Result<(), ClusterError> {
        if self.held.keep_frame(link.id, frame, self.host.now() - waited) {
            return Ok(());
        }
        if self.host.is_frozen() {
            return Err(ClusterError::Busy);
        }
        // Then its sender keeps it, until it has a newer table.
        self.refuse_moved(link, frame, false);
        Ok(())
    }

    /// Answers a request for a shard that is elsewhere, with the newest owner if that is known and helps.
    pub(super) fn refuse_moved(&self, link: &Link, frame: &Frame<'_>, with_owner: bool) {
        let header = &frame.header;
        EngineCounters::add(&self.routes.counters.moved_answers, 1);
        let table = self.routes.table.borrow();
        let learned = self.routes.learned.borrow();
        let way = table.as_deref().filter(|_| with_owner).and_then(|table| way_of(table, &learned, header.shard));
        let epoch = way.map(|way| way.epoch).or(table.as_deref().map(ShardTable::epoch)).unwrap_or_default();
        let owner = way.map(|way| MovedOwner { token: way.token, uid: way.uid, core: way.core, address: way.address });
        let moved = Moved { epoch, owner };
        // A small frame always fits.
        let _ = self.routes.write(link, FrameKind::Moved, 0, header.token, header.correlation, |bytes, _| {
            moved.encode(bytes);
            Ok(())
        });
    }

    /// A message of another core for an entity here.
    pub(super) fn call(&self, from: CoreIndex, call: InPlace<'_, CallParcel>) {
        let shard = crate::base::hash::shard_of_hash(call.hash, self.host.number_of_shards());
        match self.place(shard, |other| call.compare_token(other), Refusal::GivesTable) {
            Place::Here => self.deliver_call(from, call),
            Place::Wait => {
                if let Err(call) = self.held.keep_call(from, call.into_inner()) {
                    self.routes.fail_core(from, call.key, ClusterError::Busy);
                }
            }
            Place::Elsewhere => {
                if let Some(table) = self.routes.table.borrow().clone() {
                    self.routes.tell_core(from, &table);
                }
                self.routes.notify(from, Notice::Returned(Box::new(call.into_inner())));
            }
        }
    }

    /// A message comes back from another core: its sender sends it again, to where its shard is now. Before, that core
    /// gave this one its table; if that was the older one, it gets this one's now, so that the message comes to rest.
    pub(super) fn returned(&self, from: CoreIndex, call: CallParcel) {
        if let Some(table) = self.routes.table.borrow().clone() {
            self.routes.tell_core(from, &table);
        }
        let key = crate::entity::PendingKey::from_number(call.key);
        if call.give_back(&self.host) {
            EngineCounters::add(&self.routes.counters.resends, 1);
            self.routes.unroute(&self.host, key);
            self.routes.wake_due.set(true);
        }
    }

    /// Carries out all commands that wait.
    pub(super) fn take_commands_now(&self) {
        // As many as there may be; what comes meanwhile was not said before.
        for _ in 0..crate::base::limits::FOREIGN_INBOX_CAPACITY {
            let Some(command) = self.foreign.pop() else { break };
            self.command(command);
        }
    }

    pub(super) fn command(&self, command: Command) {
        match command {
            Command::Job(job) => job(&self.host),
            Command::OnCore(job) => job(self),
            Command::Table(table) => self.set_table(table),
            Command::Release { shards } => self.release(&shards),
            Command::Abandon => self.abandon(),
            Command::Identity(uid) => self.become_incarnation(uid),
            Command::Drain => self.drain(),
            Command::Stop => self.stop(),
        }
    }

    /// Links of pods that are in no table any more, for long enough that all they sent is here.
    pub(super) fn close_orphans(&self, links: &[Rc<Link>], now: crate::base::Nanos) {
        for link in links.iter().filter(|link| link.is_open() && link.orphaned_until.get() <= now) {
            self.routes.drop_link(&self.host, link);
        }
    }
}
