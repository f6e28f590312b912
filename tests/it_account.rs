//! The service `account`: what a reply promises, and what an owner is told that was replaced.
#![cfg(feature = "runtime")]

mod support;

use atoll::base::Token;
use atoll::services::account::{
    AccountEntity, AccountError, AccountRef, BOOKING_ID_BYTES_MAX, Booked, Statement, StoreGiven, use_store,
};
use atoll::{Client, EntityOptions, Messenger, Pod, SendError, StateStore};
use support::*;

/// One pod whose accounts keep their state in a store that the test sees too. The store is one for the process.
struct Bank {
    store: StateStore,
    accounts: Messenger<AccountRef>,
    _pod: Pod,
}

fn bank() -> &'static Bank {
    static BANK: std::sync::OnceLock<Bank> = std::sync::OnceLock::new();
    BANK.get_or_init(|| {
        let store = StateStore::embedded(None).unwrap();
        use_store(store.clone()).unwrap();
        assert_eq!(use_store(store.clone()), Err(StoreGiven));
        let pod = Pod::builder().config(config(2)).entity::<AccountEntity>(EntityOptions::default()).start().unwrap();
        Bank { store, accounts: pod.messenger(), _pod: pod }
    })
}

fn deposit(account: &str, id: &str, amount: u64) -> Result<Booked, SendError<AccountError>> {
    block_on(bank().accounts.entity(account).deposit(id.to_owned(), amount))
}

fn withdraw(account: &str, id: &str, amount: u64) -> Result<Booked, SendError<AccountError>> {
    block_on(bank().accounts.entity(account).withdraw(id.to_owned(), amount))
}

fn booked(balance: u64) -> Result<Booked, SendError<AccountError>> {
    Ok(Booked { balance, repeated: false })
}

fn stored(account: &str) -> Statement {
    let saved = block_on(bank().store.get(&format!("account/{account}"))).unwrap().expect("it is stored");
    serde_json::from_slice(&saved.value).unwrap()
}

#[test]
fn what_was_answered_is_stored() {
    assert_eq!(deposit("a", "d1", 5), booked(5));
    assert_eq!(stored("a"), Statement { balance: 5, entries: 1, repeated: 0 });
    assert_eq!(withdraw("a", "w1", 2), booked(3));
    assert_eq!(stored("a"), Statement { balance: 3, entries: 2, repeated: 0 });
    assert_eq!(block_on(bank().accounts.entity("a").balance()), Ok(3));
    assert_eq!(block_on(bank().accounts.entity("a").statement()), Ok(stored("a")));
}

#[test]
fn an_id_is_booked_once_and_the_repetition_is_counted() {
    assert_eq!(deposit("b", "d1", 5), booked(5));
    for repeated in 1..3 {
        assert_eq!(deposit("b", "d1", 5), Ok(Booked { balance: 5, repeated: true }));
        assert_eq!(stored("b"), Statement { balance: 5, entries: 1, repeated });
    }
    assert_eq!(deposit("b", "d1", 6), Err(SendError::Declared(AccountError::IdInUse)));
    assert_eq!(withdraw("b", "d1", 5), Err(SendError::Declared(AccountError::IdInUse)));
    assert_eq!(deposit("b", "d2", 1), booked(6));
    assert_eq!(deposit("c", "d1", 1), booked(1), "ids are those of one account");
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    assert_eq!(deposit("d", "d1", u64::MAX), booked(u64::MAX));
    assert_eq!(deposit("d", "d2", 1), Err(SendError::Declared(AccountError::TooMuch { balance: u64::MAX })));
    assert_eq!(withdraw("e", "w1", 1), Err(SendError::Declared(AccountError::NotEnough { balance: 0 })));
    for id in [String::new(), "x".repeat(BOOKING_ID_BYTES_MAX + 1)] {
        assert_eq!(deposit("d", &id, 0), Err(SendError::Declared(AccountError::InvalidId)));
    }
    assert_eq!(stored("d"), Statement { balance: u64::MAX, entries: 1, repeated: 0 });
}

#[test]
fn an_owner_that_was_replaced_is_refused_says_so_and_stops() {
    assert_eq!(deposit("f", "d1", 5), booked(5));
    let store = &bank().store;
    let rejected = block_on(store.statistics()).unwrap().stale_rejections;
    block_on(store.load("account/f", Token(u64::MAX))).unwrap();
    assert_eq!(deposit("f", "d2", 5), Err(SendError::Declared(AccountError::NotOwner)));
    assert!(block_on(store.statistics()).unwrap().stale_rejections > rejected);
    assert_eq!(stored("f"), Statement { balance: 5, entries: 1, repeated: 0 });
    // It starts anew and may not load either.
    let refused = until("it has stopped", || match deposit("f", "d3", 5) {
        Err(SendError::Declared(AccountError::NotOwner)) => None,
        other => Some(other),
    });
    assert_eq!(refused, Err(SendError::Cluster(atoll::ClusterError::EntityDefect)));
}

#[test]
fn a_development_pod_has_accounts_and_a_data_folder_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for round in 1..4 {
        let mut pod = PodProcess::start(&["--data-dir", folder]);
        let arguments = format!(r#"{{"id":"d{round}","amount":5}}"#);
        let output = pod.atoll(&["call", "account", "a1", "deposit", &arguments]);
        assert_eq!(out(&output), format!("{{\"balance\":{},\"repeated\":false}}\n", 5 * round), "{}", err(&output));
        pod.signal("KILL");
        pod.wait();
    }
    let pod = PodProcess::start(&[]);
    assert_eq!(out(&pod.atoll(&["call", "account", "a1", "balance"])), "0\n");
    let client = Client::connect([pod.address]).unwrap();
    assert_eq!(block_on(client.messenger::<AccountRef>().entity("a1").balance()), Ok(0));
}
