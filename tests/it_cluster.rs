//! Several pods on one served store: who owns what when pods join, stop, lose their lease, and are ordered about.
#![cfg(feature = "runtime")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll::base::{PodUid, ShardId};
use atoll::control::Refusal;
use atoll::control::store::{Store as _, StoreRequest, StoreResponse};
use atoll::pod::config::Store;
use atoll::pod::{PodBuilder, RegisteredPod, StartError};
use atoll::runtime::boot_time;
use atoll::services::echo::{EchoEntity, EchoRef};
use atoll::stores::ServedStore;
use atoll::stores::served::{ServerOptions, StoreServer};
use atoll::wire::control::JsonCall;
use atoll::wire::{Inspect, JsonOutcome};
use atoll::{Client, Config, Entity, EntityId, EntityOptions, Pod, Scope};
use serde_json::Value;
use support::*;

const SHARDS: u32 = 64;

/// A store for several pods of this process.
struct Cluster {
    server: StoreServer,
    _directory: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = ServerOptions::new(listen, directory.path().to_owned(), Arc::new(boot_time));
        Cluster { server: StoreServer::start(options).unwrap(), _directory: directory }
    }

    fn config(&self) -> Config {
        let mut config = config(1);
        config.control.store = Store::Served;
        config.control.address = self.server.address();
        config.control.lease_ttl = Duration::from_secs(2);
        config.control.rebalance_interval = Duration::from_millis(200);
        config.control.rebalance_rate_per_mille = 1000;
        config.sharding.number_of_shards = SHARDS;
        config
    }

    fn builder(&self) -> PodBuilder {
        Pod::builder().config(self.config()).entity::<EchoEntity>(EntityOptions::default())
    }

    fn pod(&self) -> Pod {
        self.builder().start().unwrap()
    }
}

fn owned(pod: &Pod, uid: PodUid) -> usize {
    let table = pod.assignments();
    let at = table.pod_index_of(uid);
    table.owners().iter().filter(|owner| Some(owner.pod) == at).count()
}

/// Whether a pod knows that all shards are owned, evenly by these pods.
fn is_shared_by(seen_by: &Pod, pods: &[&Pod]) -> bool {
    let share = SHARDS as usize / pods.len();
    pods.iter().all(|pod| owned(seen_by, pod.uid()) == share)
}

fn until_shared_by(pods: &[&Pod]) {
    until("each pod has its share", || pods.iter().all(|pod| is_shared_by(pod, pods)).then_some(()));
}

fn ask(client: &Client, question: Inspect) -> Value {
    serde_json::from_str(&client.inspect(question, PATIENCE).unwrap()).unwrap()
}

fn done(client: &Client, question: Inspect) -> Value {
    let answer = ask(client, question);
    assert!(answer["error"].is_null(), "{answer}");
    answer
}

fn registered(seen_by: &Pod, uid: PodUid) -> Option<RegisteredPod> {
    seen_by.registered_pods().into_iter().find(|pod| pod.uid == uid)
}

#[test]
fn a_pod_that_joins_gets_its_share_and_one_that_stops_hands_it_over_before_it_goes() {
    let cluster = Cluster::new();
    let one = cluster.pod();
    assert_eq!(owned(&one, one.uid()), SHARDS as usize);
    let two = cluster.pod();
    until_shared_by(&[&one, &two]);
    let uid = two.uid();
    two.stop();
    // Nothing is left to wait for: neither the lease of the stopped pod nor the next round.
    until("the other pod knows", || (owned(&one, one.uid()) == SHARDS as usize).then_some(()));
    until("its registration is gone", || registered(&one, uid).is_none().then_some(()));
    let (pods, registered) = (one.pods(), one.registered_pods());
    assert_eq!((pods.len(), registered.len()), (1, 1));
    assert_eq!((pods[0].uid, pods[0].shards, pods[0].manager), (one.uid(), SHARDS, true));
}

#[test]
fn the_manager_may_stop_too_and_the_last_pod_waits_for_nobody() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.pod(), cluster.pod());
    until_shared_by(&[&one, &two]);
    one.stop();
    until("the other pod knows", || (owned(&two, two.uid()) == SHARDS as usize).then_some(()));
    two.stop();
}

