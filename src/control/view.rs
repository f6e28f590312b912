//! A mirror of a cluster's records, kept up to date by a listing and the watch after it.
//!
//! Called by [`super::membership`] and [`super::ownership`]. A listing may be read in pages at different revisions:
//! a change that is older than the record at hand is ignored, so the mirror is exact once the watch has caught up with
//! the last page. Records that cannot be read are counted and left out: a claim of such a shard fails at the store.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::keys::{KeySpace, PLAN_PAGE_SHARDS, RecordKey, page_of};
use super::records::{
    self, MetaRecord, OwnershipRecord, PinOrder, PlanPage, PlannedShard, PodEntry, PodOrder, RebalanceOrder,
    RecordError, RoleRecord,
};
use super::store::{Change, KeyValue, LeaseId, Revision};
use crate::base::limits::NUMBER_OF_SHARDS_MAX;
use crate::base::{PodUid, ShardId, Token};

/// A record with what the store knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// The record.
    pub record: T,
    /// When it was created.
    pub create_revision: Revision,
    /// When it was last changed.
    pub mod_revision: Revision,
    /// Its lease.
    pub lease: Option<LeaseId>,
}

/// The records of one role.
#[derive(Clone, Debug, Default)]
pub struct RoleView {
    /// The role itself.
    pub role: Option<Stored<RoleRecord>>,
    /// Its pods.
    pub pods: BTreeMap<PodUid, Stored<PodEntry>>,
    /// The plan.
    pub pages: BTreeMap<u32, Stored<PlanPage>>,
    /// The owners.
    pub owners: BTreeMap<ShardId, Stored<OwnershipRecord>>,
    /// Orders of the admin about pods.
    pub orders: BTreeMap<PodUid, Stored<PodOrder>>,
    /// Orders of the admin about shards.
    pub pins: BTreeMap<ShardId, Stored<PinOrder>>,
    /// The order of the admin to rebalance now.
    pub rebalance: Option<Stored<RebalanceOrder>>,
    /// The last change of what makes a table: role, pods, owners.
    pub table_changed: Revision,
    /// The last change of what the planner decides on: role, pods, plan, orders.
    pub plan_changed: Revision,
}

impl RoleView {
    /// Number of shards; 0 while the role is not known.
    #[must_use]
    pub fn number_of_shards(&self) -> u32 {
        self.role.as_ref().map_or(0, |role| role.record.number_of_shards.min(NUMBER_OF_SHARDS_MAX))
    }

    /// The plan for a shard.
    #[must_use]
    pub fn planned(&self, shard: ShardId) -> PlannedShard {
        let (page, at) = page_of(shard);
        self.pages.get(&page).and_then(|page| page.record.shards.get(at)).copied().unwrap_or_default()
    }

    /// The shards of the role that are planned for a pod, with their page.
    pub fn planned_for(&self, uid: PodUid) -> impl Iterator<Item = (u32, ShardId)> {
        let number_of_shards = self.number_of_shards();
        self.pages.iter().flat_map(move |(page, stored)| {
            let first = page.saturating_mul(PLAN_PAGE_SHARDS);
            let shards = (first..).map(ShardId).zip(&stored.record.shards);
            let of_pod = shards.filter(move |(shard, plan)| plan.owner == Some(uid) && shard.0 < number_of_shards);
            of_pod.map(|(shard, _)| (*page, shard))
        })
    }

    /// The owner of a shard whose pod is registered and is still the incarnation that claimed it.
    #[must_use]
    pub fn live_owner(&self, shard: ShardId) -> Option<&Stored<OwnershipRecord>> {
        self.owners.get(&shard).filter(|owner| {
            let pod = self.pods.get(&owner.record.owner);
            pod.is_some_and(|pod| pod.create_revision.0 == owner.record.pod_revision)
        })
    }
}

/// All records of a cluster at a revision.
#[derive(Clone, Debug)]
pub struct ClusterView {
    keys: KeySpace,
    /// Everything up to here is in the view.
    pub revision: Revision,
    /// The cluster itself.
    pub meta: Option<Stored<MetaRecord>>,
    /// Candidates for the management, with their create revision.
    pub managers: BTreeMap<LeaseId, Revision>,
    /// The roles by name.
    pub roles: BTreeMap<String, RoleView>,
    /// Records that could not be read, by key, with the reason.
    pub unreadable: BTreeMap<String, RecordError>,
    /// Pods whose registration vanished since the caller last took this.
    pub pods_left: Vec<PodUid>,
}

