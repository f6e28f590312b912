//! The store without a disk: for `--dev` without a data directory, for tests and for the simulator.

use super::store::{Revision, Store, StoreEvent, StoreRequest, StoreResponse};
use super::store_state::{LeaseMode, StoreState, Write};
use crate::base::Nanos;

/// A store that forgets everything when it is dropped.
#[derive(Debug)]
pub struct MemoryStore {
    state: StoreState,
    writes: Vec<Write>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(mode: LeaseMode) -> MemoryStore {
        MemoryStore { state: StoreState::new(mode, Revision(0)), writes: Vec::new() }
    }
}

impl Store for MemoryStore {
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        let response = self.state.handle(request, now, &mut self.writes);
        self.writes.clear();
        response
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        self.state.advance(now, &mut self.writes);
        self.writes.clear();
        self.state.poll_events(events);
    }
}
