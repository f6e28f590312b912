//! Saved state: tokens, transactions, restarts, and its use from entities.
#![cfg(feature = "runtime")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use atoll::base::{Nanos, Token};
use atoll::stores::StateStore;
use atoll::stores::served::{ServerOptions, StoreServer};
use atoll::stores::state::{
    APPLY_OPERATIONS_MAX, Applied, Apply, KEY_BYTES_MAX, Saved, StateChange, StateCompare, StateError, StateLimit,
    StateStatistics, VALUE_BYTES_MAX,
};
use atoll::{Config, Entity, EntityId, EntityOptions, Pod, Scope, StartError};
use support::block_on;

const PATIENCE: Duration = Duration::from_secs(60);

fn serve(directory: &Path, listen: &str) -> StoreServer {
    let listen: SocketAddr = listen.parse().expect("an address");
    StoreServer::start(ServerOptions::new(listen, directory.to_owned(), Arc::new(|| Nanos(1)))).expect("serves")
}

fn put(key: &str, value: &str) -> StateChange {
    StateChange::Put { key: key.into(), value: value.into() }
}

fn saved(value: &str, token: u64) -> Result<Option<Saved>, StateError> {
    Ok(Some(Saved { value: value.into(), token }))
}

/// A deposit with an id: the balance and the id in one transaction.
fn deposit(token: u64, balance: &str, id: &str) -> Apply {
    Apply {
        token,
        compares: vec![StateCompare::Absent(format!("deposit/{id}"))],
        changes: vec![put("balance", balance), put(&format!("deposit/{id}"), "")],
    }
}

fn suite(store: &StateStore) {
    block_on(async {
        an_older_owner_is_refused(store).await;
        a_transaction_is_whole(store).await;
        out_of_bounds_is_refused(store).await;
    });
}

async fn an_older_owner_is_refused(store: &StateStore) {
    assert_eq!(store.get("k").await, Ok(None));
    assert_eq!(store.put("k", b"first", Token(5)).await, Ok(()));
    assert_eq!(store.put("k", b"again", Token(5)).await, Ok(()));
    assert_eq!(store.put("k", b"later", Token(7)).await, Ok(()));
    let stale = StateError::StaleToken { stored: 7 };
    assert_eq!(store.put("k", b"stale", Token(6)).await, Err(stale.clone()));
    assert_eq!(store.load("k", Token(6)).await, Err(stale));
    assert_eq!(store.get("k").await, saved("later", 7));
    // From its load on, before it wrote anything, a new owner is safe from the one before.
    assert_eq!(store.load("k", Token(9)).await, saved("later", 9));
    assert_eq!(store.put("k", b"stale", Token(7)).await, Err(StateError::StaleToken { stored: 9 }));
    assert_eq!(store.load("none", Token(9)).await, Ok(None));
    assert_eq!(store.get("none").await, Ok(None));
    assert_eq!(store.put("none", b"stale", Token(8)).await, Err(StateError::StaleToken { stored: 9 }));
    assert_eq!(store.put("none", b"", Token(9)).await, Ok(()));
    assert_eq!(store.get("none").await, saved("", 9));
    let statistics = store.statistics().await.expect("counted");
    assert_eq!(statistics, StateStatistics { puts: 4, stale_rejections: 4, unmet_compares: 0 });
}

async fn a_transaction_is_whole(store: &StateStore) {
    assert_eq!(store.apply(deposit(3, "10", "a")).await, Ok(Applied::Done));
    assert_eq!(store.apply(deposit(3, "20", "a")).await, Ok(Applied::Unmet { compare: 0 }));
    assert_eq!(store.get("balance").await, saved("10", 3));
    assert_eq!(store.load("balance", Token(4)).await, saved("10", 4));
    // One of its keys has a newer token, so none is changed.
    assert_eq!(store.apply(deposit(3, "30", "b")).await, Err(StateError::StaleToken { stored: 4 }));
    assert_eq!(store.get("deposit/b").await, Ok(None));
    let compare = |compare| store.apply(Apply { token: 4, compares: vec![compare], changes: Vec::new() });
    let balance = |value: &str| StateCompare::Equals { key: "balance".into(), value: value.into() };
    assert_eq!(compare(StateCompare::Present("balance".into())).await, Ok(Applied::Done));
    assert_eq!(compare(StateCompare::Present("other".into())).await, Ok(Applied::Unmet { compare: 0 }));
    assert_eq!(compare(balance("10")).await, Ok(Applied::Done));
    assert_eq!(compare(balance("11")).await, Ok(Applied::Unmet { compare: 0 }));
    let change = |token, change| store.apply(Apply { token, compares: Vec::new(), changes: vec![change] });
    assert_eq!(change(4, StateChange::Delete("balance".into())).await, Ok(Applied::Done));
    assert_eq!(store.get("balance").await, Ok(None));
    assert_eq!(change(3, put("balance", "1")).await, Err(StateError::StaleToken { stored: 4 }));
    assert_eq!(change(4, StateChange::Forget("balance".into())).await, Ok(Applied::Done));
    assert_eq!(change(1, put("balance", "1")).await, Ok(Applied::Done));
}