/// Most unreadable records that are remembered.
const UNREADABLE_MAX: usize = 64;

impl ClusterView {
    /// A view without records.
    #[must_use]
    pub fn new(keys: KeySpace) -> ClusterView {
        ClusterView {
            keys,
            revision: Revision(0),
            meta: None,
            managers: BTreeMap::new(),
            roles: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            pods_left: Vec::new(),
        }
    }

    /// The records of a role, if there are any.
    #[must_use]
    pub fn role(&self, role: &str) -> Option<&RoleView> {
        self.roles.get(role)
    }

    /// What is added to a revision to make a token or an epoch.
    #[must_use]
    pub fn token_base(&self) -> u64 {
        self.meta.as_ref().map_or(0, |meta| meta.record.token_base)
    }

    /// The token of a record that was created at a revision.
    #[must_use]
    pub fn token(&self, created: Revision) -> Token {
        Token(self.token_base().saturating_add(created.0))
    }

    /// The manager: the oldest candidate.
    #[must_use]
    pub fn manager(&self) -> Option<LeaseId> {
        self.managers.iter().min_by_key(|(_, created)| **created).map(|(lease, _)| *lease)
    }

    /// Ends a listing: nothing that was deleted before is known, so everything counts as changed at this revision.
    pub fn listed(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
        self.pods_left.clear();
        for role in self.roles.values_mut() {
            role.table_changed = self.revision;
            role.plan_changed = self.revision;
        }
    }

    /// Takes over the changes of one revision.
    pub fn apply(&mut self, revision: Revision, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(record) => self.put(&record),
                Change::Deleted { key } => self.delete(&key, revision),
            }
        }
        self.revision = self.revision.max(revision);
    }

    /// Takes over one record.
    pub fn put(&mut self, stored: &KeyValue) {
        let outcome = self.try_put(stored);
        match outcome {
            Ok(()) => {
                self.unreadable.remove(&stored.key);
            }
            Err(error) if self.unreadable.len() < UNREADABLE_MAX => {
                self.unreadable.insert(stored.key.clone(), error);
            }
            Err(_) => {}
        }
    }

    fn try_put(&mut self, stored: &KeyValue) -> Result<(), RecordError> {
        let Some(key) = self.keys.parse(&stored.key) else {
            return Ok(());
        };
        let at = stored.mod_revision;
        match key {
            RecordKey::Meta => replace(&mut self.meta, read(stored)?),
            RecordKey::Manager(lease) => {
                self.managers.insert(lease, stored.create_revision);
            }
            RecordKey::Role(name) => {
                let role = self.role_mut(name);
                replace(&mut role.role, read(stored)?);
                role.changed(at, true, true);
            }
            RecordKey::Pod(name, uid) => {
                let role = self.role_mut(name);
                insert(&mut role.pods, uid, read(stored)?);
                role.changed(at, true, true);
            }
            RecordKey::Plan(name, page) => {
                let role = self.role_mut(name);
                insert(&mut role.pages, page, read(stored)?);
                role.changed(at, false, true);
            }
            RecordKey::Ownership(name, shard) => {
                let role = self.role_mut(name);
                insert(&mut role.owners, shard, read(stored)?);
                role.changed(at, true, false);
            }
            RecordKey::PodOrder(name, uid) => {
                let role = self.role_mut(name);
                insert(&mut role.orders, uid, read(stored)?);
                role.changed(at, false, true);
            }
            RecordKey::Pin(name, shard) => {
                let role = self.role_mut(name);
                insert(&mut role.pins, shard, read(stored)?);
                role.changed(at, false, true);
            }
            RecordKey::Rebalance(name) => {
                let role = self.role_mut(name);
                replace(&mut role.rebalance, read(stored)?);
                role.changed(at, false, true);
            }
            RecordKey::Singleton(..) => {}
        }
        Ok(())
    }

    fn role_mut(&mut self, name: &str) -> &mut RoleView {
        self.roles.entry(name.to_owned()).or_default()
    }

    fn delete(&mut self, key: &str, at: Revision) {
        self.unreadable.remove(key);
        match self.keys.parse(key) {
            Some(RecordKey::Meta) => {
                self.meta.take_if(|meta| meta.mod_revision < at);
            }
            Some(RecordKey::Manager(lease)) => {
                self.managers.remove(&lease);
            }
            Some(RecordKey::Role(name)) => {
                let role = self.role_mut(name);
                role.role.take_if(|role| role.mod_revision < at);
                role.changed(at, true, true);
            }
            Some(RecordKey::Pod(name, uid)) => {
                let role = self.role_mut(name);
                let left = remove(&mut role.pods, uid, at);
                role.changed(at, true, true);
                if left {
                    self.pods_left.push(uid);
                }
            }
            Some(RecordKey::Plan(name, page)) => {
                let role = self.role_mut(name);
                remove(&mut role.pages, page, at);
                role.changed(at, false, true);
            }
            Some(RecordKey::Ownership(name, shard)) => {
                let role = self.role_mut(name);
                remove(&mut role.owners, shard, at);
                role.changed(at, true, false);
            }
            Some(RecordKey::PodOrder(name, uid)) => {
                let role = self.role_mut(name);
                remove(&mut role.orders, uid, at);
                role.changed(at, false, true);
            }
            Some(RecordKey::Pin(name, shard)) => {
                let role = self.role_mut(name);
                remove(&mut role.pins, shard, at);
                role.changed(at, false, true);
            }
            Some(RecordKey::Rebalance(name)) => {
                let role = self.role_mut(name);
                role.rebalance.take_if(|order| order.mod_revision < at);
                role.changed(at, false, true);
            }
            Some(RecordKey::Singleton(..)) | None => {}
        }
    }
}

