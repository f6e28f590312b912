//! The semantics of a store as a pure state machine: records, revisions, leases, watches.
//!
//! The in-memory store is this and nothing else; the embedded and served ones write what it reports to disk before
//! they answer. Invariants: the revision only grows, and each change (and each grant of a lease, whose id it becomes)
//! has its own; a record's lease exists; the history holds every change after `compacted`.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::store::{
    Change, Compare, KEY_BYTES_MAX, KeyValue, LeaseId, Limit, Operation, RANGE_LIMIT_MAX, Revision, StoreError,
    StoreEvent, StoreRequest, StoreResponse, TRANSACTION_OPERATIONS_MAX, Transaction, VALUE_BYTES_MAX, WatchId,
};
use crate::base::Nanos;

/// Changes that are kept for watches; a watch that is further behind has to read the range again.
pub const HISTORY_CHANGES_MAX: usize = 32_768;
/// Revisions that one poll delivers to a watch.
const EVENTS_PER_POLL: usize = 256;
/// Most watches of a store: one for each pod and client, with room.
pub const WATCHES_MAX: usize = 16_384;
/// Most leases of a store.
pub const LEASES_MAX: usize = 16_384;
/// A store that was not called for so long gives every lease its whole time again: the renewals could not get through.
const LOOP_GAP_MAX: Duration = Duration::from_secs(1);

/// Whether leases lapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseMode {
    /// A lease lives until it is revoked or the store is opened again: the only client is this process.
    WhileOpen,
    /// A lease lapses when it is not renewed within its time.
    Expiring,
}

/// What a request changed, for a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A record was put.
    Put {
        /// The record.
        record: KeyValue,
        /// Whether it replaced one without a lease.
        replaced_unleased: bool,
    },
    /// A record was deleted.
    Deleted {
        /// Its key.
        key: String,
        /// Whether it was under a lease.
        leased: bool,
    },
    /// A lease was granted.
    LeaseGranted {
        /// The lease.
        lease: LeaseId,
        /// Its time to live.
        ttl: Duration,
    },
    /// A lease ended.
    LeaseEnded {
        /// The lease.
        lease: LeaseId,
    },
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    expires: Nanos,
    keys: BTreeSet<String>,
}

#[derive(Debug)]
struct Watch {
    prefix: String,
    next: Revision,
    told: Option<Revision>,
}

/// The state of a store.
#[derive(Debug)]
pub struct StoreState {
    mode: LeaseMode,
    revision: Revision,
    compacted: Revision,
    records: BTreeMap<String, KeyValue>,
    leases: BTreeMap<LeaseId, Lease>,
    history: VecDeque<(Revision, Vec<Change>)>,
    history_changes: usize,
    watches: BTreeMap<WatchId, Watch>,
    last_call: Option<Nanos>,
}

impl StoreState {
    /// A store without records, whose next revision comes after `revision`.
    #[must_use]
    pub fn new(mode: LeaseMode, revision: Revision) -> StoreState {
        StoreState {
            mode,
            revision,
            compacted: revision,
            records: BTreeMap::new(),
            leases: BTreeMap::new(),
            history: VecDeque::new(),
            history_changes: 0,
            watches: BTreeMap::new(),
            last_call: None,
        }
    }

    /// Takes back a lease that was written to a disk; it has its whole time from the first call on.
    pub fn restore_lease(&mut self, lease: LeaseId, ttl: Duration) {
        self.leases.insert(lease, Lease { ttl, expires: Nanos::NEVER, keys: BTreeSet::new() });
    }

    /// Takes back a record that was written to a disk. Returns whether it was taken: its lease has to exist.
    pub fn restore_record(&mut self, record: KeyValue) -> bool {
        if let Some(lease) = record.lease {
            let Some(lease) = self.leases.get_mut(&lease) else {
                return false;
            };
            lease.keys.insert(record.key.clone());
        }
        self.records.insert(record.key.clone(), record);
        true
    }

    /// The present revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Does one request; appends what a disk has to keep to `writes`.
    pub fn handle(&mut self, request: StoreRequest, now: Nanos, writes: &mut Vec<Write>) -> StoreResponse {
        self.advance(now, writes);
        let outcome = match request {
            StoreRequest::Transaction(transaction) => self.transaction(transaction, writes),
            StoreRequest::Range { prefix, after, limit } => self.range(&prefix, after, limit),
            StoreRequest::GrantLease { ttl } => self.grant(ttl, now, writes),
            StoreRequest::RenewLease { lease } => self.renew(lease, now),
            StoreRequest::RevokeLease { lease } => self.revoke(lease, writes),
            StoreRequest::Watch { watch, prefix, from } => self.watch(watch, prefix, from),
            StoreRequest::CancelWatch { watch } => {
                self.watches.remove(&watch);
                Ok(StoreResponse::Cancelled)
            }
        };
        outcome.unwrap_or_else(StoreResponse::Failed)
    }

