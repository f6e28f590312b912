//! The state of a served store on the thread that answers: records, leases, watches, and who is connected.
//!
//! Called by the connections and the ticker of the same thread; never waits. What it changes goes to the disk's thread,
//! and what it tells waits in the [`Outlet`] of a connection until that is durable. Invariants: every lease is looked
//! at with the same clock; a watch belongs to one connection and ends with it; a connection that does not take its
//! events gets a gap and nothing else.

use core::ops::RangeInclusive;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::Batch;
use super::outlet::Outlet;
use super::protocol::{ANSWER_BYTES_MAX, Broken, Told, frame};
use crate::base::Nanos;
use crate::control::store::{KeyValue, Limit, StoreError, StoreEvent, StoreRequest, StoreResponse, WatchId};
use crate::control::store_state::{StoreState, Write};

/// Bytes of records that one range read returns; the reader asks for the rest as for any further page.
const RANGE_BYTES_MAX: usize = 2 << 20;
/// Records that one range read returns.
const RANGE_RECORDS_MAX: u32 = 1000;
/// Watches of one connection: a pod has one, and the one before it.
const WATCHES_MAX: usize = 16;
/// What a record takes beside its key and value.
const RECORD_BYTES: usize = 64;

/// The clock of the leases: it has to count the time in which the machine was suspended.
pub type LeaseClock = Arc<dyn Fn() -> Nanos + Send + Sync>;

/// What a server did, since its start.
#[derive(Clone, Debug, Default)]
pub struct ServerCounters {
    /// Connections now.
    pub connections: u64,
    /// Connections that ended or were refused, by reason.
    pub closed: BTreeMap<&'static str, u64>,
    /// Requests for control records.
    pub requests: u64,
    /// Requests for saved state.
    pub state_requests: u64,
    /// Watches that got a gap because their connection did not take its events.
    pub slow_watches: u64,
}

/// Counters that several threads read.
#[derive(Debug, Default)]
pub(super) struct Counted(Mutex<ServerCounters>);

impl Counted {
    pub fn with<T>(&self, change: impl FnOnce(&mut ServerCounters) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn closed(&self, why: &Broken) {
        self.with(|counters| *counters.closed.entry(why.name()).or_default() += 1);
    }
}

/// Names a connection.
pub(super) type ConnectionId = u64;

/// The state. See the [module](self).
pub(super) struct Core {
    state: StoreState,
    clock: LeaseClock,
    disk: Sender<Batch>,
    writes: Vec<Write>,
    issued: u64,
    pub durable: Rc<Cell<u64>>,
    outlets: BTreeMap<ConnectionId, Rc<Outlet>>,
    watches: BTreeMap<WatchId, (ConnectionId, WatchId)>,
    names: BTreeMap<(ConnectionId, WatchId), WatchId>,
    last_watch: u64,
    events: Vec<StoreEvent>,
    queue_bytes_max: usize,
    counters: Arc<Counted>,
}

impl Core {
    pub fn new(
        state: StoreState,
        clock: LeaseClock,
        disk: Sender<Batch>,
        queue_bytes_max: usize,
        counters: Arc<Counted>,
    ) -> Core {
        Core {
            state,
            clock,
            disk,
            writes: Vec::new(),
            issued: 0,
            durable: Rc::new(Cell::new(0)),
            outlets: BTreeMap::new(),
            watches: BTreeMap::new(),
            names: BTreeMap::new(),
            last_watch: 0,
            events: Vec::new(),
            queue_bytes_max,
            counters,
        }
    }

    /// A connection is there.
    pub fn open(&mut self, connection: ConnectionId, outlet: Rc<Outlet>) {
        self.outlets.insert(connection, outlet);
    }

    /// A connection is gone, and its watches with it.
    pub fn close(&mut self, connection: ConnectionId) {
        self.outlets.remove(&connection);
        let named: Vec<(ConnectionId, WatchId)> =
            self.names.range(names_of(connection)).map(|(name, _)| *name).collect();
        for name in named {
            self.end_watch(name);
        }
    }

    /// Does what time asks for.
    pub fn tick(&mut self) {
        let now = (self.clock)();
        self.state.advance(now, &mut self.writes);
        self.submit();
        self.pump();
    }

    /// Everything up to this batch is on the disk.
    pub fn durable(&mut self, sequence: u64) {
        self.durable.set(sequence);
        for outlet in self.outlets.values() {
            outlet.look_again();
        }
    }

    /// Does a request; its answer goes to the connection's outlet.
    pub fn handle(&mut self, connection: ConnectionId, id: u64, request: StoreRequest) {
        self.counters.with(|counters| counters.requests += 1);
        let urgent = matches!(request, StoreRequest::RenewLease { .. });
        let opens_watch = matches!(request, StoreRequest::Watch { .. });
        let response = if opens_watch && self.has_too_many_watches(connection) {
            StoreResponse::Failed(StoreError::Unavailable("this connection has too many watches".to_owned()))
        } else {
            let request = self.named(connection, request);
            let now = (self.clock)();
            bounded(self.state.handle(request, now, &mut self.writes))
        };
        self.submit();
        if !opens_watch {
            // Whoever has the answer has the events before it, too.
            self.pump();
        }
        self.answer(connection, id, response, urgent);
        if opens_watch {
            self.pump();
        }
    }