impl RoleView {
    fn changed(&mut self, at: Revision, table: bool, plan: bool) {
        if table {
            self.table_changed = self.table_changed.max(at);
        }
        if plan {
            self.plan_changed = self.plan_changed.max(at);
        }
    }
}

fn read<T: DeserializeOwned>(stored: &KeyValue) -> Result<Stored<T>, RecordError> {
    Ok(Stored {
        record: records::decode(&stored.value)?,
        create_revision: stored.create_revision,
        mod_revision: stored.mod_revision,
        lease: stored.lease,
    })
}

fn replace<T>(at: &mut Option<Stored<T>>, stored: Stored<T>) {
    if at.as_ref().is_none_or(|before| before.mod_revision <= stored.mod_revision) {
        *at = Some(stored);
    }
}

fn insert<K: Ord, T>(records: &mut BTreeMap<K, Stored<T>>, key: K, stored: Stored<T>) {
    if records.get(&key).is_none_or(|before| before.mod_revision <= stored.mod_revision) {
        records.insert(key, stored);
    }
}

fn remove<K: Ord, T>(records: &mut BTreeMap<K, Stored<T>>, key: K, at: Revision) -> bool {
    if records.get(&key).is_some_and(|before| before.mod_revision < at) {
        records.remove(&key);
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(key: &str, created: u64, changed: u64, core: u16) -> KeyValue {
        let record = OwnershipRecord { owner: PodUid(1), core, pod_revision: 1, since_unix_ms: 0 };
        let (create_revision, mod_revision) = (Revision(created), Revision(changed));
        let value = records::encode(record);
        KeyValue { key: key.into(), value, create_revision, mod_revision, lease: None }
    }

    #[test]
    fn changes_older_than_a_listed_record_are_ignored() {
        let key = "/atoll/c/v1/own/r/00003";
        let mut view = ClusterView::new(KeySpace::new("c").expect("valid"));
        view.put(&own(key, 5, 7, 1));
        view.apply(Revision(4), vec![Change::Deleted { key: key.into() }]);
        view.apply(Revision(6), vec![Change::Put(own(key, 5, 6, 0))]);
        let core = |view: &ClusterView| view.role("r").and_then(|r| r.owners.get(&ShardId(3))).map(|o| o.record.core);
        assert_eq!(core(&view), Some(1));
        view.apply(Revision(8), vec![Change::Deleted { key: key.into() }]);
        assert_eq!(core(&view), None);
        assert_eq!(view.revision, Revision(8));
        assert_eq!(view.role("r").map(|role| role.table_changed), Some(Revision(8)));
    }

    #[test]
    fn unreadable_records_are_left_out_and_named() {
        let mut view = ClusterView::new(KeySpace::new("c").expect("valid"));
        let mut bad = own("/atoll/c/v1/own/r/00003", 5, 5, 0);
        bad.value = b"{\"v\":9}".to_vec();
        view.put(&bad);
        assert!(view.role("r").is_none_or(|role| role.owners.is_empty()));
        assert_eq!(view.unreadable.get(&bad.key), Some(&RecordError::LaterVersion(9)));
        view.apply(Revision(6), vec![Change::Deleted { key: bad.key.clone() }]);
        assert!(view.unreadable.is_empty());
    }
}
