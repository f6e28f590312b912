//! The served store over restarts, bad peers and pauses of its process.
#![cfg(feature = "runtime")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll::base::Nanos;
use atoll::control::store::{
    KeyValue, LeaseId, Operation, Revision, Store, StoreError, StoreEvent, StoreRequest, StoreResponse, Transaction,
    WatchId,
};
use atoll::stores::ServedStore;
use atoll::stores::served::{ConnectError, ServerOptions, StoreServer};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server in this process whose clock stands until it is told.
struct Manual {
    clock: Arc<AtomicU64>,
    directory: tempfile::TempDir,
}

impl Manual {
    fn new() -> Manual {
        Manual { clock: Arc::new(AtomicU64::new(1)), directory: tempfile::tempdir().expect("a directory") }
    }

    fn options(&self, listen: SocketAddr) -> ServerOptions {
        let clock = Arc::clone(&self.clock);
        let now = Arc::new(move || Nanos(clock.load(Ordering::SeqCst)));
        ServerOptions::new(listen, self.directory.path().to_owned(), now)
    }

    fn serve(&self, listen: SocketAddr) -> StoreServer {
        StoreServer::start(self.options(listen)).expect("serves")
    }

    /// In steps that the server does not take for a gap: each is seen by it before the next one.
    fn pass(&self, client: &mut Client, time: Duration) {
        for _ in 0..time.as_millis() / 250 {
            self.clock.fetch_add(250_000_000, Ordering::SeqCst);
            client.records();
        }
    }
}

/// One that a server can have again after a restart.
fn lasting_port() -> SocketAddr {
    support::lasting_address().parse().expect("an address")
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// A client that fails the test on an answer of the wrong kind. Its own clock moves with each request, as a pod's does.
struct Client {
    store: ServedStore,
    now: Nanos,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let store = ServedStore::start(address, PATIENCE).expect("starts");
        store.wait_connected(PATIENCE).expect("connects");
        Client { store, now: Nanos(1) }
    }

    fn ask(&mut self, request: StoreRequest) -> StoreResponse {
        self.now = self.now + Duration::from_millis(1);
        self.store.handle(request, self.now)
    }

    /// Asks until there is a connection.
    fn ask_again(&mut self, request: &StoreRequest) -> StoreResponse {
        loop {
            match self.ask(request.clone()) {
                StoreResponse::Failed(StoreError::Unavailable(_)) => std::thread::sleep(Duration::from_millis(10)),
                response => return response,
            }
        }
    }

    fn put(&mut self, key: &str, lease: Option<LeaseId>) -> Revision {
        let operations = vec![Operation::Put { key: key.into(), value: b"v".to_vec(), lease }];
        match self.ask(StoreRequest::Transaction(Transaction { compares: Vec::new(), operations })) {
            StoreResponse::Transaction { succeeded: true, revision } => revision,
            other => panic!("{other:?}"),
        }
    }

    fn grant(&mut self, ttl: Duration) -> LeaseId {
        match self.ask(StoreRequest::GrantLease { ttl }) {
            StoreResponse::Lease { lease, ttl: Some(_) } => lease,
            other => panic!("{other:?}"),
        }
    }

    fn records(&mut self) -> Vec<KeyValue> {
        match self.ask_again(&StoreRequest::Range { prefix: String::new(), after: None, limit: 100 }) {
            StoreResponse::Range { records, .. } => records,
            other => panic!("{other:?}"),
        }
    }

    fn keys(&mut self) -> Vec<String> {
        self.records().into_iter().map(|record| record.key).collect()
    }

    fn watch(&mut self, watch: u64, from: Revision) {
        let request = StoreRequest::Watch { watch: WatchId(watch), prefix: String::new(), from };
        assert!(matches!(self.ask(request), StoreResponse::Watching { .. }));
    }

    /// Events until one of them is wanted.
    fn events_until(&mut self, wanted: impl Fn(&StoreEvent) -> bool) -> Vec<StoreEvent> {
        let mut events = Vec::new();
        while !events.iter().any(&wanted) {
            self.store.poll_events(self.now, &mut events);
            std::thread::sleep(Duration::from_millis(2));
        }
        events
    }
}

