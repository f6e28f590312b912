//! What needs a disk that can be held, or a peer that does not take what it asked for.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::disk::Disk;
use super::protocol::{
    ANSWER_BYTES_MAX, Asked, CONTROL_SCHEMA, Frames, PREFACE_BYTES, REQUEST_BYTES_MAX, Service, Told, frame, preface,
    read,
};
use super::server::serve_on;
use super::{ServedStore, ServerOptions, StoreServer};
use crate::base::Nanos;
use crate::control::store::{
    LeaseId, Operation, Revision, Store, StoreError, StoreEvent, StoreRequest, StoreResponse, Transaction, WatchId,
};
use crate::control::store_state::{LeaseMode, StoreState, Write};

const PATIENCE: Duration = Duration::from_secs(60);

/// A disk that waits while it is held.
#[derive(Clone, Default)]
struct HeldDisk(Arc<(Mutex<bool>, Condvar)>);

impl HeldDisk {
    fn hold(&self, held: bool) {
        *self.0.0.lock().expect("not poisoned") = held;
        self.0.1.notify_all();
    }
}

impl Disk for HeldDisk {
    fn persist(&mut self, _: &[Write], _: Revision) -> Result<(), String> {
        let held = self.0.0.lock().expect("not poisoned");
        drop(self.0.1.wait_while(held, |held| *held).expect("not poisoned"));
        Ok(())
    }
}

struct Fixture {
    server: StoreServer,
    disk: HeldDisk,
    clock: Arc<AtomicU64>,
    _directory: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Or the server waits for it, also in a test that failed.
        self.disk.hold(false);
    }
}

fn serve(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = HeldDisk::default();
    let clock = Arc::new(AtomicU64::new(1));
    let told = Arc::clone(&clock);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let now = Arc::new(move || Nanos(told.load(Ordering::SeqCst)));
    let mut options = ServerOptions::new(listen, directory.path().to_owned(), now);
    change(&mut options);
    let server = serve_on(options, StoreState::new(LeaseMode::Expiring, Revision(0)), disk.clone()).expect("serves");
    Fixture { server, disk, clock, _directory: directory }
}

fn connect(address: SocketAddr) -> ServedStore {
    let store = ServedStore::start(address, PATIENCE).expect("starts");
    store.wait_connected(PATIENCE).expect("connects");
    store
}

fn put(store: &mut ServedStore, key: &str, value: Vec<u8>) -> StoreResponse {
    let operations = vec![Operation::Put { key: key.into(), value, lease: None }];
    store.handle(StoreRequest::Transaction(Transaction { compares: Vec::new(), operations }), Nanos(1))
}

