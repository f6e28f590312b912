//! One suite of behaviours that every store has, run over each back end.

use std::time::Duration;

use atoll::base::Nanos;
use atoll::control::memory::MemoryStore;
use atoll::control::store::{
    Change, Compare, KEY_BYTES_MAX, KeyValue, LeaseId, Operation, RANGE_LIMIT_MAX, Revision, Store, StoreError,
    StoreEvent, StoreRequest, StoreResponse, TRANSACTION_OPERATIONS_MAX, Transaction, VALUE_BYTES_MAX, WatchId,
};
use atoll::control::store_state::{HISTORY_CHANGES_MAX, LeaseMode};

/// A client that fails the test on an answer of the wrong kind.
struct Client<S> {
    store: S,
    now: Nanos,
}

impl<S: Store> Client<S> {
    fn ask(&mut self, request: StoreRequest) -> StoreResponse {
        self.store.handle(request, self.now)
    }

    fn transact(&mut self, compares: Vec<Compare>, operations: Vec<Operation>) -> (bool, Revision) {
        match self.ask(StoreRequest::Transaction(Transaction { compares, operations })) {
            StoreResponse::Transaction { succeeded, revision } => (succeeded, revision),
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, operations: Vec<Operation>) -> StoreError {
        match self.ask(StoreRequest::Transaction(Transaction { compares: Vec::new(), operations })) {
            StoreResponse::Failed(error) => error,
            other => panic!("{other:?}"),
        }
    }

    fn put(&mut self, key: &str, value: &str) -> Revision {
        self.transact(Vec::new(), vec![put(key, value, None)]).1
    }

    fn range(&mut self, prefix: &str) -> Vec<KeyValue> {
        match self.ask(StoreRequest::Range { prefix: prefix.into(), after: None, limit: 1000 }) {
            StoreResponse::Range { records, .. } => records,
            other => panic!("{other:?}"),
        }
    }

    fn get(&mut self, key: &str) -> Option<KeyValue> {
        self.range(key).into_iter().find(|record| record.key == key)
    }

    fn keys(&mut self, prefix: &str) -> Vec<String> {
        self.range(prefix).into_iter().map(|record| record.key).collect()
    }

    fn grant(&mut self, ttl: Duration) -> LeaseId {
        match self.ask(StoreRequest::GrantLease { ttl }) {
            StoreResponse::Lease { lease, .. } => lease,
            other => panic!("{other:?}"),
        }
    }

    fn watch(&mut self, watch: u64, prefix: &str, from: Revision) {
        let request = StoreRequest::Watch { watch: WatchId(watch), prefix: prefix.into(), from };
        assert!(matches!(self.ask(request), StoreResponse::Watching { .. }));
    }

    fn events(&mut self) -> Vec<StoreEvent> {
        let mut events = Vec::new();
        loop {
            let before = events.len();
            self.store.poll_events(self.now, &mut events);
            if events.len() == before {
                return events;
            }
        }
    }

    /// In steps that a store does not take for a gap of its own loop.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = (self.now + Duration::from_millis(250)).min(until);
            self.store.poll_events(self.now, &mut Vec::new());
        }
    }
}

fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Operation {
    Operation::Put { key: key.into(), value: value.into(), lease }
}

fn conformance<S: Store>(mode: LeaseMode, mut new_store: impl FnMut() -> S) {
    let mut client = || Client { store: new_store(), now: Nanos(1) };
    revisions_count_changes(&mut client());
    compares_guard_a_transaction(&mut client());
    bad_requests_are_refused_whole(&mut client());
    ranges_are_ordered_and_paged(&mut client());
    a_lease_takes_its_records_along(&mut client());
    a_record_leaves_its_lease_when_it_is_put_without(&mut client());
    watches_deliver_each_revision_once(&mut client());
    a_late_watch_gets_the_history_or_a_gap(&mut client());
    if mode == LeaseMode::Expiring {
        a_lease_lapses_unless_it_is_renewed(&mut client());
        a_gap_in_the_loop_of_the_store_lapses_nothing(&mut client());
    } else {
        a_lease_of_the_only_client_lasts(&mut client());
    }
}

fn revisions_count_changes<S: Store>(client: &mut Client<S>) {
    let first = client.put("a", "1");
    let second = client.put("a", "2");
    assert!(first > Revision(0) && second > first);
    let record = client.get("a").expect("stored");
    assert_eq!((record.create_revision, record.mod_revision), (first, second));
    assert_eq!(record.value, b"2");
    let (_, unchanged) = client.transact(Vec::new(), vec![Operation::Delete("none".into())]);
    assert_eq!(unchanged, second);
    client.transact(Vec::new(), vec![Operation::Delete("a".into())]);
    let again = client.put("a", "3");
    assert_eq!(client.get("a").map(|record| record.create_revision), Some(again));
    let (_, both) = client.transact(Vec::new(), vec![put("b", "", None), put("c", "", None)]);
    let created = client.range("").into_iter().filter(|record| record.create_revision == both).count();
    assert_eq!(created, 2);
}