#[test]
fn leases_have_their_whole_time_after_a_restart() {
    let manual = Manual::new();
    let server = manual.serve(lasting_port());
    let address = server.address();
    let mut client = Client::connect(address);
    let lease = client.grant(Duration::from_secs(10));
    client.put("leased", Some(lease));
    client.put("kept", None);
    let before = client.records();
    manual.pass(&mut client, Duration::from_secs(9));
    server.stop();
    let server = manual.serve(address);
    assert_eq!(client.records(), before);
    manual.pass(&mut client, Duration::from_secs(9));
    assert_eq!(client.keys(), ["kept", "leased"]);
    manual.pass(&mut client, Duration::from_secs(2));
    assert_eq!(client.keys(), ["kept"]);
    drop(server);
}

#[test]
fn a_watch_goes_on_where_it_was_or_reports_a_gap() {
    let manual = Manual::new();
    let server = manual.serve(lasting_port());
    let address = server.address();
    let mut client = Client::connect(address);
    let first = client.put("a", None);
    client.watch(1, first.next());
    let second = client.put("b", None);
    let told = |revision| move |event: &StoreEvent| matches!(event, StoreEvent::Progress { revision: r, .. } if *r >= revision);
    let events = client.events_until(told(second));
    let changed = |events: &[StoreEvent]| {
        let changed = events.iter().filter_map(|event| match event {
            StoreEvent::Changed { revision, changes, .. } => Some((*revision, changes[0].key().to_owned())),
            _ => None,
        });
        changed.collect::<Vec<_>>()
    };
    assert_eq!(changed(&events), [(second, "b".to_owned())]);
    // A restart forgets the history, so changes in between could be missing.
    server.stop();
    let _server = manual.serve(address);
    let events = client.events_until(|event| matches!(event, StoreEvent::Gap { watch: WatchId(1) }));
    assert_eq!(changed(&events), []);
    // The records are listed again, and watched from there.
    let listed = client.records();
    let newest = listed.iter().map(|record| record.mod_revision).max().expect("some");
    assert_eq!(newest, second);
    let third = client.put("c", None);
    client.watch(2, third);
    let events = client.events_until(told(third));
    assert_eq!(changed(&events), [(third, "c".to_owned())]);
}