    /// Ends the leases that lapsed.
    pub fn advance(&mut self, now: Nanos, writes: &mut Vec<Write>) {
        let gap = self.last_call.is_none_or(|last| now.since(last) > LOOP_GAP_MAX);
        self.last_call = Some(now);
        if self.mode == LeaseMode::WhileOpen {
            return;
        }
        if gap {
            for lease in self.leases.values_mut() {
                lease.expires = now + lease.ttl;
            }
            return;
        }
        let lapsed: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.expires <= now).map(|(id, _)| *id).collect();
        for lease in lapsed {
            self.end_lease(lease, writes);
        }
    }

    /// Appends the events that are due, at most a bounded number for each watch.
    pub fn poll_events(&mut self, events: &mut Vec<StoreEvent>) {
        let StoreState { watches, history, compacted, revision, .. } = self;
        watches.retain(|id, watch| {
            if watch.next <= *compacted {
                events.push(StoreEvent::Gap { watch: *id });
                return false;
            }
            let start = history.partition_point(|(at, _)| *at < watch.next);
            for (at, changes) in history.range(start..).take(EVENTS_PER_POLL) {
                let changes: Vec<Change> =
                    changes.iter().filter(|change| change.key().starts_with(&watch.prefix)).cloned().collect();
                if !changes.is_empty() {
                    events.push(StoreEvent::Changed { watch: *id, revision: *at, changes });
                }
                watch.next = at.next();
            }
            let caught_up = history.back().is_none_or(|(last, _)| *last < watch.next);
            if caught_up && watch.told != Some(*revision) {
                watch.next = watch.next.max(revision.next());
                watch.told = Some(*revision);
                events.push(StoreEvent::Progress { watch: *id, revision: *revision });
            }
            true
        });
    }

    fn transaction(&mut self, transaction: Transaction, writes: &mut Vec<Write>) -> Result<StoreResponse, StoreError> {
        self.check(&transaction)?;
        let succeeded = transaction.compares.iter().all(|compare| self.holds(compare));
        if succeeded {
            let revision = self.revision.next();
            let mut changes = Vec::with_capacity(transaction.operations.len());
            for operation in transaction.operations {
                match operation {
                    Operation::Put { key, value, lease } => {
                        changes.push(Change::Put(self.put(key, value, lease, revision, writes)));
                    }
                    Operation::Delete(key) => {
                        if self.delete(&key, writes) {
                            changes.push(Change::Deleted { key });
                        }
                    }
                }
            }
            self.record_history(changes);
        }
        Ok(StoreResponse::Transaction { succeeded, revision: self.revision })
    }

    fn check(&self, transaction: &Transaction) -> Result<(), StoreError> {
        let operations = transaction.operations.len().max(transaction.compares.len());
        if operations > TRANSACTION_OPERATIONS_MAX {
            return Err(StoreError::TooManyOperations(operations as u64));
        }
        let mut keys = BTreeSet::new();
        for operation in &transaction.operations {
            let key = operation.key();
            if key.is_empty() || key.len() > KEY_BYTES_MAX {
                return Err(StoreError::OutOfBounds(Limit::Key));
            }
            if !keys.insert(key) {
                return Err(StoreError::DuplicateKey(key.to_owned()));
            }
            if let Operation::Put { value, lease, .. } = operation {
                if value.len() > VALUE_BYTES_MAX {
                    return Err(StoreError::OutOfBounds(Limit::Value));
                }
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return Err(StoreError::LeaseNotFound);
                }
            }
        }
        Ok(())
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.records.contains_key(key),
            Compare::CreateRevision(key, revision) => {
                self.records.get(key).is_some_and(|record| record.create_revision == *revision)
            }
            Compare::ModRevision(key, revision) => {
                self.records.get(key).is_some_and(|record| record.mod_revision == *revision)
            }
        }
    }

    fn put(
        &mut self,
        key: String,
        value: Vec<u8>,
        lease: Option<LeaseId>,
        revision: Revision,
        writes: &mut Vec<Write>,
    ) -> KeyValue {
        let before = self.records.get(&key);
        let create_revision = before.map_or(revision, |before| before.create_revision);
        let replaced_unleased = before.is_some_and(|before| before.lease.is_none());
        if let Some(old) = before.and_then(|before| before.lease)
            && let Some(old) = self.leases.get_mut(&old)
        {
            old.keys.remove(&key);
        }
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.insert(key.clone());
        }
        let record = KeyValue { key: key.clone(), value, create_revision, mod_revision: revision, lease };
        self.records.insert(key, record.clone());
        writes.push(Write::Put { record: record.clone(), replaced_unleased });
        record
    }

    fn delete(&mut self, key: &str, writes: &mut Vec<Write>) -> bool {
        let Some(record) = self.records.remove(key) else {
            return false;
        };
        if let Some(lease) = record.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.remove(key);
        }
        writes.push(Write::Deleted { key: record.key, leased: record.lease.is_some() });
        true
    }

    fn record_history(&mut self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.revision = self.revision.next();
        self.history_changes += changes.len();
        self.history.push_back((self.revision, changes));
        while self.history_changes > HISTORY_CHANGES_MAX
            && let Some((revision, changes)) = self.history.pop_front()
        {
            self.history_changes -= changes.len();
            self.compacted = revision;
        }
    }

    fn range(&self, prefix: &str, after: Option<String>, limit: u32) -> Result<StoreResponse, StoreError> {
        if limit == 0 || limit > RANGE_LIMIT_MAX {
            return Err(StoreError::OutOfBounds(Limit::RangeLimit));
        }
        let start = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix.to_owned()),
        };
        let mut found = self
            .records
            .range::<String, _>((start, Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(|record| record.key.starts_with(prefix));
        let records: Vec<KeyValue> = found.by_ref().take(limit as usize).cloned().collect();
        Ok(StoreResponse::Range { records, more: found.next().is_some(), revision: self.revision })
    }

    fn grant(&mut self, ttl: Duration, now: Nanos, writes: &mut Vec<Write>) -> Result<StoreResponse, StoreError> {
        if ttl.is_zero() {
            return Err(StoreError::OutOfBounds(Limit::LeaseTime));
        }
        if self.leases.len() >= LEASES_MAX {
            return Err(StoreError::Unavailable("too many leases".to_owned()));
        }
        self.revision = self.revision.next();
        let lease = LeaseId(self.revision.0);
        self.leases.insert(lease, Lease { ttl, expires: now + ttl, keys: BTreeSet::new() });
        writes.push(Write::LeaseGranted { lease, ttl });
        Ok(StoreResponse::Lease { lease, ttl: self.reported(ttl) })
    }

    fn renew(&mut self, lease: LeaseId, now: Nanos) -> Result<StoreResponse, StoreError> {
        let held = self.leases.get_mut(&lease).ok_or(StoreError::LeaseNotFound)?;
        held.expires = now + held.ttl;
        let ttl = held.ttl;
        Ok(StoreResponse::Lease { lease, ttl: self.reported(ttl) })
    }

    fn reported(&self, ttl: Duration) -> Option<Duration> {
        (self.mode == LeaseMode::Expiring).then_some(ttl)
    }

    fn revoke(&mut self, lease: LeaseId, writes: &mut Vec<Write>) -> Result<StoreResponse, StoreError> {
        if !self.end_lease(lease, writes) {
            return Err(StoreError::LeaseNotFound);
        }
        Ok(StoreResponse::Revoked)
    }

    fn end_lease(&mut self, lease: LeaseId, writes: &mut Vec<Write>) -> bool {
        let Some(ended) = self.leases.remove(&lease) else {
            return false;
        };
        let mut changes = Vec::with_capacity(ended.keys.len());
        for key in ended.keys {
            if self.delete(&key, writes) {
                changes.push(Change::Deleted { key });
            }
        }
        writes.push(Write::LeaseEnded { lease });
        self.record_history(changes);
        true
    }

    fn watch(&mut self, watch: WatchId, prefix: String, from: Revision) -> Result<StoreResponse, StoreError> {
        if self.watches.len() >= WATCHES_MAX && !self.watches.contains_key(&watch) {
            return Err(StoreError::Unavailable("too many watches".to_owned()));
        }
        self.watches.insert(watch, Watch { prefix, next: from.max(Revision(1)), told: None });
        Ok(StoreResponse::Watching { revision: self.revision })
    }
}
