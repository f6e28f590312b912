//! The embedded store over restarts, and as the lock of its data directory.
#![cfg(feature = "runtime")]

use std::path::Path;
use std::time::Duration;

use atoll::base::Nanos;
use atoll::base::{PodUid, ShardId};
use atoll::control::store::{
    KeyValue, LeaseId, Operation, Revision, Store, StoreEvent, StoreRequest, StoreResponse, Transaction, WatchId,
};
use atoll::control::store_state::LeaseMode;
use atoll::control::{ControlConfig, ControlDriver, ControlNotice, PodControl, Refusal, StartError};
use atoll::stores::embedded::FILE_NAME;
use atoll::stores::{EmbeddedStore, OpenError};

fn put(store: &mut EmbeddedStore, key: &str, lease: Option<LeaseId>) -> Revision {
    let operations = vec![Operation::Put { key: key.into(), value: b"v".to_vec(), lease }];
    let request = StoreRequest::Transaction(Transaction { compares: Vec::new(), operations });
    match store.handle(request, Nanos(1)) {
        StoreResponse::Transaction { succeeded: true, revision } => revision,
        other => panic!("{other:?}"),
    }
}

fn records(store: &mut EmbeddedStore) -> Vec<KeyValue> {
    match store.handle(StoreRequest::Range { prefix: String::new(), after: None, limit: 100 }, Nanos(1)) {
        StoreResponse::Range { records, .. } => records,
        other => panic!("{other:?}"),
    }
}

fn keys(store: &mut EmbeddedStore) -> Vec<String> {
    records(store).into_iter().map(|record| record.key).collect()
}

fn grant(store: &mut EmbeddedStore) -> LeaseId {
    match store.handle(StoreRequest::GrantLease { ttl: Duration::from_secs(2) }, Nanos(1)) {
        StoreResponse::Lease { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_outlive_a_restart_and_those_under_a_lease_do_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = EmbeddedStore::open(directory.path()).expect("opens");
    let lease = grant(&mut store);
    put(&mut store, "kept", None);
    put(&mut store, "leased", Some(lease));
    put(&mut store, "was kept", None);
    put(&mut store, "was kept", Some(lease));
    put(&mut store, "was leased", Some(lease));
    put(&mut store, "was leased", None);
    let before: Vec<KeyValue> = records(&mut store).into_iter().filter(|record| record.lease.is_none()).collect();
    assert_eq!(before.len(), 2);
    drop(store);
    let mut store = EmbeddedStore::open(directory.path()).expect("opens again");
    assert_eq!(records(&mut store), before);
    let renewed = store.handle(StoreRequest::RenewLease { lease }, Nanos(1));
    assert!(matches!(renewed, StoreResponse::Failed(_)));
}

#[test]
fn revisions_and_leases_are_never_given_out_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut last, mut last_lease) = (Revision(0), LeaseId(0));
    for _ in 0..3 {
        let mut store = EmbeddedStore::open(directory.path()).expect("opens");
        for _ in 0..3 {
            let lease = grant(&mut store);
            // Only leased records: nothing else of them is on the disk.
            let revision = put(&mut store, "leased", Some(lease));
            assert!(revision > last && lease > last_lease, "{revision:?} after {last:?}");
            (last, last_lease) = (revision, lease);
        }
    }
}

#[test]
fn a_watch_from_before_a_restart_has_a_gap() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = EmbeddedStore::open(directory.path()).expect("opens");
    let revision = put(&mut store, "a", None);
    drop(store);
    let mut store = EmbeddedStore::open(directory.path()).expect("opens again");
    let watch = WatchId(1);
    store.handle(StoreRequest::Watch { watch, prefix: String::new(), from: revision.next() }, Nanos(1));
    let mut events = Vec::new();
    store.poll_events(Nanos(1), &mut events);
    assert_eq!(events, [StoreEvent::Gap { watch }]);
}