/// Stands between client and server, and cuts connections.
struct Cutter {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cutter {
    fn before(target: SocketAddr) -> Cutter {
        let listener = TcpListener::bind(any_port()).expect("binds");
        let address = listener.local_addr().expect("has one");
        let open = Arc::new(Mutex::new(Vec::new()));
        let opened = Arc::clone(&open);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(target)) else { return };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().expect("cloned"), to.try_clone().expect("cloned"));
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                opened.lock().expect("not poisoned").extend([near, far]);
            }
        });
        Cutter { address, open }
    }

    fn cut(&self) {
        for stream in self.open.lock().expect("not poisoned").drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_cut_connection_loses_and_repeats_no_event() {
    let manual = Manual::new();
    let server = manual.serve(any_port());
    let cutter = Cutter::before(server.address());
    let mut watcher = Client::connect(cutter.address);
    let mut writer = Client::connect(server.address());
    watcher.watch(1, Revision(1));
    let mut written = Vec::new();
    let mut seen = Vec::new();
    for round in 0..20 {
        for _ in 0..10 {
            written.push(writer.put(&format!("k{round}"), None));
        }
        let last = *written.last().expect("some");
        if round % 3 == 0 {
            cutter.cut();
        }
        let told = |event: &StoreEvent| matches!(event, StoreEvent::Progress { revision, .. } if *revision >= last);
        seen.extend(watcher.events_until(told).iter().filter_map(|event| match event {
            StoreEvent::Changed { revision, .. } => Some(*revision),
            StoreEvent::Gap { .. } => panic!("the server has the whole history"),
            StoreEvent::Progress { .. } => None,
        }));
    }
    assert_eq!(seen, written);
    // A watch that was cancelled stays so over a new connection.
    assert_eq!(watcher.ask_again(&StoreRequest::CancelWatch { watch: WatchId(1) }), StoreResponse::Cancelled);
    cutter.cut();
    writer.put("last", None);
    assert!(watcher.keys().contains(&"last".to_owned()));
    let mut events = Vec::new();
    watcher.store.poll_events(watcher.now, &mut events);
    assert_eq!(events, []);
}

#[test]
fn a_pause_of_the_server_lapses_nothing() {
    let manual = Manual::new();
    let server = manual.serve(any_port());
    let mut client = Client::connect(server.address());
    let lease = client.grant(Duration::from_secs(2));
    client.put("leased", Some(lease));
    // The whole process, or the machine, stood still.
    manual.clock.fetch_add(3600 * 1_000_000_000, Ordering::SeqCst);
    assert_eq!(client.keys(), ["leased"]);
    let renewed = client.ask(StoreRequest::RenewLease { lease });
    assert!(matches!(renewed, StoreResponse::Lease { .. }));
    manual.pass(&mut client, Duration::from_millis(2250));
    assert!(client.keys().is_empty());
}

/// Sends bytes, and reads until the other side closes.
fn send_and_read(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(bytes).expect("sent");
    let mut answer = Vec::new();
    // A connection that is reset is closed, too.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn bad_bytes_close_their_connection_with_a_counted_reason() {
    let manual = Manual::new();
    let server = manual.serve(any_port());
    let mut client = Client::connect(server.address());
    let hello = {
        // What the server says is what a client of the same version says.
        let mut bytes = b"ATOLLSTO".to_vec();
        bytes.resize(24, 0);
        bytes[8] = 1;
        bytes[10] = 1;
        send_and_read(server.address(), &bytes)
    };
    assert_eq!(hello.len(), 24, "it says its version before it closes");
    let mut too_large = hello.clone();
    too_large.extend([0xff; 8]);
    let mut wrong_checksum = hello.clone();
    wrong_checksum.extend([3, 0, 0, 0, 1, 2, 3, 4, b'a', b'b', b'c']);
    let mut no_message = hello.clone();
    no_message.extend([3, 0, 0, 0]);
    no_message.extend(crc32c(b"abc").to_le_bytes());
    no_message.extend(b"abc");
    let mut other_service = hello.clone();
    other_service[10] = 9;
    for bytes in
        [&b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"[..], &too_large, &wrong_checksum, &no_message, &other_service]
    {
        send_and_read(server.address(), bytes);
    }
    client.put("a", None);
    let closed = server.counters().closed;
    let expected = [("checksum", 1), ("malformed", 1), ("not_atoll", 1), ("other_version", 2), ("too_large", 1)];
    for (reason, count) in expected {
        assert_eq!(closed.get(reason), Some(&count), "{reason}: {closed:?}");
    }
}

/// Bit by bit; the tests have no crate for it.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn connections_are_bounded() {
    let manual = Manual::new();
    let mut options = manual.options(any_port());
    options.connections_max = 1;
    let server = StoreServer::start(options).expect("serves");
    let mut client = Client::connect(server.address());
    assert!(send_and_read(server.address(), b"").is_empty());
    client.put("a", None);
    assert_eq!(server.counters().closed.get("too_many"), Some(&1));
}

#[test]
fn a_client_without_a_manager_fails_at_once_and_says_what_to_do() {
    let address = {
        let listener = TcpListener::bind(any_port()).expect("binds");
        listener.local_addr().expect("has one")
    };
    let mut store = ServedStore::start(address, PATIENCE).expect("starts");
    let error = store.wait_connected(Duration::from_millis(50)).expect_err("nobody is there");
    assert!(matches!(error, ConnectError::Unreachable { .. }));
    assert!(error.to_string().contains("atoll manager --listen"), "{error}");
    // With a minute for each, this would not end.
    for now in 0..1000 {
        let response = store.handle(StoreRequest::GrantLease { ttl: PATIENCE }, Nanos(now));
        assert!(matches!(response, StoreResponse::Failed(StoreError::Unavailable(_))));
    }
}

/// `atoll manager` as a process.
struct Manager {
    child: Child,
    address: SocketAddr,
}

impl Manager {
    fn command(directory: &Path, listen: SocketAddr) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        command.args(["manager", "--listen", &listen.to_string(), "--data-directory"]).arg(directory);
        command
    }

    fn start(directory: &Path, listen: SocketAddr) -> Manager {
        let mut child = Manager::command(directory, listen).stderr(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let first = lines.next().expect("a line").expect("text");
        let address = first.rsplit(' ').next().and_then(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {first:?}"));
        std::thread::spawn(move || lines.for_each(drop));
        Manager { child, address }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("runs").success());
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_manager_keeps_records_and_leases() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut manager = Manager::start(directory.path(), lasting_port());
    let mut client = Client::connect(manager.address);
    let lease = client.grant(PATIENCE);
    client.put("leased", Some(lease));
    client.put("kept", None);
    let before = client.records();
    for signal in ["KILL", "TERM", "KILL"] {
        manager.signal(signal);
        let ended = manager.child.wait().expect("ends");
        assert_eq!(ended.success(), signal == "TERM");
        manager = Manager::start(directory.path(), manager.address);
        assert_eq!(client.records(), before);
        let renewed = client.ask_again(&StoreRequest::RenewLease { lease });
        assert_eq!(renewed, StoreResponse::Lease { lease, ttl: Some(PATIENCE) });
        // Revisions and leases are never given out again.
        assert!(client.grant(PATIENCE) > lease);
    }
}

#[test]
fn a_pod_goes_on_over_a_killed_manager() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut manager = Manager::start(directory.path(), lasting_port());
    let address = manager.address;
    let store = address.to_string();
    let pod = support::PodProcess::start(&["--store", &store, "--set", "control.lease_ttl=2s"]);
    let registered = || {
        let pods = StoreRequest::Range { prefix: "/atoll/atoll/v1/pod/".into(), after: None, limit: 2 };
        match Client::connect(address).ask_again(&pods) {
            StoreResponse::Range { mut records, .. } => {
                records.pop().map(|record| (record.key, record.create_revision))
            }
            other => panic!("{other:?}"),
        }
    };
    let before = registered().expect("it is registered");
    for _ in 0..2 {
        manager.signal("KILL");
        manager.child.wait().expect("ends");
        manager = Manager::start(directory.path(), address);
        // Longer than its lease, which it has to renew over the new connection.
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(registered().as_ref(), Some(&before), "{}", pod.log());
    }
    let call = pod.atoll(&["call", "guild", "g1", "join", r#"{"user":"ann"}"#]);
    assert_eq!(support::out(&call), "[\"ann\"]\n");
    drop(pod);
    // Killed, not stopped: its lease has to lapse.
    support::until("the pod is gone", || registered().is_none().then_some(()));
}

#[test]
fn a_stopped_manager_lapses_nothing_when_it_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::start(directory.path(), any_port());
    let mut client = Client::connect(manager.address);
    let lease = client.grant(Duration::from_secs(2));
    client.put("leased", Some(lease));
    manager.signal("STOP");
    std::thread::sleep(Duration::from_millis(2500));
    manager.signal("CONT");
    let renewed = client.ask_again(&StoreRequest::RenewLease { lease });
    assert!(matches!(renewed, StoreResponse::Lease { .. }), "{renewed:?}");
}

#[test]
fn a_second_manager_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::start(directory.path(), any_port());
    let other = tempfile::tempdir().expect("a directory");
    for (directory, listen, words) in
        [(directory.path(), any_port(), "--data-dir"), (other.path(), manager.address, "--listen")]
    {
        let output = Manager::command(directory, listen).output().expect("runs");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with("error: ") && text.lines().count() == 1 && text.contains(words), "{text}");
    }
}

#[test]
fn a_pod_on_a_used_folder_is_told_the_commands_for_several() {
    let directory = tempfile::tempdir().expect("a directory");
    let _manager = Manager::start(directory.path(), any_port());
    let mut pod = Command::new(env!("CARGO_BIN_EXE_atoll"));
    pod.args(["pod", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.path());
    let output = pod.output().expect("runs");
    let text = String::from_utf8(output.stderr).expect("text");
    let shown = directory.path().display();
    let commands: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        commands,
        [
            format!("  atoll manager --listen 127.0.0.1:7350 --data-directory {shown}"),
            "  atoll pod --store 127.0.0.1:7350 --listen 127.0.0.1:0".to_owned(),
        ],
        "{text}"
    );
}