    fn answer(&mut self, connection: ConnectionId, id: u64, response: StoreResponse, urgent: bool) {
        let Some(outlet) = self.outlets.get(&connection) else { return };
        let mut bytes = Vec::new();
        if frame(&Told::Answer { id, response }, &mut bytes, ANSWER_BYTES_MAX).is_err() {
            let response = StoreResponse::Failed(StoreError::OutOfBounds(Limit::Request));
            // An error is far below the limit.
            let _ = frame(&Told::Answer { id, response }, &mut bytes, ANSWER_BYTES_MAX);
        }
        if urgent {
            outlet.push_urgent(&bytes);
        } else {
            outlet.push(self.issued, bytes, true);
        }
    }

    fn has_too_many_watches(&self, connection: ConnectionId) -> bool {
        self.names.range(names_of(connection)).count() >= WATCHES_MAX
    }

    /// Gives the watch of a request the name that it has in the state, where all connections' watches are.
    fn named(&mut self, connection: ConnectionId, request: StoreRequest) -> StoreRequest {
        match request {
            StoreRequest::Watch { watch, prefix, from } => {
                self.end_watch((connection, watch));
                self.last_watch += 1;
                let name = WatchId(self.last_watch);
                self.watches.insert(name, (connection, watch));
                self.names.insert((connection, watch), name);
                StoreRequest::Watch { watch: name, prefix, from }
            }
            StoreRequest::CancelWatch { watch } => {
                let name = self.names.remove(&(connection, watch));
                if let Some(name) = name {
                    self.watches.remove(&name);
                }
                // No watch has the name 0.
                StoreRequest::CancelWatch { watch: name.unwrap_or(WatchId(0)) }
            }
            other => other,
        }
    }

    fn end_watch(&mut self, name: (ConnectionId, WatchId)) {
        if let Some(watch) = self.names.remove(&name) {
            self.watches.remove(&watch);
            let now = (self.clock)();
            self.state.handle(StoreRequest::CancelWatch { watch }, now, &mut self.writes);
            self.submit();
        }
    }

    /// Hands changes to the disk.
    fn submit(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        self.issued += 1;
        let writes = core::mem::take(&mut self.writes);
        // If its thread ended, nothing becomes durable any more, and the server is told so by it.
        let _ = self.disk.send(Batch { sequence: self.issued, writes, revision: self.state.revision() });
    }

    /// Hands due events to their connections.
    fn pump(&mut self) {
        loop {
            let mut events = core::mem::take(&mut self.events);
            self.state.poll_events(&mut events);
            if events.is_empty() {
                self.events = events;
                return;
            }
            for event in events.drain(..) {
                self.deliver(event);
            }
            self.events = events;
        }
    }

    fn deliver(&mut self, mut event: StoreEvent) {
        let ended = matches!(event, StoreEvent::Gap { .. });
        let (StoreEvent::Changed { watch, .. } | StoreEvent::Progress { watch, .. } | StoreEvent::Gap { watch }) =
            &mut event;
        let Some((connection, name)) = self.watches.get(watch).copied() else { return };
        *watch = name;
        if ended {
            self.end_watch((connection, name));
        }
        let Some(outlet) = self.outlets.get(&connection).map(Rc::clone) else { return };
        let mut bytes = Vec::new();
        let fits = frame(&Told::Event(event), &mut bytes, ANSWER_BYTES_MAX).is_ok();
        if ended || (fits && outlet.bytes() + bytes.len() <= self.queue_bytes_max) {
            return outlet.push(self.issued, bytes, false);
        }
        self.counters.with(|counters| counters.slow_watches += 1);
        self.end_watch((connection, name));
        bytes.clear();
        if frame(&Told::Event(StoreEvent::Gap { watch: name }), &mut bytes, ANSWER_BYTES_MAX).is_ok() {
            outlet.push(self.issued, bytes, false);
        }
    }
}

/// All watches that a connection may have.
fn names_of(connection: ConnectionId) -> RangeInclusive<(ConnectionId, WatchId)> {
    (connection, WatchId(0))..=(connection, WatchId(u64::MAX))
}

/// A response that fits a frame: a range read may end earlier than it was asked to.
fn bounded(response: StoreResponse) -> StoreResponse {
    let StoreResponse::Range { mut records, mut more, revision } = response else { return response };
    let size = |record: &KeyValue| record.key.len() + record.value.len() + RECORD_BYTES;
    let mut bytes = 0;
    let fitting = records.iter().take_while(|record| {
        bytes += size(record);
        bytes <= RANGE_BYTES_MAX
    });
    let keep = fitting.count().max(1).min(RANGE_RECORDS_MAX as usize);
    if keep < records.len() {
        records.truncate(keep);
        more = true;
    }
    StoreResponse::Range { records, more, revision }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::store::{Change, Revision};

    #[test]
    fn a_long_range_ends_early_and_says_so() {
        let record = |at: usize| KeyValue {
            key: format!("k{at}"),
            value: vec![0; 60_000],
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: None,
        };
        let range = |count: usize| StoreResponse::Range {
            records: (0..count).map(record).collect(),
            more: false,
            revision: Revision(9),
        };
        assert_eq!(bounded(range(10)), range(10));
        let StoreResponse::Range { records, more, .. } = bounded(range(100)) else { panic!("a range") };
        assert!(more && records.len() < 40 && !records.is_empty());
        let mut bytes = Vec::new();
        let changes = vec![Change::Put(record(0))];
        let event = StoreEvent::Changed { watch: WatchId(1), revision: Revision(1), changes };
        assert!(frame(&Told::Event(event), &mut bytes, ANSWER_BYTES_MAX).is_ok());
    }
}