#[test]
fn a_pod_whose_lease_is_lost_joins_again_as_a_new_incarnation() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.pod(), cluster.pod());
    until_shared_by(&[&one, &two]);
    let before = two.uid();
    let mut admin = ServedStore::start(cluster.server.address(), PATIENCE).unwrap();
    admin.wait_connected(PATIENCE).unwrap();
    let prefix = "/atoll/atoll/v1/pod/".to_owned();
    let range = StoreRequest::Range { prefix, after: None, limit: 10 };
    let StoreResponse::Range { records, .. } = admin.handle(range, boot_time()) else { panic!("no records") };
    let record = records.iter().find(|record| record.key.ends_with(&before.to_string())).unwrap();
    admin.handle(StoreRequest::RevokeLease { lease: record.lease.unwrap() }, boot_time());
    until("a new incarnation", || (two.uid() != before).then_some(()));
    until_shared_by(&[&one, &two]);
    assert!(registered(&one, before).is_none());
    let client = Client::connect([one.address()]).unwrap();
    let echoes = client.messenger::<EchoRef>();
    for n in 0..20 {
        let answer = block_on(async { echoes.entity(&format!("e{n}")).echo(vec![7]).await });
        assert_eq!(answer, Ok(vec![7]));
    }
}

#[test]
fn no_ask_fails_while_pods_join_and_stop() {
    let cluster = Cluster::new();
    let one = cluster.pod();
    let steady = SteadyClient::start(one.address());
    for _ in 0..3 {
        let two = cluster.pod();
        until_shared_by(&[&one, &two]);
        two.stop();
        until("the other pod knows", || (owned(&one, one.uid()) == SHARDS as usize).then_some(()));
    }
    steady.finish();
}

#[atoll::protocol(json)]
pub trait Register {
    async fn enter(&mut self, number: u64) -> u64;
}

/// Writes down each call that it handles.
struct RegisterEntity;

/// What was handled, by all pods of this process.
static ENTERED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

impl Entity for RegisterEntity {
    type Protocol = RegisterProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, atoll::StartError> {
        Ok(RegisterEntity)
    }
}

impl Register for RegisterEntity {
    async fn enter(&mut self, number: u64) -> u64 {
        ENTERED.lock().unwrap().push(number);
        // So that a shard is asked back while some of its calls are in progress.
        atoll::entity::sleep(Duration::from_micros(number % 3 * 500)).await;
        number
    }
}

/// Calls entities in JSON, one after another, until told to stop. Returns how many.
fn enter_in_json(client: &Client, first: u64, step: u64, over: &AtomicBool) -> u64 {
    let mut numbers = (0..).map(|round| first + round * step);
    while !over.load(Ordering::Relaxed) {
        let number = numbers.next().unwrap();
        let call = JsonCall {
            entity_type: "register".to_owned(),
            entity_id: format!("r{}", number % 509),
            method: "enter".to_owned(),
            body: format!(r#"{{"number":{number}}}"#),
            timeout_ms: 0,
        };
        assert_eq!(client.call_json(call, PATIENCE), Ok(JsonOutcome::Reply(number.to_string())));
    }
    (numbers.next().unwrap() - first) / step
}

/// Ends callers also when the test fails, which waits for them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_call_in_json_fails_or_runs_twice_while_pods_join_and_stop() {
    const CALLERS: u64 = 4;
    let cluster = Cluster::new();
    let pod = || cluster.builder().entity::<RegisterEntity>(EntityOptions::default()).start().unwrap();
    let one = pod();
    let client = Client::connect([one.address()]).unwrap();
    let over = AtomicBool::new(false);
    let calls: Vec<u64> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|first| (first, &client, &over))
            .map(|(first, client, over)| scope.spawn(move || enter_in_json(client, first, CALLERS, over)))
            .collect();
        let ends = Ends(&over);
        for _ in 0..3 {
            let two = pod();
            until_shared_by(&[&one, &two]);
            two.stop();
            until("the other pod knows", || (owned(&one, one.uid()) == SHARDS as usize).then_some(()));
        }
        drop(ends);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(calls.iter().all(|calls| *calls > 25), "{calls:?} calls");
    let sent = |first: u64| (0..calls[first as usize]).map(move |round| first + round * CALLERS);
    let mut answered: Vec<u64> = (0..CALLERS).flat_map(sent).collect();
    let mut entered = ENTERED.lock().unwrap().clone();
    answered.sort_unstable();
    entered.sort_unstable();
    assert_eq!(entered, answered);
}

#[test]
fn orders_are_taken_by_any_pod() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.pod(), cluster.pod());
    until_shared_by(&[&one, &two]);
    let client = Client::connect([one.address()]).unwrap();
    let address = two.address().to_string();

    let drained = done(&client, Inspect::Drain { pod: address.clone() });
    assert_eq!((&drained["done"], &drained["pod"]), (&"draining".into(), &Value::from(address.clone())));
    until("the drained pod has no shard", || (owned(&two, one.uid()) == SHARDS as usize).then_some(()));
    assert_eq!(registered(&two, two.uid()).unwrap().status(), "draining");

    done(&client, Inspect::Uncordon { pod: two.uid().to_string()[..8].to_owned() });
    until_shared_by(&[&one, &two]);

    done(&client, Inspect::Cordon { pod: address });
    until("both know", || (registered(&one, two.uid())?.status() == "cordoned").then_some(()));
    assert!(is_shared_by(&one, &[&one, &two]), "a cordoned pod keeps what it has");
    let pods = ask(&client, Inspect::Pods);
    let states: Vec<&str> = pods["pods"].as_array().unwrap().iter().map(|pod| pod["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active", "cordoned"]);

    let unknown = ask(&client, Inspect::Drain { pod: "10.9.9.9:1".into() });
    assert!(unknown["error"].as_str().unwrap().starts_with("there is no pod `10.9.9.9:1`; there are: "), "{unknown}");
}

