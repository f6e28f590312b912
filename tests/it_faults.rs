//! Three pods under open load while they are killed, stopped, started and paused, with and without a manager that is
//! killed in the middle. Each test asks the state store and every single ask what became of it.
//!
//! `ATOLL_CLUSTER_ROUNDS` is the number of kills and stops of each test.
#![cfg(feature = "runtime")]

mod support;

#[path = "faults/cluster.rs"]
#[allow(dead_code)]
mod cluster;
#[path = "faults/load.rs"]
#[allow(dead_code)]
mod load;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::*;
use load::*;

/// One at a time: each has times to keep.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a test does its worst, and what a machine that runs other tests may add to a failover.
fn rounds() -> (usize, Duration) {
    match std::env::var("ATOLL_CLUSTER_ROUNDS") {
        Ok(rounds) => (rounds.parse().expect("a number"), Duration::ZERO),
        Err(_) => (2, Duration::from_secs(2)),
    }
}

fn kills(with_manager: bool) {
    let _alone = alone();
    let mut cluster = Cluster::start(stock_pod);
    // It knows the first pod, which is killed first.
    let client = cluster.client_of(0);
    until_balanced(&client);
    let load = Load::start(&client);
    let (rounds, allowance) = rounds();
    let mut failovers = Vec::new();
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(300));
        let mut since = Instant::now();
        cluster.kill_pod(round % PODS);
        if with_manager {
            std::thread::sleep(Duration::from_millis(300));
            cluster.restart_manager();
            // It cannot know for how long it was away: every lease has its whole time again.
            since = Instant::now();
        }
        let failover = until_all_shards_serve(&client) - since;
        failovers.push(failover);
        cluster.start_pod(round % PODS);
        until_balanced(&client);
    }
    let audit = audit(&cluster.state(), &load.finish());
    println!("failovers {failovers:?}, {:?}", cluster.statistics());
    audit.assert_nothing_lost();
    for failover in failovers {
        assert!(failover <= FAILOVER_MAX + allowance, "{failover:?}");
    }
}

#[test]
fn what_a_killed_pod_answered_is_stored_and_its_shards_serve_again() {
    kills(false);
}

#[test]
fn the_same_with_a_manager_that_is_killed_in_the_middle() {
    kills(true);
}

fn stops(with_manager: bool) {
    let _alone = alone();
    let mut cluster = Cluster::start(stock_pod);
    let client = cluster.client_of(0);
    until_balanced(&client);
    let load = Load::start(&client);
    for round in 0..rounds().0 {
        std::thread::sleep(Duration::from_millis(200));
        cluster.stop_pod(round % PODS, |cluster| {
            if with_manager {
                cluster.restart_manager();
            }
        });
        until_all_shards_serve(&client);
        cluster.start_pod(round % PODS);
        if with_manager {
            cluster.restart_manager();
        }
        until_balanced(&client);
    }
    let audit = audit(&cluster.state(), &load.finish());
    println!("{:?}", cluster.statistics());
    audit.assert_nothing_failed();
}

#[test]
fn no_ask_fails_and_nothing_is_repeated_while_pods_stop_and_join() {
    stops(false);
}

#[test]
fn no_ask_fails_while_pods_stop_and_join_and_the_manager_is_killed() {
    stops(true);
}