fn compares_guard_a_transaction<S: Store>(client: &mut Client<S>) {
    let absent = || vec![Compare::Absent("own".into())];
    let (won, created) = client.transact(absent(), vec![put("own", "first", None)]);
    let (second, present) = client.transact(absent(), vec![put("own", "second", None), put("other", "", None)]);
    assert!(won && !second);
    assert_eq!(present, created);
    assert_eq!(client.get("own").map(|record| record.value), Some(b"first".to_vec()));
    assert_eq!(client.get("other"), None);
    let changed = client.put("own", "changed");
    let holds = |client: &mut Client<S>, compare| client.transact(vec![compare], Vec::new()).0;
    assert!(holds(client, Compare::CreateRevision("own".into(), created)));
    assert!(!holds(client, Compare::CreateRevision("own".into(), changed)));
    assert!(holds(client, Compare::ModRevision("own".into(), changed)));
    assert!(!holds(client, Compare::ModRevision("own".into(), created)));
    assert!(!holds(client, Compare::CreateRevision("none".into(), created)));
    assert!(!holds(client, Compare::ModRevision("none".into(), Revision(0))));
    let one_wrong = vec![Compare::Absent("none".into()), Compare::Absent("own".into())];
    assert!(!client.transact(one_wrong, vec![put("none", "", None)]).0);
}

fn bad_requests_are_refused_whole<S: Store>(client: &mut Client<S>) {
    let before = client.put("kept", "1");
    let twice = vec![put("x", "1", None), Operation::Delete("x".into())];
    assert_eq!(client.refused(twice), StoreError::DuplicateKey("x".into()));
    let many = (0..=TRANSACTION_OPERATIONS_MAX).map(|at| put(&format!("k{at}"), "", None)).collect();
    assert_eq!(client.refused(many), StoreError::TooManyOperations(TRANSACTION_OPERATIONS_MAX as u64 + 1));
    let lease = vec![put("kept", "2", None), put("y", "", Some(LeaseId(u64::MAX)))];
    assert_eq!(client.refused(lease), StoreError::LeaseNotFound);
    assert!(matches!(client.refused(vec![put("", "", None)]), StoreError::OutOfBounds(_)));
    assert!(matches!(client.refused(vec![put(&"k".repeat(KEY_BYTES_MAX + 1), "", None)]), StoreError::OutOfBounds(_)));
    assert!(matches!(
        client.refused(vec![put("k", &"v".repeat(VALUE_BYTES_MAX + 1), None)]),
        StoreError::OutOfBounds(_)
    ));
    for limit in [0, RANGE_LIMIT_MAX + 1] {
        let range = StoreRequest::Range { prefix: String::new(), after: None, limit };
        assert!(matches!(client.ask(range), StoreResponse::Failed(StoreError::OutOfBounds(_))));
    }
    assert_eq!(
        client.ask(StoreRequest::RenewLease { lease: LeaseId(9) }),
        StoreResponse::Failed(StoreError::LeaseNotFound)
    );
    assert_eq!(client.keys(""), ["kept"]);
    assert_eq!(client.get("kept").map(|record| record.mod_revision), Some(before));
}