fn grant(store: &mut ServedStore, ttl: Duration) -> LeaseId {
    match store.handle(StoreRequest::GrantLease { ttl }, Nanos(1)) {
        StoreResponse::Lease { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_disk_delays_changes_and_no_renewal() {
    let fixture = serve(|_| ());
    let address = fixture.server.address();
    let mut store = connect(address);
    let lease = grant(&mut store, Duration::from_secs(2));
    store.handle(StoreRequest::Watch { watch: WatchId(1), prefix: String::new(), from: Revision(1) }, Nanos(1));
    fixture.disk.hold(true);
    let writer = std::thread::spawn(move || put(&mut connect(address), "a", b"v".to_vec()));
    let mut events = Vec::new();
    for _ in 0..40 {
        fixture.clock.fetch_add(250_000_000, Ordering::SeqCst);
        let renewed = store.handle(StoreRequest::RenewLease { lease }, Nanos(1));
        assert!(matches!(renewed, StoreResponse::Lease { .. }), "{renewed:?}");
        store.poll_events(Nanos(1), &mut events);
    }
    let changed = |event: &StoreEvent| matches!(event, StoreEvent::Changed { .. });
    assert!(!events.iter().any(changed), "nothing is told before it is durable");
    assert!(!writer.is_finished());
    fixture.disk.hold(false);
    let written = writer.join().expect("ends");
    assert!(matches!(written, StoreResponse::Transaction { succeeded: true, .. }));
    while !events.iter().any(changed) {
        store.poll_events(Nanos(1), &mut events);
        std::thread::yield_now();
    }
}

/// A peer that says hello and sends requests, and reads only when it is told to.
struct RawPeer(TcpStream);

impl RawPeer {
    fn connect(address: SocketAddr) -> RawPeer {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(&preface(Service::Control, CONTROL_SCHEMA)).expect("sent");
        let mut hello = [0; PREFACE_BYTES];
        stream.read_exact(&mut hello).expect("answered");
        RawPeer(stream)
    }

    fn send(&mut self, id: u64, request: StoreRequest) {
        let mut bytes = Vec::new();
        frame(&Asked { id, request }, &mut bytes, REQUEST_BYTES_MAX).expect("fits");
        self.0.write_all(&bytes).expect("sent");
    }

    fn read_until(&mut self, mut wanted: impl FnMut(&Told) -> bool) {
        let mut frames = Frames::new(ANSWER_BYTES_MAX);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = self.0.read(&mut buffer).expect("read");
            assert!(count > 0, "closed");
            frames.push(&buffer[..count]);
            while let Some(body) = frames.next().expect("valid") {
                if wanted(&read::<Told>(body).expect("valid")) {
                    return;
                }
            }
        }
    }
}

#[test]
fn a_watcher_that_does_not_read_gets_a_gap_and_is_forgotten() {
    let fixture = serve(|options| options.queue_bytes_max = 1 << 20);
    let mut peer = RawPeer::connect(fixture.server.address());
    peer.send(1, StoreRequest::Watch { watch: WatchId(7), prefix: String::new(), from: Revision(1) });
    let mut store = connect(fixture.server.address());
    // More than the sockets of a connection hold, then what waits in the server.
    while fixture.server.counters().slow_watches == 0 {
        assert!(matches!(put(&mut store, "a", vec![0; 60_000]), StoreResponse::Transaction { .. }));
    }
    peer.read_until(|told| matches!(told, Told::Event(StoreEvent::Gap { watch: WatchId(7) })));
    put(&mut store, "a", Vec::new());
    // It may watch again, from now on.
    peer.send(2, StoreRequest::Watch { watch: WatchId(7), prefix: String::new(), from: Revision(u64::MAX / 2) });
    peer.read_until(|told| match told {
        Told::Answer { id, .. } => *id == 2,
        Told::Event(event) => panic!("after the gap: {event:?}"),
    });
}

#[test]
fn a_failed_disk_ends_the_server_and_nothing_is_answered() {
    struct Broken;
    impl Disk for Broken {
        fn persist(&mut self, _: &[Write], _: Revision) -> Result<(), String> {
            Err("it is full".to_owned())
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ServerOptions::new(listen, directory.path().to_owned(), Arc::new(|| Nanos(1)));
    let mut server = serve_on(options, StoreState::new(LeaseMode::Expiring, Revision(0)), Broken).expect("serves");
    let mut store = connect(server.address());
    assert!(matches!(put(&mut store, "a", Vec::new()), StoreResponse::Failed(StoreError::Unavailable(_))));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("starts");
    let error = runtime.block_on(server.failed()).to_string();
    assert!(error.contains("it is full") && error.contains("start again"), "{error}");
}

#[test]
fn a_manager_that_hangs_costs_one_deadline_and_then_nothing() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("binds");
    let address = listener.local_addr().expect("has one");
    // It says hello to the first connection, and nothing ever after.
    let hung = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.write_all(&preface(Service::Control, CONTROL_SCHEMA)).expect("sent");
        (listener, stream)
    });
    let mut store = ServedStore::start(address, Duration::from_secs(1)).expect("starts");
    store.wait_connected(PATIENCE).expect("connects");
    let held = hung.join().expect("ends");
    // At a second each, this would take a quarter of an hour.
    for now in 0..1000 {
        let response = store.handle(StoreRequest::GrantLease { ttl: PATIENCE }, Nanos(now));
        assert!(matches!(response, StoreResponse::Failed(StoreError::Unavailable(_))));
    }
    drop(held);
}

#[test]
fn the_watches_of_a_connection_are_bounded() {
    let fixture = serve(|_| ());
    let (mut store, mut other) = (connect(fixture.server.address()), connect(fixture.server.address()));
    let watch = |store: &mut ServedStore, at| {
        store.handle(StoreRequest::Watch { watch: WatchId(at), prefix: String::new(), from: Revision(1) }, Nanos(1))
    };
    let opened = (0..100).take_while(|at| matches!(watch(&mut store, *at), StoreResponse::Watching { .. })).count();
    assert!((2..100).contains(&opened));
    assert!(matches!(watch(&mut other, 1), StoreResponse::Watching { .. }));
    assert_eq!(store.handle(StoreRequest::CancelWatch { watch: WatchId(0) }, Nanos(1)), StoreResponse::Cancelled);
    assert!(matches!(watch(&mut store, 200), StoreResponse::Watching { .. }));
}
