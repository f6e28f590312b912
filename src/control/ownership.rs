//! What a member of the cluster does about shards: plan them (the manager), claim and release its own, and build the
//! tables.
//!
//! The other half of the machine of [`super::membership`]. It works in rounds: it looks at the view, sends a bounded
//! number of conditional writes, and looks again once they are answered and the view shows what they did.
//!
//! Invariants: only the oldest candidate writes the plan, and each write compares that it still is; a claim compares
//! that there is no owner, that the plan is the one it saw, and that its own registration stands; a release compares
//! the token; a frozen pod writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::handover::Departures;
use super::keys::{PLAN_PAGE_SHARDS, RecordKey, pages_of};
use super::membership::{ControlNotice, PodControl};
use super::planner::{PlannerInput, PlannerPod, plan};
use super::records::{self, ManagerRecord, OwnershipRecord, PlanPage, PlannedPod, PlannedShard, PodState};
use super::store::{Compare, LeaseId, Operation, Revision, StoreError, StoreResponse, Transaction};
use super::view::{RoleView, Stored};
use super::{PUBLISH_HOLD_MAX, RETRY_PAUSE, WRITES_IN_FLIGHT_MAX};
use crate::base::{CoreIndex, Epoch, Nanos, PodIndex, PodUid, ShardId};
use crate::sharding::table::PODS_MAX;
use crate::sharding::{Owner, PodRecord, ShardTable, TableParts};

/// Plan pages of one transaction: with their compares they stay under a store's limit.
const PAGES_PER_WRITE: usize = 32;

/// The part of the machine's state that is about shards.
#[derive(Debug, Default)]
pub(super) struct ShardState {
    /// The view has to reach this revision before the next round: it shows the own writes then.
    awaited: Revision,
    /// A failed write is not repeated before.
    retry_at: Nanos,
    /// What each role's plan was made from, so that it is made again when that changes.
    planned_from: BTreeMap<String, Revision>,
    /// The manager does not plan before.
    plan_at: Nanos,
    /// The next round of rebalancing; `None` until the pod is the manager.
    rebalance_at: Option<Nanos>,
    /// Writes in a row of which a compare failed.
    conflicts: u32,
    pub(super) departures: Departures,
    pub(super) published: BTreeMap<String, Epoch>,
    /// Since when the table is held back.
    held_since: Option<Nanos>,
}

impl PodControl {
    pub(super) fn await_revision(&mut self, revision: Revision) {
        self.shards.awaited = self.shards.awaited.max(revision);
    }

    pub(super) fn on_write(&mut self, response: StoreResponse, now: Nanos) {
        match response {
            StoreResponse::Transaction { succeeded: true, revision } => {
                self.await_revision(revision);
                self.shards.conflicts = 0;
            }
            StoreResponse::Transaction { succeeded: false, revision } => {
                // The view lags behind: the next round, once it is there, does better. If not, something else is wrong.
                self.await_revision(revision);
                self.shards.planned_from.clear();
                self.shards.conflicts += 1;
                if self.shards.conflicts > 1 {
                    self.shards.retry_at = now + RETRY_PAUSE;
                }
            }
            StoreResponse::Failed(StoreError::LeaseNotFound) => self.lose(),
            _ => {
                self.shards.planned_from.clear();
                self.shards.retry_at = now + RETRY_PAUSE;
            }
        }
    }

    pub(super) fn on_view_changed(&mut self, now: Nanos) {
        let left = core::mem::take(&mut self.view.pods_left);
        // A pod that gave its shards away first leaves nothing to settle.
        let had_shards = |uid: &PodUid| self.view.roles.values().any(|role| role.planned_for(*uid).next().is_some());
        if left.iter().any(had_shards) {
            self.shards.plan_at = self.shards.plan_at.max(now + self.config.settle);
        }
    }

    pub(super) fn shards_wake(&self) -> Nanos {
        let state = &self.shards;
        let mut wake = Nanos::NEVER;
        let settled = self.is_settled();
        if settled && state.retry_at > Nanos::ZERO {
            wake = wake.min(state.retry_at);
        }
        if settled && self.is_manager() {
            let plan_at = if self.plan_is_outdated() { state.plan_at } else { Nanos::NEVER };
            let rebalance_at = state.rebalance_at.unwrap_or(Nanos::NEVER).max(state.plan_at);
            wake = wake.min(plan_at.min(rebalance_at).max(state.retry_at));
        }
        if let Some(since) = state.held_since {
            wake = wake.min(since + PUBLISH_HOLD_MAX);
        }
        wake.min(state.departures.wake())
    }

