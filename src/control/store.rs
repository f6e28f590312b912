//! The model of a store: what the control plane asks of the embedded, the served and the etcd back end.
//!
//! The semantics are those of etcd, which is one of the back ends: each transaction that changes something has its
//! own [`Revision`], larger than all before; a record remembers the revisions of its creation and its last change; a
//! record under a lease is deleted with it; a watch delivers all changes from a revision on, those of one revision
//! together and in order, or says that there is a gap. [`super::store_state`] is the executable form.

use core::time::Duration;
use std::sync::Arc;

use atoll_macros::Wire;

use crate::base::Nanos;

/// Most compares, and most operations, of one transaction: etcd's limit.
pub const TRANSACTION_OPERATIONS_MAX: usize = 128;
/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Largest value in bytes; a plan page of 64 shards on 64 different pods has about 25 KB.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Most records that one range read returns.
pub const RANGE_LIMIT_MAX: u32 = 10_000;

/// Point in the history of a store. 0 is before everything.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0.saturating_add(1))
    }
}

/// A lease, given out by the store and never given out again.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A watch, named by the client that opens it; unique within its connection.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// A record.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision at which it was created (again, if it had been deleted).
    pub create_revision: Revision,
    /// The revision of its last change.
    pub mod_revision: Revision,
    /// The lease with which it is deleted.
    pub lease: Option<LeaseId>,
}

/// A condition of a transaction.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// There is no record with this key.
    Absent(String),
    /// The record exists and was created at this revision.
    CreateRevision(String, Revision),
    /// The record exists and was last changed at this revision.
    ModRevision(String, Revision),
}

/// A change in a transaction.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates or replaces a record, under a lease or under none.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease.
        lease: Option<LeaseId>,
    },
    /// Deletes a record if there is one.
    Delete(String),
}

impl Operation {
    /// The key that is changed.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Operation::Put { key, .. } | Operation::Delete(key) => key,
        }
    }
}

/// If all compares hold, all operations are done, at one revision; otherwise none.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes; no key twice.
    pub operations: Vec<Operation>,
}

/// What a client asks.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// Compare and change.
    Transaction(Transaction),
    /// Reads the records whose key has a prefix, in the order of their keys.
    Range {
        /// The prefix.
        prefix: String,
        /// Only keys after this one: the last key of the page before.
        after: Option<String>,
        /// Most records to return, 1 to [`RANGE_LIMIT_MAX`].
        limit: u32,
    },
    /// Asks for a new lease.
    GrantLease {
        /// How long it lives without a renewal.
        ttl: Duration,
    },
    /// Gives a lease its whole time to live again.
    RenewLease {
        /// The lease.
        lease: LeaseId,
    },
    /// Ends a lease and deletes its records, at one revision.
    RevokeLease {
        /// The lease.
        lease: LeaseId,
    },
    /// Opens a watch; replaces an earlier one with the same id.
    Watch {
        /// Its id.
        watch: WatchId,
        /// Changes of keys with this prefix.
        prefix: String,
        /// The first revision to deliver.
        from: Revision,
    },
    /// Ends a watch; none of its events follow.
    CancelWatch {
        /// The watch.
        watch: WatchId,
    },
}

/// What the store answers.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum StoreResponse {
    /// Of a transaction.
    Transaction {
        /// Whether all compares held.
        succeeded: bool,
        /// The revision of its changes, or the present one if there were none.
        revision: Revision,
    },
    /// Of a range read.
    Range {
        /// The records.
        records: Vec<KeyValue>,
        /// Whether there are further ones after the last.
        more: bool,
        /// The revision at which they were read.
        revision: Revision,
    },
    /// A new lease, or a renewed one.
    Lease {
        /// The lease.
        lease: LeaseId,
        /// Its time to live, counted from the handling of the request at the store; `None`: it lives as long as the
        /// process that holds the store, which is the client itself.
        ttl: Option<Duration>,
    },
    /// The lease was ended.
    Revoked,
    /// The watch is open.
    Watching {
        /// The present revision: a [`StoreEvent::Progress`] with at least this one follows.
        revision: Revision,
    },
    /// The watch is gone.
    Cancelled,
    /// It was not done (or, for [`StoreError::Unavailable`], perhaps it was).
    Failed(StoreError),
}

/// Which bound a request does not keep.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// [`KEY_BYTES_MAX`].
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    /// [`VALUE_BYTES_MAX`].
    #[error("a value has at most {VALUE_BYTES_MAX} bytes")]
    Value,
    /// [`RANGE_LIMIT_MAX`].
    #[error("a range read has a limit of 1 to {RANGE_LIMIT_MAX}")]
    RangeLimit,
    /// A lease lives for some time.
    #[error("a lease has a time to live above zero")]
    LeaseTime,
    /// What one frame to a served store holds.
    #[error("the whole request is larger than a frame; write less at once")]
    Request,
}

/// Why the store did not do it.
#[derive(Wire, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The transaction is too large.
    #[error("a transaction has at most {TRANSACTION_OPERATIONS_MAX} compares and operations, this one has {0}")]
    TooManyOperations(u64),
    /// A key is changed twice.
    #[error("the transaction changes the key {0} twice")]
    DuplicateKey(String),
    /// The key or value is too large, or the range limit is out of its bounds.
    #[error("the request is out of bounds: {0}")]
    OutOfBounds(Limit),
    /// The lease ended or never was.
    #[error("the lease ended; what was stored under it is gone")]
    LeaseNotFound,
    /// The store cannot be reached, or its disk failed. A change may or may not have been made.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

/// A change of one record.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Created or replaced.
    Put(KeyValue),
    /// Deleted.
    Deleted {
        /// The key.
        key: String,
    },
}

impl Change {
    /// The key of the record.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Change::Put(record) => &record.key,
            Change::Deleted { key } => key,
        }
    }
}

/// What a watch delivers.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// All changes of one revision that the watch asked for. Revisions only grow.
    Changed {
        /// The watch.
        watch: WatchId,
        /// The revision.
        revision: Revision,
        /// The changes; at least one.
        changes: Vec<Change>,
    },
    /// Everything up to this revision was delivered. Comes soon after each revision that a response named, also when the
    /// watch has no changes there: the client waits for it to see its own writes.
    Progress {
        /// The watch.
        watch: WatchId,
        /// The revision.
        revision: Revision,
    },
    /// Changes in between are no longer known; the watch ended. Read the range again.
    Gap {
        /// The watch.
        watch: WatchId,
    },
}

/// Wakes the thread that uses a store. May be called from any thread, also without need.
pub type StoreWaker = Arc<dyn Fn() + Send + Sync>;

/// A store as the control thread uses it: each call blocks until it is answered.
pub trait Store {
    /// Does one request. Changes are durable (if the store has a disk) when it returns.
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse;

    /// Appends the events that are due. Bounded: call it again until it appends nothing.
    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>);

    /// Why it never does anything again, if that is so: its disk failed.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// Takes what has to be called, within a millisecond, whenever [`Store::poll_events`] may have something new that
    /// no request of this client made. A store that nobody else uses has nothing to wake for.
    fn set_waker(&mut self, waker: StoreWaker) {
        let _ = waker;
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        (**self).handle(request, now)
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        (**self).poll_events(now, events);
    }

    fn failure(&self) -> Option<&str> {
        (**self).failure()
    }

    fn set_waker(&mut self, waker: StoreWaker) {
        (**self).set_waker(waker);
    }
}
