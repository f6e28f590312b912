//! What entities may ask of the state store, and what it answers.
//!
//! Called by the handle that entities use, the file that does the work, and the protocol between them.

use std::collections::BTreeSet;

use atoll_macros::Wire;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Largest value in bytes: what an entity saves in one piece.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Most compares, and most changes, of one [`Apply`].
pub const APPLY_OPERATIONS_MAX: usize = 128;
/// Bytes of all keys and values of one request.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;

/// A saved value.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The value.
    pub value: Vec<u8>,
    /// The fencing token of its writer, or of a later [load](super::StateStore::load).
    pub token: u64,
}

/// A condition of an [`Apply`].
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum StateCompare {
    /// There is no value with this key.
    Absent(String),
    /// There is a value with this key.
    Present(String),
    /// There is exactly this value.
    Equals {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
}

impl StateCompare {
    /// The key that is looked at.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            StateCompare::Absent(key) | StateCompare::Present(key) | StateCompare::Equals { key, .. } => key,
        }
    }
}

/// A change of an [`Apply`].
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// Saves a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes a value; the token of the key stays, so that an older writer is still refused.
    Delete(String),
    /// Deletes a value and its token: for what is written once and guarded by another key of the same request, such as
    /// the ids of deposits that are old enough.
    Forget(String),
}

impl StateChange {
    /// The key that is changed.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            StateChange::Put { key, .. } | StateChange::Delete(key) | StateChange::Forget(key) => key,
        }
    }
}

/// If no key has a newer token and all compares hold, all changes are made, at once; otherwise none.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    /// The fencing token of the writer: `scope.fence()`.
    pub token: u64,
    /// The conditions.
    pub compares: Vec<StateCompare>,
    /// The changes; no key twice.
    pub changes: Vec<StateChange>,
}

/// How an [`Apply`] ended that was not refused.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// All changes were made and are durable.
    Done,
    /// Nothing was changed: the compare at this position does not hold.
    Unmet {
        /// Position in [`Apply::compares`].
        compare: u32,
    },
}

/// What the state store did, counted over restarts.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateStatistics {
    /// Requests that changed something.
    pub puts: u64,
    /// Requests that were refused because a later owner had written or loaded.
    pub stale_rejections: u64,
    /// Requests whose compares did not hold.
    pub unmet_compares: u64,
}

/// Why the state store did not do it.
#[derive(Wire, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A later owner of the key wrote or loaded it; nothing was changed. Whoever gets this must stop: it is not the owner.
    #[error("a later owner has this state (its token is {stored}); nothing was changed, and this owner must stop")]
    StaleToken {
        /// The token of the later owner.
        stored: u64,
    },
    /// The request is too large or has a key twice; nothing was changed.
    #[error("the request is out of bounds: {0}")]
    OutOfBounds(StateLimit),
    /// Too many requests wait; nothing was changed. Try again later.
    #[error("too many requests wait for the state store; nothing was changed, try again later")]
    Busy,
    /// No answer in time. A change may or may not have been made: load the state again.
    #[error("the state store did not answer in time; a change may have been made: load the state again")]
    Timeout,
    /// The connection failed before the answer. A change may or may not have been made: load the state again.
    #[error("the state store is not available ({0}); a change may have been made: load the state again")]
    Unavailable(String),
}

/// Which bound a request does not keep.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateLimit {
    /// [`KEY_BYTES_MAX`].
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    /// [`VALUE_BYTES_MAX`].
    #[error("a value has at most {VALUE_BYTES_MAX} bytes")]
    Value,
    /// [`APPLY_OPERATIONS_MAX`].
    #[error("a request has at most {APPLY_OPERATIONS_MAX} compares and changes")]
    Operations,
    /// A key is changed twice.
    #[error("a request changes a key once")]
    DuplicateKey,
    /// [`REQUEST_BYTES_MAX`].
    #[error("a request has at most {REQUEST_BYTES_MAX} bytes")]
    Request,
}

/// A request, as it travels.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateRequest {
    Get { key: String },
    Load { key: String, token: u64 },
    Apply(Apply),
    Statistics,
}

impl StateRequest {
    /// Bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        match self {
            StateRequest::Statistics => 0,
            StateRequest::Get { key } | StateRequest::Load { key, .. } => key.len(),
            StateRequest::Apply(apply) => {
                let compares = apply.compares.iter().map(|compare| {
                    let value = if let StateCompare::Equals { value, .. } = compare { value.len() } else { 0 };
                    compare.key().len() + value
                });
                let changes = apply.changes.iter().map(|change| {
                    let value = if let StateChange::Put { value, .. } = change { value.len() } else { 0 };
                    change.key().len() + value
                });
                compares.chain(changes).sum()
            }
        }
    }

    /// Whether it keeps the bounds.
    pub fn check(&self) -> Result<(), StateError> {
        let checked = match self {
            StateRequest::Statistics => Ok(()),
            StateRequest::Get { key } | StateRequest::Load { key, .. } => check_key(key),
            StateRequest::Apply(apply) if self.bytes() <= REQUEST_BYTES_MAX => check_apply(apply),
            StateRequest::Apply(_) => Err(StateLimit::Request),
        };
        checked.map_err(StateError::OutOfBounds)
    }
}

fn check_key(key: &str) -> Result<(), StateLimit> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX { Err(StateLimit::Key) } else { Ok(()) }
}

fn check_apply(apply: &Apply) -> Result<(), StateLimit> {
    if apply.compares.len().max(apply.changes.len()) > APPLY_OPERATIONS_MAX {
        return Err(StateLimit::Operations);
    }
    apply.compares.iter().try_for_each(|compare| check_key(compare.key()))?;
    let mut keys = BTreeSet::new();
    for change in &apply.changes {
        check_key(change.key())?;
        if matches!(change, StateChange::Put { value, .. } if value.len() > VALUE_BYTES_MAX) {
            return Err(StateLimit::Value);
        }
        if !keys.insert(change.key()) {
            return Err(StateLimit::DuplicateKey);
        }
    }
    Ok(())
}

/// An answer, as it travels.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateAnswer {
    Value(Option<Saved>),
    Applied(Applied),
    Statistics(StateStatistics),
}

/// From a pod.
#[derive(Wire, Debug)]
pub(crate) struct StateAsked {
    pub id: u64,
    pub request: StateRequest,
}

/// From the manager.
#[derive(Wire, Debug)]
pub(crate) struct StateTold {
    pub id: u64,
    pub result: Result<StateAnswer, StateError>,
}

/// The schema of the state service.
pub(crate) const STATE_SCHEMA: u64 =
    crate::base::hash::mix(<StateAsked as crate::wire::Wire>::SCHEMA, <StateTold as crate::wire::Wire>::SCHEMA);
