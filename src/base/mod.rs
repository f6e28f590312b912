//! What every layer shares: identities, limits, time, the stable hash and the errors of a cluster.
//!
//! Called by every other folder, calls none. Invariants: nothing here does I/O or reads a clock; the hashes and the
//! numeric codes are part of the wire format and of stored records and never change (fixed vectors in the tests).

pub mod error;
pub mod hash;
pub mod ids;
pub mod limits;
pub mod time;
pub mod timers;

pub use error::{ClusterError, SendError};
pub use ids::{CoreIndex, EntityId, Epoch, InvalidEntityId, LinkId, PodIndex, PodUid, ShardId, Token};
pub use time::Nanos;
