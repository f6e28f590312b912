//! The embedded store: the records of a cluster in one file of a data directory, used by one process.
//!
//! Called by the control thread, which may block on the disk. All records are in memory; the file is read when it is
//! opened and written before a change is answered.
//!
//! Invariants: a change that could not be written is never answered as done, and after such a failure nothing is
//! answered any more: memory and disk may differ.

use std::path::Path;

use super::control_file::ControlFile;
pub use super::control_file::{FILE_NAME, OpenError};
use crate::base::Nanos;
use crate::control::store::{Store, StoreError, StoreEvent, StoreRequest, StoreResponse};
use crate::control::store_state::{LeaseMode, StoreState, Write};

/// The store. Dropping it frees the data directory.
#[derive(Debug)]
pub struct EmbeddedStore {
    state: StoreState,
    file: ControlFile,
    writes: Vec<Write>,
    failed: Option<String>,
}

impl EmbeddedStore {
    /// Opens a data directory for this process alone, creating it if it does not exist. What was stored under a lease
    /// by an earlier run is gone; leases last as long as the store is open.
    ///
    /// # Errors
    /// If another process uses the directory, or it cannot be used.
    pub fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::open_with(directory, LeaseMode::WhileOpen)
    }

    /// Like [`EmbeddedStore::open`], for a process that serves the store to others ([`LeaseMode::Expiring`]): leases
    /// and what is stored under them outlive a restart, and have their whole time again after it.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn open_with(directory: &Path, mode: LeaseMode) -> Result<EmbeddedStore, OpenError> {
        let (file, state) = ControlFile::open(directory, mode)?;
        Ok(EmbeddedStore { state, file, writes: Vec::new(), failed: None })
    }

    fn persist_or_fail(&mut self) {
        let written = self.file.persist(&self.writes, self.state.revision());
        self.writes.clear();
        if let Err(error) = written {
            self.failed = Some(format!("the disk failed ({error}); free space or replace it, then start again"));
        }
    }

    fn refusal(&self) -> Option<StoreResponse> {
        let reason = self.failed.clone()?;
        Some(StoreResponse::Failed(StoreError::Unavailable(reason)))
    }
}

impl Store for EmbeddedStore {
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        if let Some(refusal) = self.refusal() {
            return refusal;
        }
        let response = self.state.handle(request, now, &mut self.writes);
        self.persist_or_fail();
        self.refusal().unwrap_or(response)
    }

    fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        if self.failed.is_some() {
            return;
        }
        self.state.advance(now, &mut self.writes);
        self.persist_or_fail();
        if self.failed.is_none() {
            self.state.poll_events(events);
        }
    }
}
