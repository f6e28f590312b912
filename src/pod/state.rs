//! Where the entities of a pod save their state, by its configuration.
//!
//! Called by programs before they start a pod, so that their entities have the store.

use super::config::{Config, Store};
use crate::stores::state::REQUEST_TIMEOUT;
use crate::stores::{OpenError, StateStore};

/// Opens the state store of a configuration: at the manager if the control records are there, else in the data
/// directory of the pod, else in memory.
///
/// # Errors
/// If another process uses the directory, or it cannot be used.
pub fn open_state(config: &Config) -> Result<StateStore, OpenError> {
    if config.control.store == Store::Embedded {
        return StateStore::embedded(config.pod.data_dir.as_deref());
    }
    StateStore::served(config.control.address, REQUEST_TIMEOUT).map_err(OpenError::Thread)
}
