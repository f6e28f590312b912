//! The back ends of the control plane's store.
//!
//! Called by the control thread of a pod. [`EmbeddedStore`] is the default: one file in the data directory of the one
//! pod that uses it. [`MemoryStore`] is the same without a disk. The semantics are written once, in
//! [`crate::control::store_state`]; one conformance suite (`tests/stores_conformance.rs`) runs over every back end.

pub(crate) mod control_file;
pub mod embedded;
pub mod served;
pub mod state;

pub use crate::control::memory::MemoryStore;
pub use embedded::{EmbeddedStore, OpenError};
pub use served::ServedStore;
pub use state::StateStore;