async fn out_of_bounds_is_refused(store: &StateStore) {
    fn refused<T>(limit: StateLimit) -> Result<T, StateError> {
        Err(StateError::OutOfBounds(limit))
    }
    assert_eq!(store.get("").await, refused(StateLimit::Key));
    assert_eq!(store.load(&"k".repeat(KEY_BYTES_MAX + 1), Token(1)).await, refused(StateLimit::Key));
    let large = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(store.put("k", &large, Token(u64::MAX)).await, refused(StateLimit::Value));
    assert_eq!(store.put("large", &large[1..], Token(1)).await, Ok(()));
    assert_eq!(store.get("large").await.map(|saved| saved.map(|saved| saved.value.len())), Ok(Some(VALUE_BYTES_MAX)));
    let apply = |changes| store.apply(Apply { token: u64::MAX, compares: Vec::new(), changes });
    assert_eq!(apply(vec![put("x", ""), put("x", "")]).await, refused(StateLimit::DuplicateKey));
    let many = (0..=APPLY_OPERATIONS_MAX).map(|at| put(&format!("{at}"), "")).collect();
    assert_eq!(apply(many).await, refused(StateLimit::Operations));
    let three = ["a", "b", "c"].map(|key| StateChange::Put { key: key.into(), value: large[1..].to_vec() });
    assert_eq!(apply(three.to_vec()).await, refused(StateLimit::Request));
    assert_eq!(store.get("x").await, Ok(None));
}

#[test]
fn in_memory() {
    suite(&StateStore::embedded(None).expect("opens"));
}

#[test]
fn in_a_folder() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = StateStore::embedded(Some(directory.path())).expect("opens");
    suite(&store);
    let statistics = block_on(store.statistics());
    assert!(StateStore::embedded(Some(directory.path())).is_err(), "it is in use");
    store.close();
    let store = StateStore::embedded(Some(directory.path())).expect("opens again");
    assert_eq!(block_on(store.get("k")), saved("later", 9));
    assert_eq!(block_on(store.put("none", b"stale", Token(8))), Err(StateError::StaleToken { stored: 9 }));
    let counted =
        statistics.map(|counted| StateStatistics { stale_rejections: counted.stale_rejections + 1, ..counted });
    assert_eq!(block_on(store.statistics()), counted);
}

#[test]
fn at_a_manager_and_over_its_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path(), &support::lasting_address());
    let address = server.address();
    let store = StateStore::served(address, PATIENCE).expect("starts");
    suite(&store);
    server.stop();
    // What is asked now waits for the manager.
    let waiting = {
        let store = store.clone();
        std::thread::spawn(move || {
            loop {
                // What was on its way when the connection broke has an error: it may have been done.
                match block_on(store.load("k", Token(10))) {
                    Err(StateError::Unavailable(_)) => {}
                    other => return other,
                }
            }
        })
    };
    let _server = serve(directory.path(), &address.to_string());
    assert_eq!(waiting.join().expect("ends"), saved("later", 10));
    assert_eq!(block_on(store.put("k", b"stale", Token(9))), Err(StateError::StaleToken { stored: 10 }));
}

#[test]
fn without_a_manager_a_request_ends_in_time() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        listener.local_addr().expect("has one")
    };
    let store = StateStore::served(address, Duration::from_millis(100)).expect("starts");
    assert_eq!(block_on(store.get("k")), Err(StateError::Timeout));
}