fn ranges_are_ordered_and_paged<S: Store>(client: &mut Client<S>) {
    for key in ["p/2", "q", "p/1", "p", "p/3", "o"] {
        client.put(key, "");
    }
    assert_eq!(client.keys("p/"), ["p/1", "p/2", "p/3"]);
    assert_eq!(client.keys("p"), ["p", "p/1", "p/2", "p/3"]);
    let mut page = |after: Option<&str>| {
        let range = StoreRequest::Range { prefix: "p/".into(), after: after.map(Into::into), limit: 2 };
        match client.ask(range) {
            StoreResponse::Range { records, more, .. } => {
                (records.into_iter().map(|record| record.key).collect::<Vec<_>>(), more)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page(None), (vec!["p/1".into(), "p/2".into()], true));
    assert_eq!(page(Some("p/2")), (vec!["p/3".into()], false));
    assert_eq!(page(Some("p/3")), (vec![], false));
    assert_eq!(page(Some("a")), (vec!["p/1".into(), "p/2".into()], true));
}

fn a_lease_takes_its_records_along<S: Store>(client: &mut Client<S>) {
    let lease = client.grant(Duration::from_secs(5));
    let other = client.grant(Duration::from_secs(5));
    assert_ne!(lease, other);
    client.transact(Vec::new(), vec![put("l/1", "", Some(lease)), put("l/2", "", Some(lease))]);
    let (_, revision) = client.transact(Vec::new(), vec![put("l/3", "", Some(other)), put("l/4", "", None)]);
    client.watch(1, "l/", revision.next());
    client.events();
    assert_eq!(client.ask(StoreRequest::RevokeLease { lease }), StoreResponse::Revoked);
    assert_eq!(client.keys("l/"), ["l/3", "l/4"]);
    let deleted = |event: &StoreEvent| match event {
        StoreEvent::Changed { changes, .. } => changes.iter().map(|change| change.key().to_owned()).collect(),
        _ => Vec::new(),
    };
    let changed: Vec<Vec<String>> = client.events().iter().map(deleted).filter(|keys| !keys.is_empty()).collect();
    assert_eq!(changed, [["l/1", "l/2"]], "all at one revision");
    let again = client.ask(StoreRequest::RevokeLease { lease });
    assert_eq!(again, StoreResponse::Failed(StoreError::LeaseNotFound));
    assert_eq!(client.refused(vec![put("l/5", "", Some(lease))]), StoreError::LeaseNotFound);
}

fn a_record_leaves_its_lease_when_it_is_put_without<S: Store>(client: &mut Client<S>) {
    let lease = client.grant(Duration::from_secs(5));
    client.transact(Vec::new(), vec![put("kept", "1", Some(lease)), put("taken", "1", None)]);
    client.transact(Vec::new(), vec![put("kept", "2", None), put("taken", "2", Some(lease))]);
    client.ask(StoreRequest::RevokeLease { lease });
    assert_eq!(client.keys(""), ["kept"]);
}

fn watches_deliver_each_revision_once<S: Store>(client: &mut Client<S>) {
    let start = client.put("w/0", "");
    client.watch(7, "w/", start.next());
    client.events();
    let put_at = client.put("w/1", "v");
    client.put("elsewhere", "");
    let (_, both) = client.transact(Vec::new(), vec![Operation::Delete("w/0".into()), put("w/2", "", None)]);
    let events = client.events();
    let changed: Vec<(Revision, Vec<String>)> = events
        .iter()
        .filter_map(|event| match event {
            StoreEvent::Changed { watch: WatchId(7), revision, changes } => {
                Some((*revision, changes.iter().map(|change| change.key().to_owned()).collect()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(changed, [(put_at, vec!["w/1".to_owned()]), (both, vec!["w/0".to_owned(), "w/2".to_owned()])]);
    assert_eq!(events.last(), Some(&StoreEvent::Progress { watch: WatchId(7), revision: both }));
    assert!(client.events().is_empty());
    let seen_elsewhere = client.put("elsewhere", "2");
    assert_eq!(client.events(), [StoreEvent::Progress { watch: WatchId(7), revision: seen_elsewhere }]);
    assert_eq!(client.ask(StoreRequest::CancelWatch { watch: WatchId(7) }), StoreResponse::Cancelled);
    client.put("w/3", "");
    assert!(client.events().is_empty());
}

fn a_late_watch_gets_the_history_or_a_gap<S: Store>(client: &mut Client<S>) {
    let first = client.put("h", "1");
    let second = client.put("h", "2");
    client.watch(1, "h", first.next());
    let events = client.events();
    let expected = client.get("h").map(Change::Put).into_iter().collect::<Vec<_>>();
    assert_eq!(events[0], StoreEvent::Changed { watch: WatchId(1), revision: second, changes: expected });
    client.watch(1, "h", second.next());
    for _ in 0..HISTORY_CHANGES_MAX / TRANSACTION_OPERATIONS_MAX + 1 {
        let many = (0..TRANSACTION_OPERATIONS_MAX).map(|at| put(&format!("h{at}"), "", None)).collect();
        client.transact(Vec::new(), many);
    }
    client.watch(2, "h", second.next());
    let events = client.events();
    assert!(events.contains(&StoreEvent::Gap { watch: WatchId(1) }));
    assert!(events.contains(&StoreEvent::Gap { watch: WatchId(2) }));
    assert!(!events.iter().any(|event| matches!(event, StoreEvent::Changed { .. })));
    client.put("h", "last");
    assert!(client.events().is_empty(), "a watch ends with its gap");
}

fn a_lease_lapses_unless_it_is_renewed<S: Store>(client: &mut Client<S>) {
    let ttl = Duration::from_secs(2);
    let (kept, lapsing) = (client.grant(ttl), client.grant(ttl));
    client.transact(Vec::new(), vec![put("kept", "", Some(kept)), put("lapsing", "", Some(lapsing))]);
    client.pass(Duration::from_millis(1500));
    let renewed = client.ask(StoreRequest::RenewLease { lease: kept });
    assert_eq!(renewed, StoreResponse::Lease { lease: kept, ttl: Some(ttl) });
    assert_eq!(client.keys(""), ["kept", "lapsing"]);
    client.pass(Duration::from_millis(500));
    assert_eq!(client.keys(""), ["kept"]);
    let late = client.ask(StoreRequest::RenewLease { lease: lapsing });
    assert_eq!(late, StoreResponse::Failed(StoreError::LeaseNotFound));
    client.pass(Duration::from_millis(1500));
    assert!(client.keys("").is_empty());
}

fn a_gap_in_the_loop_of_the_store_lapses_nothing<S: Store>(client: &mut Client<S>) {
    let lease = client.grant(Duration::from_secs(2));
    client.transact(Vec::new(), vec![put("kept", "", Some(lease))]);
    client.now = client.now + Duration::from_secs(60);
    assert_eq!(client.keys(""), ["kept"]);
    client.pass(Duration::from_millis(2000));
    assert!(client.keys("").is_empty());
}

fn a_lease_of_the_only_client_lasts<S: Store>(client: &mut Client<S>) {
    let lease = client.grant(Duration::from_secs(2));
    client.transact(Vec::new(), vec![put("kept", "", Some(lease))]);
    client.pass(Duration::from_secs(10));
    assert_eq!(client.keys(""), ["kept"]);
    assert_eq!(client.ask(StoreRequest::RenewLease { lease }), StoreResponse::Lease { lease, ttl: None });
}

#[test]
fn memory() {
    for mode in [LeaseMode::WhileOpen, LeaseMode::Expiring] {
        conformance(mode, || MemoryStore::new(mode));
    }
}

/// A store that reports a change before it checks the compares: the suite has to refuse it.
struct IgnoresCompares(MemoryStore);

impl Store for IgnoresCompares {
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        match request {
            StoreRequest::Transaction(transaction) => {
                let request = StoreRequest::Transaction(Transaction { compares: Vec::new(), ..transaction });
                self.0.handle(request, now)
            }
            request => self.0.handle(request, now),
        }
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        self.0.poll_events(now, events);
    }
}

#[test]
#[should_panic(expected = "won && !second")]
fn the_suite_refuses_a_store_that_ignores_compares() {
    conformance(LeaseMode::WhileOpen, || IgnoresCompares(MemoryStore::new(LeaseMode::WhileOpen)));
}

#[cfg(feature = "runtime")]
#[test]
fn embedded() {
    use atoll::stores::EmbeddedStore;
    let directory = tempfile::tempdir().expect("a directory");
    let mut count = 0;
    let mut open = |mode| {
        count += 1;
        EmbeddedStore::open_with(&directory.path().join(count.to_string()), mode).expect("opens")
    };
    conformance(LeaseMode::WhileOpen, || open(LeaseMode::WhileOpen));
    conformance(LeaseMode::Expiring, || open(LeaseMode::Expiring));
}

/// The served store over a real socket. Its server has the clock of the suite, and a poll waits until the server has
/// sent the events of everything before it.
#[cfg(feature = "runtime")]
struct OverASocket {
    store: atoll::stores::ServedStore,
    clock: std::sync::Arc<std::sync::atomic::AtomicU64>,
    _server: atoll::stores::served::StoreServer,
    _directory: tempfile::TempDir,
}

#[cfg(feature = "runtime")]
impl OverASocket {
    fn start() -> OverASocket {
        use atoll::stores::ServedStore;
        use atoll::stores::served::{ServerOptions, StoreServer};
        use std::sync::atomic::Ordering::SeqCst;
        let directory = tempfile::tempdir().expect("a directory");
        let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1));
        let told = std::sync::Arc::clone(&clock);
        let listen = "127.0.0.1:0".parse().expect("an address");
        let now = std::sync::Arc::new(move || Nanos(told.load(SeqCst)));
        let options = ServerOptions::new(listen, directory.path().to_owned(), now);
        let server = StoreServer::start(options).expect("serves");
        let store = ServedStore::start(server.address(), Duration::from_secs(120)).expect("starts");
        OverASocket { store, clock, _server: server, _directory: directory }
    }
}

#[cfg(feature = "runtime")]
impl Store for OverASocket {
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        self.clock.store(now.0, std::sync::atomic::Ordering::SeqCst);
        self.store.handle(request, now)
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        let anything = StoreRequest::Range { prefix: "/none".into(), after: None, limit: 1 };
        assert!(matches!(self.handle(anything, now), StoreResponse::Range { .. }));
        self.store.poll_events(now, events);
    }
}

#[cfg(feature = "runtime")]
#[test]
fn served() {
    conformance(LeaseMode::Expiring, OverASocket::start);
}