#[test]
fn a_served_store_keeps_leases_over_a_restart_and_gives_them_their_whole_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || EmbeddedStore::open_with(directory.path(), LeaseMode::Expiring).expect("opens");
    let mut store = open();
    let lease = grant(&mut store);
    put(&mut store, "leased", Some(lease));
    drop(store);
    let mut store = open();
    assert_eq!(keys(&mut store), ["leased"]);
    for ms in (0..1900).step_by(100) {
        store.poll_events(Nanos(1) + Duration::from_millis(ms), &mut Vec::new());
    }
    let renewed = store.handle(StoreRequest::RenewLease { lease }, Nanos(1) + Duration::from_millis(1950));
    assert!(matches!(renewed, StoreResponse::Lease { .. }));
    drop(store);
    let mut store = EmbeddedStore::open(directory.path()).expect("opens for one pod");
    assert!(keys(&mut store).is_empty());
}

#[test]
fn a_second_user_of_a_directory_is_told_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let _first = EmbeddedStore::open(directory.path()).expect("opens");
    let error = EmbeddedStore::open(directory.path()).expect_err("in use");
    assert!(matches!(error, OpenError::InUse { .. }));
    let text = error.to_string();
    assert!(text.contains(&directory.path().display().to_string()) && text.contains("--data-dir"), "{text}");
}

#[test]
fn what_is_not_a_usable_directory_is_said_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let not_a_directory = directory.path().join("file");
    std::fs::write(&not_a_directory, "x").expect("written");
    assert!(matches!(EmbeddedStore::open(&not_a_directory), Err(OpenError::Directory { .. })));
    let foreign = directory.path().join("foreign");
    std::fs::create_dir(&foreign).expect("created");
    std::fs::write(foreign.join(FILE_NAME), "not ours, but long enough to be looked at".repeat(300)).expect("written");
    let error = EmbeddedStore::open(&foreign).expect_err("foreign");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

fn start(directory: &Path, uid: u128, change: impl FnOnce(&mut ControlConfig)) -> Result<Started, StartError> {
    let mut config = ControlConfig::new(PodUid(uid), "127.0.0.1:7500", 2);
    config.number_of_shards = 130;
    change(&mut config);
    let control = PodControl::new(config)?;
    let store = EmbeddedStore::open(directory).expect("opens");
    let mut driver = ControlDriver::new(control, store);
    let mut now = Nanos(1);
    let mut clock = || {
        now = now + Duration::from_millis(1);
        now
    };
    let table = driver.start(&mut clock, &mut |_| (), Nanos(1) + Duration::from_secs(10))?;
    Ok((driver, table))
}

type Started = (ControlDriver<EmbeddedStore>, std::sync::Arc<atoll::sharding::ShardTable>);

#[test]
fn a_pod_owns_all_shards_at_its_start_and_its_tokens_grow_over_restarts() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut last = Default::default();
    for uid in 1..4 {
        let (mut driver, table) = start(directory.path(), uid, |_| ()).expect("starts");
        let owners: Vec<_> = (0..130).filter_map(|shard| table.owner(ShardId(shard))).collect();
        assert_eq!(owners.len(), 130);
        assert!(owners.iter().all(|owner| table.pod(owner.pod).is_some_and(|pod| pod.uid == PodUid(uid))));
        assert!(owners.iter().all(|owner| owner.token > last));
        assert_eq!(owners.iter().filter(|owner| owner.core.0 == 0).count(), 65);
        last = owners.iter().map(|owner| owner.token).max().expect("some");
        if uid == 2 {
            let notices = driver.stop(&mut || Nanos::NEVER);
            assert_eq!(notices.last(), Some(&ControlNotice::Stopped));
        }
        // The others end without a goodbye.
    }
}

#[test]
fn a_data_directory_of_another_cluster_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(start(directory.path(), 1, |_| ()).expect("starts"));
    let other_cluster = start(directory.path(), 2, |config| config.cluster = "other".into());
    assert!(matches!(other_cluster, Err(StartError::Refused(Refusal::OtherCluster { .. }))));
    let other_shards = start(directory.path(), 3, |config| config.number_of_shards = 64);
    let Err(StartError::Refused(refusal)) = other_shards else { panic!("refused") };
    assert_eq!(refusal, Refusal::OtherNumberOfShards { role: "default".into(), stored: 130, configured: 64 });
    assert!(refusal.to_string().contains("130"));
    let other_seed = start(directory.path(), 4, |config| config.hash_seed = 5);
    assert!(matches!(other_seed, Err(StartError::Refused(Refusal::OtherHashSeed { .. }))));
}