#[test]
fn a_balance_survives_racing_owners() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path(), "127.0.0.1:0");
    // Owners with growing tokens; each deposits until a later one shuts it out.
    let owners: Vec<_> = (1..=8_u64)
        .map(|token| {
            let store = StateStore::served(server.address(), PATIENCE).expect("starts");
            std::thread::spawn(move || block_on(owner(&store, token)))
        })
        .collect();
    let acknowledged: u64 = owners.into_iter().map(|owner| owner.join().expect("ends")).sum();
    let store = StateStore::served(server.address(), PATIENCE).expect("starts");
    assert_eq!(
        block_on(store.get("racing")).map(|saved| saved.map(|saved| number(&saved.value))),
        Ok(Some(acknowledged))
    );
    assert!(acknowledged >= 50);
}

/// Returns how many of its deposits were acknowledged.
async fn owner(store: &StateStore, token: u64) -> u64 {
    let mut balance = match store.load("racing", Token(token)).await {
        Ok(saved) => saved.map_or(0, |saved| number(&saved.value)),
        Err(StateError::StaleToken { .. }) => return 0,
        Err(error) => panic!("{error}"),
    };
    for at in 0..50 {
        let change = StateChange::Put { key: "racing".into(), value: (balance + 1).to_le_bytes().to_vec() };
        match store.apply(Apply { token, compares: Vec::new(), changes: vec![change] }).await {
            Ok(_) => balance += 1,
            Err(StateError::StaleToken { .. }) => return at,
            Err(error) => panic!("{error}"),
        }
    }
    50
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

static STORE: OnceLock<StateStore> = OnceLock::new();

/// An account that saves before it answers.
#[atoll::protocol]
pub trait Ledger {
    async fn deposit(&mut self, id: String, amount: u64) -> Result<u64, String>;
}

pub struct LedgerEntity {
    scope: Scope<Self>,
    key: String,
    balance: u64,
}

impl Entity for LedgerEntity {
    type Protocol = LedgerProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        let key = format!("ledger/{}", id.as_str());
        let token = scope.fence().map_err(|_| StartError::new("gone"))?;
        let store = STORE.get().ok_or_else(|| StartError::new("no store"))?;
        let saved = store.load(&key, token).await.map_err(|error| StartError::new(error.to_string()))?;
        Ok(LedgerEntity { scope, key, balance: saved.map_or(0, |saved| number(&saved.value)) })
    }
}

impl Ledger for LedgerEntity {
    async fn deposit(&mut self, id: String, amount: u64) -> Result<u64, String> {
        let seen = format!("{}/deposit/{id}", self.key);
        let balance = self.balance + amount;
        let value = balance.to_le_bytes().to_vec();
        let apply = Apply {
            token: self.scope.fence().map_err(|_| "gone".to_owned())?.0,
            compares: vec![StateCompare::Absent(seen.clone())],
            changes: vec![StateChange::Put { key: self.key.clone(), value }, put(&seen, "")],
        };
        let store = STORE.get().ok_or("no store")?;
        match store.apply(apply).await {
            Ok(Applied::Done) => self.balance = balance,
            Ok(Applied::Unmet { .. }) => {}
            Err(error) => {
                let _ = self.scope.stop();
                return Err(error.to_string());
            }
        }
        Ok(self.balance)
    }
}

#[test]
fn entities_save_what_they_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path(), "127.0.0.1:0");
    let mut config = Config::dev();
    config.pod.listen.set_port(0);
    config.control.store = atoll::pod::config::Store::Served;
    config.control.address = server.address();
    let store = atoll::pod::open_state(&config).expect("starts");
    STORE.set(store.clone()).expect("once");
    let start = || Pod::builder().config(config.clone()).entity::<LedgerEntity>(EntityOptions::default()).start();
    for run in 1..=2_u64 {
        let pod = start().expect("starts");
        let ledgers = pod.messenger::<LedgerRef>();
        for entity in ["a", "b", "c"] {
            let ledger = ledgers.entity(entity);
            for id in 0..10 {
                block_on(ledger.deposit(format!("{run}-{id}"), 1)).expect("deposited");
            }
            // Repeated: the id was seen.
            assert_eq!(block_on(ledger.deposit(format!("{run}-0"), 1)), Ok(10 * run));
        }
        pod.stop();
    }
    let saved = block_on(store.get("ledger/a")).expect("answered").expect("saved");
    assert_eq!(number(&saved.value), 20);
    assert!(saved.token > 0);
}