    /// One round, if the last one is settled.
    pub(super) fn reconcile(&mut self, now: Nanos) {
        if self.lost_registration() {
            return self.lose();
        }
        if self.is_settled() && now >= self.shards.retry_at {
            self.shards.retry_at = Nanos::ZERO;
            self.announce(now);
            if self.writes_pending == 0 {
                self.manage(now);
            }
            if self.writes_pending == 0 {
                self.claim(now);
            }
            self.publish(now);
            if self.writes_pending == 0 {
                self.release(now);
            }
        } else {
            self.publish(now);
        }
    }

    /// Whether the own writes are answered and visible, so that a next round may write. What is missing comes as an
    /// event, not with time.
    fn is_settled(&self) -> bool {
        self.writes_pending == 0 && self.view.revision >= self.shards.awaited && !self.is_frozen()
    }

    fn lease_id(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(|lease| lease.id)
    }

    fn is_manager(&self) -> bool {
        self.lease_id().is_some_and(|lease| self.view.manager() == Some(lease))
    }

    pub(super) fn own_role(&self) -> Option<&RoleView> {
        self.view.role(&self.config.role)
    }

    fn manage(&mut self, now: Nanos) {
        let (Some(lease), Some(registered)) = (self.lease_id(), self.registered) else {
            return;
        };
        if !self.config.may_manage {
            return;
        }
        if !self.view.managers.contains_key(&lease) {
            return self.become_candidate(lease, registered, now);
        }
        if !self.is_manager() || now < self.shards.plan_at {
            return;
        }
        let due = *self.shards.rebalance_at.get_or_insert(now + self.config.rebalance_interval);
        let rebalance = now >= due;
        if rebalance {
            self.shards.rebalance_at = Some(now + self.config.rebalance_interval);
        }
        let roles: Vec<String> = self.view.roles.keys().cloned().collect();
        for role in roles {
            let ordered =
                self.view.role(&role).and_then(|role| role.rebalance.as_ref()).map(|order| order.mod_revision);
            if rebalance || ordered.is_some() || self.role_plan_is_outdated(&role) {
                self.plan_role(&role, rebalance || ordered.is_some(), lease, now);
            }
            if let Some(seen) = ordered {
                let key = self.keys.key(RecordKey::Rebalance(&role));
                let compares = vec![Compare::ModRevision(key.clone(), seen)];
                self.write(Transaction { compares, operations: vec![Operation::Delete(key)] }, now);
            }
        }
    }

    fn role_plan_is_outdated(&self, role: &str) -> bool {
        let changed = self.view.role(role).map(|role| role.plan_changed);
        changed != self.shards.planned_from.get(role).copied()
    }

    fn plan_is_outdated(&self) -> bool {
        self.view.roles.keys().any(|role| self.role_plan_is_outdated(role))
    }

    fn become_candidate(&mut self, lease: LeaseId, registered: Revision, now: Nanos) {
        let key = self.keys.key(RecordKey::Manager(lease));
        let (address, version) = (self.config.address.clone(), self.config.version.clone());
        let value = records::encode(ManagerRecord { uid: self.config.uid, address, version });
        let compares = vec![Compare::Absent(key.clone()), Compare::CreateRevision(self.pod_key(), registered)];
        let operations = vec![Operation::Put { key, value, lease: Some(lease) }];
        self.write(Transaction { compares, operations }, now);
    }

    fn plan_role(&mut self, name: &str, rebalance: bool, lease: LeaseId, now: Nanos) {
        let (Some(role), Some(candidacy)) = (self.view.role(name), self.view.managers.get(&lease).copied()) else {
            return;
        };
        let planned_from = role.plan_changed;
        let input = planner_input(role, rebalance, self.config.rebalance_rate_per_mille);
        let planned = plan(&input);
        let manager = Compare::CreateRevision(self.keys.key(RecordKey::Manager(lease)), candidacy);
        let mut transactions = Vec::new();
        let changed = changed_pages(role, &planned.owners);
        let complete = changed.len() <= PAGES_PER_WRITE * WRITES_IN_FLIGHT_MAX;
        for pages in changed.chunks(PAGES_PER_WRITE).take(WRITES_IN_FLIGHT_MAX) {
            let mut transaction = Transaction { compares: vec![manager.clone()], operations: Vec::new() };
            for (page, record) in pages {
                let key = self.keys.key(RecordKey::Plan(name, *page));
                transaction.compares.push(match role.pages.get(page) {
                    Some(seen) => Compare::ModRevision(key.clone(), seen.mod_revision),
                    None => Compare::Absent(key.clone()),
                });
                let value = records::encode(record.clone());
                transaction.operations.push(Operation::Put { key, value, lease: None });
            }
            transactions.push(transaction);
        }
        if complete {
            self.shards.planned_from.insert(name.to_owned(), planned_from);
        }
        for transaction in transactions {
            self.write(transaction, now);
        }
    }

