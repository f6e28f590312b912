//! A manager and three pods as processes, which a test kills, stops, pauses and starts again.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use atoll::base::hash::{entity_hash, shard_of_hash};
use atoll::services::echo::EchoRef;
use atoll::stores::state::StateStatistics;
use atoll::wire::Inspect;
use atoll::{Client, StateStore};
use serde_json::Value;

use crate::support::*;

pub const PODS: usize = 3;
pub const SHARDS: u32 = 48;
/// Time to live of the leases: the shortest that is allowed.
pub const TTL: Duration = Duration::from_secs(2);
/// Within this time after a kill all shards serve again.
pub const FAILOVER_MAX: Duration = Duration::from_secs(3);

/// What makes a pod: takes its flags.
pub type MakePod = fn(&Path, &[String]) -> Command;

/// The program itself.
pub fn stock_pod(_: &Path, flags: &[String]) -> Command {
    let mut command = atoll_command();
    command.args(["pod", "--dev"]).args(flags);
    command
}

pub struct Cluster {
    manager_address: String,
    addresses: Vec<String>,
    make: MakePod,
    // Dropped, and so killed, in this order.
    pods: Vec<Option<PodProcess>>,
    manager: Option<PodProcess>,
    pub directory: tempfile::TempDir,
}

impl Cluster {
    pub fn start(make: MakePod) -> Cluster {
        let mut cluster = Cluster {
            manager_address: lasting_address(),
            addresses: (0..PODS).map(|_| lasting_address()).collect(),
            make,
            pods: (0..PODS).map(|_| None).collect(),
            manager: None,
            directory: tempfile::tempdir().unwrap(),
        };
        cluster.start_manager();
        (0..PODS).for_each(|pod| cluster.start_pod(pod));
        cluster
    }

    pub fn start_manager(&mut self) {
        let directory = self.directory.path().join("manager");
        let started = until("the manager starts", || {
            let mut command = atoll_command();
            command.args(["manager", "--listen", &self.manager_address, "--data-directory"]).arg(&directory);
            PodProcess::try_start(command)
        });
        self.manager = Some(started);
    }

    pub fn kill_manager(&mut self) {
        let mut manager = self.manager.take().expect("it runs");
        manager.signal("KILL");
        manager.wait();
    }

    /// As a crash that an operator mends at once. Returns when it runs again.
    pub fn restart_manager(&mut self) {
        self.kill_manager();
        std::thread::sleep(Duration::from_millis(200));
        self.start_manager();
    }

    pub fn start_pod(&mut self, pod: usize) {
        let keys = [
            format!("control.lease_ttl={}ms", TTL.as_millis()),
            "control.rebalance_interval=200ms".to_owned(),
            "control.rebalance_rate_per_mille=1000".to_owned(),
            format!("sharding.number_of_shards={SHARDS}"),
        ];
        let mut flags = vec!["--store".to_owned(), self.manager_address.clone()];
        flags.extend(["--listen".to_owned(), self.addresses[pod].clone()]);
        flags.extend(keys.into_iter().flat_map(|key| ["--set".to_owned(), key]));
        let (make, directory) = (self.make, self.directory.path());
        let started = until("the pod's port is free", || PodProcess::try_start(make(directory, &flags)));
        self.pods[pod] = Some(started);
    }

    pub fn pod(&self, pod: usize) -> &PodProcess {
        self.pods[pod].as_ref().expect("it runs")
    }

    /// SIGKILL.
    pub fn kill_pod(&mut self, pod: usize) {
        let mut killed = self.pods[pod].take().expect("it runs");
        killed.signal("KILL");
        killed.wait();
    }

    /// SIGTERM, and the pod ends in order.
    pub fn stop_pod(&mut self, pod: usize, meanwhile: impl FnOnce(&mut Cluster)) {
        let mut stopped = self.pods[pod].take().expect("it runs");
        stopped.signal("TERM");
        meanwhile(self);
        assert_eq!(stopped.wait().code(), Some(0), "{}", stopped.log());
    }

    pub fn address(&self, pod: usize) -> &str {
        &self.addresses[pod]
    }

    /// A client that knows one pod at first.
    pub fn client_of(&self, pod: usize) -> Client {
        Client::connect([self.address(pod)]).unwrap()
    }

    pub fn state(&self) -> StateStore {
        StateStore::served(self.manager_address.parse().unwrap(), PATIENCE).unwrap()
    }

    pub fn statistics(&self) -> StateStatistics {
        block_on(self.state().statistics()).unwrap()
    }

    /// All logs, for a message.
    pub fn logs(&self) -> String {
        let pods = self.pods.iter().enumerate().filter_map(|(at, pod)| Some((at, pod.as_ref()?)));
        pods.map(|(at, pod)| format!("--- pod {at} ---\n{}\n", pod.log())).collect()
    }
}

/// The registered pods, by whichever pod answers.
pub fn registered(client: &Client) -> Option<Vec<Value>> {
    let answer = client.inspect(Inspect::Pods, Duration::from_secs(1)).ok()?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    answer["pods"].as_array().cloned()
}

/// The uid of the pod at an address.
pub fn uid_of(client: &Client, address: &str) -> Option<String> {
    let pods = registered(client)?;
    Some(pods.iter().find(|pod| pod["address"] == address)?["uid"].as_str()?.to_owned())
}

/// Waits until all pods have their share.
pub fn until_balanced(client: &Client) {
    until("each pod has its share of the shards", || {
        let pods = registered(client)?;
        let share = u64::from(SHARDS) / PODS as u64;
        (pods.len() == PODS && pods.iter().all(|pod| pod["shards"] == share)).then_some(())
    });
}

/// An id in each shard.
pub fn id_in_each_shard() -> Vec<String> {
    let in_shard = |shard: u32| {
        let mut ids = (0..).map(|n| format!("probe{n}"));
        ids.find(|id| shard_of_hash(entity_hash(0, id.as_bytes()), SHARDS).0 == shard).expect("ids go on for ever")
    };
    (0..SHARDS).map(in_shard).collect()
}

/// Asks an entity of every shard at once, and waits until all have answered.
pub fn until_all_shards_serve(client: &Client) -> Instant {
    let echoes = client.messenger::<EchoRef>().timeout(PATIENCE);
    run_on(client, 0, move || async move {
        let ids = id_in_each_shard();
        let answers = all(ids.iter().map(|id| echoes.entity(id).total())).await;
        for (id, answer) in ids.iter().zip(answers) {
            assert!(answer.is_ok(), "{id}: {answer:?}");
        }
    });
    Instant::now()
}