#[test]
fn a_round_of_rebalancing_can_be_seen_before_and_ordered() {
    let cluster = Cluster::new();
    let with_long_interval = || {
        let mut config = cluster.config();
        config.control.rebalance_interval = Duration::from_secs(3600);
        config.control.rebalance_rate_per_mille = 125;
        cluster.builder().config(config).start().unwrap()
    };
    let (one, two) = (with_long_interval(), with_long_interval());
    let client = Client::connect([one.address()]).unwrap();
    until("the first pod knows the second", || (one.registered_pods().len() == 2).then_some(()));
    for round in 0..4 {
        let shown = done(&client, Inspect::Rebalance { dry_run: true });
        assert_eq!(shown["until_balanced"], 32 - 8 * round);
        assert_eq!(shown["moves"].as_array().unwrap().len(), 8);
        let first = &shown["moves"][0];
        assert_eq!(first["from"], one.address().to_string());
        assert_eq!(first["to"], two.address().to_string());
        assert_eq!(owned(&one, two.uid()), 8 * round, "only shown");
        done(&client, Inspect::Rebalance { dry_run: false });
        until("the round is made", || (owned(&one, two.uid()) == 8 * (round + 1)).then_some(()));
    }
    assert!(done(&client, Inspect::Rebalance { dry_run: true })["moves"].as_array().unwrap().is_empty());
}

#[test]
fn a_pod_that_disagrees_about_the_shards_is_refused_with_the_reason() {
    let cluster = Cluster::new();
    let _one = cluster.pod();
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = cluster.config();
        change(&mut config);
        match cluster.builder().config(config).start() {
            Err(StartError::Refused(refusal) | StartError::Control(atoll::control::StartError::Refused(refusal))) => {
                refusal
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("not refused"),
        }
    };
    let number = refused(&|config| config.sharding.number_of_shards = 65);
    assert!(matches!(number, Refusal::OtherNumberOfShards { stored: SHARDS, configured: 65, .. }));
    assert!(matches!(refused(&|config| config.sharding.hash_seed = 7), Refusal::OtherHashSeed { .. }));
    assert!(matches!(refused(&|config| config.pod.cluster_name = "other".into()), Refusal::OtherCluster { .. }));
}

#[test]
fn shards_find_their_pods_by_role() {
    let cluster = Cluster::new();
    let one = cluster.pod();
    let mut config = cluster.config();
    config.pod.role = "map".into();
    config.pod.version = "2.1".into();
    let map = cluster.builder().config(config).start().unwrap();
    until("both are known", || (one.registered_pods().len() == 2).then_some(()));
    assert_eq!(owned(&one, one.uid()), SHARDS as usize);
    assert_eq!(owned(&map, map.uid()), SHARDS as usize);
    assert_eq!(one.assignments().role(), "default");
    assert!(one.assignments().owner(ShardId(0)).is_some());
    let seen = registered(&one, map.uid()).unwrap();
    assert_eq!((seen.role.as_str(), seen.version.as_str(), seen.address), ("map", "2.1", map.address().to_string()));
    assert_eq!(one.pods().len(), 1);
}

#[test]
fn a_stop_at_once_cuts_a_clean_stop_short() {
    let cluster = Cluster::new();
    let mut config = cluster.config();
    config.entities.termination_timeout = PATIENCE * 2;
    config.pod.drain_timeout = PATIENCE * 4;
    let pod = cluster.builder().config(config).start().unwrap();
    let client = Client::connect([pod.address()]).unwrap();
    let sleeper = std::thread::spawn(move || {
        let echo = client.messenger::<EchoRef>().entity("e");
        // No other pod could take it over, so that it ends with its timeout.
        block_on(echo.sleep(PATIENCE.as_millis() as u64 * 4).timeout(Duration::from_secs(2)))
    });
    until("the entity sleeps", || (!pod.local_entities("echo", 1).ok()?.is_empty()).then_some(()));
    let stopping = {
        let pod = pod.clone();
        std::thread::spawn(move || pod.stop())
    };
    pod.stop_now();
    stopping.join().unwrap();
    assert!(sleeper.join().unwrap().is_err());
}