    /// Claims the shards that are planned for this pod and that nobody owns, a page at a time.
    fn claim(&mut self, now: Nanos) {
        let (Some(lease), Some(registered)) = (self.lease_id(), self.registered) else {
            return;
        };
        let Some(role) = self.own_role().filter(|_| !self.draining) else {
            return;
        };
        let mut pages: BTreeMap<u32, Vec<ShardId>> = BTreeMap::new();
        for (page, shard) in unclaimed(role, self.config.uid) {
            pages.entry(page).or_default().push(shard);
        }
        let mut loads = core_loads(role, self.config.uid, self.config.cores);
        let mut transactions = Vec::new();
        for (page, shards) in pages.into_iter().take(WRITES_IN_FLIGHT_MAX) {
            let Some(seen) = role.pages.get(&page) else {
                continue;
            };
            let plan_key = self.keys.key(RecordKey::Plan(&self.config.role, page));
            let mut transaction = Transaction {
                compares: vec![
                    Compare::ModRevision(plan_key, seen.mod_revision),
                    Compare::CreateRevision(self.pod_key(), registered),
                ],
                operations: Vec::new(),
            };
            for shard in shards {
                let key = self.keys.key(RecordKey::Ownership(&self.config.role, shard));
                let core = take_least_loaded(&mut loads);
                let since_unix_ms = self.config.unix_ms(now);
                let owner = self.config.uid;
                let value = records::encode(OwnershipRecord { owner, core, pod_revision: registered.0, since_unix_ms });
                transaction.compares.push(Compare::Absent(key.clone()));
                transaction.operations.push(Operation::Put { key, value, lease: Some(lease) });
            }
            transactions.push(transaction);
        }
        for transaction in transactions {
            self.write(transaction, now);
        }
    }

    /// Publishes the tables that changed. The first one waits until the own shards are claimed; later ones are held
    /// for a moment while claims are on their way, so that a batch of claims makes one table.
    fn publish(&mut self, now: Nanos) {
        let Some(own) = self.own_role() else {
            return;
        };
        let claims_missing = !self.draining && unclaimed(own, self.config.uid).next().is_some();
        let first = !self.shards.published.contains_key(&self.config.role);
        if first && (claims_missing || !self.own_plan_is_complete()) {
            return;
        }
        if claims_missing {
            let since = *self.shards.held_since.get_or_insert(now);
            if now < since + PUBLISH_HOLD_MAX {
                return;
            }
        }
        self.shards.held_since = None;
        let base = self.view.token_base();
        let mut tables = Vec::new();
        for (name, role) in &self.view.roles {
            let epoch = Epoch(base.saturating_add(role.table_changed.0));
            let newer = self.shards.published.get(name).is_none_or(|published| *published < epoch);
            if newer && let Some(table) = table(name, role, epoch, base) {
                tables.push(table);
            }
        }
        for table in tables {
            self.shards.published.insert(table.role().to_owned(), table.epoch());
            self.notice(ControlNotice::Publish(Arc::new(table)));
        }
    }
}

/// Shards that are planned for a pod and have no owner, with their page.
fn unclaimed(role: &RoleView, uid: PodUid) -> impl Iterator<Item = (u32, ShardId)> {
    role.planned_for(uid).filter(|(_, shard)| !role.owners.contains_key(shard))
}

fn core_loads(role: &RoleView, uid: PodUid, cores: u16) -> BTreeSet<(u32, u16)> {
    let mut loads = vec![0_u32; usize::from(cores)];
    for owner in role.owners.values().filter(|owner| owner.record.owner == uid) {
        if let Some(load) = loads.get_mut(usize::from(owner.record.core)) {
            *load += 1;
        }
    }
    loads.into_iter().zip(0..).collect()
}

fn take_least_loaded(loads: &mut BTreeSet<(u32, u16)>) -> u16 {
    let (load, core) = loads.pop_first().unwrap_or_default();
    loads.insert((load + 1, core));
    core
}

