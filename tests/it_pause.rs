//! A pod that is paused for longer than its lease and goes on: nothing that it still holds may have an effect.
#![cfg(feature = "runtime")]

mod support;

#[path = "faults/cluster.rs"]
#[allow(dead_code)]
mod cluster;
#[path = "faults/load.rs"]
#[allow(dead_code)]
mod load;
#[path = "faults/probe.rs"]
mod probe;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll::Client;
use atoll::base::CoreIndex;
use cluster::*;
use load::*;
use probe::*;
use support::*;

/// The pod that is paused. The client has never spoken to it first.
const PAUSED: usize = 1;

/// In a child process of these tests this is a pod; otherwise it is nothing.
#[test]
fn a_pod_of_these_tests() {
    run_if_asked();
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reply: the entity, and the token of the owner that answered.
type Replies = Arc<Mutex<Vec<(String, u64)>>>;

/// Asks every entity, and notes the replies in the order in which they arrive. Every second one can be asked for an
/// answer that takes its time, so that the others are idle.
fn ask_all(client: &Client, replies: &Replies, some_slowly: bool) {
    for (at, id) in id_in_each_shard().into_iter().enumerate() {
        let slowly = some_slowly && at % 2 == 0;
        let (replies, probe) = (Arc::clone(replies), client.messenger::<ProbeRef>().timeout(PATIENCE).entity(&id));
        let ask = move || async move {
            let answer = if slowly { probe.touch_slowly(500).await } else { probe.touch().await };
            replies.lock().unwrap().push((id, answer.expect("an answer")[0]));
        };
        client.spawn_on(CoreIndex(0), ask).unwrap();
    }
}

fn until_answered(replies: &Replies, count: usize) {
    until("all are answered", || (replies.lock().unwrap().len() >= count).then_some(()));
}

/// The first of these whose token is older than one before it, for the same entity.
fn backwards<'a>(tokens: impl IntoIterator<Item = (&'a str, u64)>) -> Option<String> {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    tokens.into_iter().find_map(|(entity, token)| {
        let newest = newest.entry(entity).or_default();
        let is_old = token < *newest;
        *newest = token.max(*newest);
        is_old.then(|| format!("{entity}: the owner with token {token} after the one with {newest}"))
    })
}

#[test]
fn the_oracle_sees_an_old_owner() {
    assert!(backwards([("a", 1), ("b", 7), ("a", 2), ("a", 2)]).is_none());
    assert!(backwards([("a", 1), ("a", 2), ("b", 1), ("a", 1)]).is_some());
}

fn pause(with_manager: bool) {
    let _alone = alone();
    let mut cluster = Cluster::start(probe_pod);
    let directory = cluster.directory.path().to_owned();
    let client = cluster.client_of(0);
    until_balanced(&client);
    let load = Load::start(&client);
    let shards = SHARDS as usize;
    let replies: Replies = Arc::default();
    ask_all(&client, &replies, false);
    until_answered(&replies, shards);
    let before = uid_of(&client, cluster.address(PAUSED)).expect("it is registered");
    let rejected_before = cluster.statistics().stale_rejections;

    // Handlers that are in progress, messages that wait, writes that are on their way: all of the pod that is paused.
    ask_all(&client, &replies, true);
    ask_all(&client, &replies, false);
    let writers = client.messenger::<ProbeRef>();
    run_on(&client, 0, move || async move {
        let ids = id_in_each_shard();
        for answer in all(ids.iter().map(|id| writers.entity(id).write_later(1000))).await {
            answer.unwrap();
        }
    });
    ask_all(&client, &replies, true);
    std::thread::sleep(Duration::from_millis(50));
    cluster.pod(PAUSED).freeze();
    // These are in its socket when it goes on.
    ask_all(&client, &replies, false);
    if with_manager {
        std::thread::sleep(Duration::from_millis(500));
        cluster.restart_manager();
    }
    until_all_shards_serve(&client);
    ask_all(&client, &replies, false);
    until_answered(&replies, 6 * shards);
    cluster.pod(PAUSED).signal("CONT");
    ask_all(&client, &replies, false);

    let after =
        until("it is registered again", || uid_of(&client, cluster.address(PAUSED)).filter(|uid| *uid != before));
    println!("{before} is {after} now");
    until_balanced(&client);
    ask_all(&client, &replies, false);
    until_answered(&replies, 8 * shards);
    let late = |what: &str| lines(&directory).iter().filter(|line| line.what == what).count();
    until("all late writes have ended", || (late("written") + late("refused") == shards).then_some(()));

    let audit = audit(&cluster.state(), &load.finish());
    audit.assert_nothing_lost();
    let lines = lines(&directory);
    let handlers = lines.iter().filter(|line| line.what == "handler");
    assert_eq!(backwards(handlers.map(|line| (line.entity.as_str(), line.token))), None, "{}", cluster.logs());
    let replies = replies.lock().unwrap();
    assert_eq!(backwards(replies.iter().map(|(entity, token)| (entity.as_str(), *token))), None);
    let rejected = cluster.statistics().stale_rejections - rejected_before;
    println!("{rejected} stale writes refused, {} written", late("written"));
    assert!(late("refused") > 0 && rejected >= late("refused") as u64);
}

#[test]
fn a_paused_pod_does_nothing_after_its_lease_and_joins_as_a_new_incarnation() {
    pause(false);
}

#[test]
fn the_same_with_a_manager_that_is_killed_in_the_middle() {
    pause(true);
}