/// What the planner decides on, from the records of a role. Public for dry runs.
#[must_use]
pub fn planner_input(role: &RoleView, rebalance: bool, rate_per_mille: u32) -> PlannerInput {
    let shards = || (0..role.number_of_shards()).map(ShardId);
    let pod = |(uid, pod): (&PodUid, &Stored<super::records::PodEntry>)| {
        let order = role.orders.get(uid).map(|order| order.record).unwrap_or_default();
        PlannerPod {
            uid: *uid,
            address: pod.record.address.clone(),
            version: pod.record.version.clone(),
            weight: pod.record.weight,
            registered: pod.create_revision,
            cordoned: order.cordon || pod.record.state == PodState::Joining,
            draining: order.drain || pod.record.state == PodState::Draining,
        }
    };
    let named = role.pages.values().flat_map(|page| &page.record.pods);
    PlannerInput {
        pods: role.pods.iter().map(pod).collect(),
        planned: shards().map(|shard| role.planned(shard).owner).collect(),
        owned: shards().map(|shard| role.live_owner(shard).map(|owner| owner.record.owner)).collect(),
        pins: role.pins.iter().map(|(shard, pin)| (*shard, pin.record.pod)).collect(),
        former: named
            .filter(|pod| !role.pods.contains_key(&pod.uid))
            .map(|pod| (pod.uid, pod.address.clone()))
            .collect(),
        rebalance,
        rate_per_mille,
    }
}

/// The pages whose contents differ from the present ones.
fn changed_pages(role: &RoleView, owners: &[Option<PodUid>]) -> Vec<(u32, PlanPage)> {
    let mut changed = Vec::new();
    for (page, owners) in (0..pages_of(role.number_of_shards())).zip(owners.chunks(PLAN_PAGE_SHARDS as usize)) {
        let before = role.pages.get(&page).map(|page| &page.record);
        let first = page * PLAN_PAGE_SHARDS;
        let shards: Vec<PlannedShard> = (first..)
            .map(ShardId)
            .zip(owners)
            .map(|(shard, owner)| {
                let pinned = owner.is_some() && role.pins.get(&shard).map(|pin| pin.record.pod) == *owner;
                PlannedShard { owner: *owner, pinned }
            })
            .collect();
        if before.is_some_and(|before| before.shards == shards) {
            continue;
        }
        let named: BTreeSet<PodUid> = owners.iter().copied().flatten().collect();
        let address = |uid: &PodUid| {
            let former = || before?.pods.iter().find(|pod| pod.uid == *uid).map(|pod| pod.address.clone());
            role.pods.get(uid).map(|pod| pod.record.address.clone()).or_else(former).unwrap_or_default()
        };
        let pods = named.iter().map(|uid| PlannedPod { uid: *uid, address: address(uid) }).collect();
        let generation = before.map_or(0, |before| before.generation) + 1;
        changed.push((page, PlanPage { generation, pods, shards }));
    }
    changed
}

/// The table of a role; `None` while the role has no record.
fn table(name: &str, role: &RoleView, epoch: Epoch, token_base: u64) -> Option<ShardTable> {
    let record = &role.role.as_ref()?.record;
    let usable = |pod: &Stored<super::records::PodEntry>| pod.record.cores > 0;
    let pods: Vec<PodRecord> = role
        .pods
        .iter()
        .filter(|(_, pod)| usable(pod))
        .take(PODS_MAX)
        .map(|(uid, pod)| PodRecord {
            uid: *uid,
            address: pod.record.address.clone(),
            cores: pod.record.cores,
            version: pod.record.version.clone(),
            role: name.to_owned(),
        })
        .collect();
    let index: BTreeMap<PodUid, PodIndex> = pods.iter().map(|pod| pod.uid).zip((0..).map(PodIndex)).collect();
    let owner = |shard: ShardId| {
        let stored = role.live_owner(shard)?;
        let pod = *index.get(&stored.record.owner)?;
        let core = CoreIndex(stored.record.core);
        (core.0 < pods[usize::from(pod.0)].cores).then_some(Owner {
            token: crate::base::Token(token_base.saturating_add(stored.create_revision.0)),
            pod,
            core,
        })
    };
    let owners = (0..role.number_of_shards()).map(|shard| owner(ShardId(shard)).unwrap_or(Owner::NONE)).collect();
    let (hash_seed, number_of_shards) = (record.hash_seed, role.number_of_shards());
    let parts = TableParts { role: name.to_owned(), epoch, hash_seed, number_of_shards, pods, owners };
    ShardTable::from_parts(parts).ok()
}
