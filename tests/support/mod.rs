//! What the tests over real sockets share: pods as processes and in this process, a peer that writes its own bytes,
//! and ways to wait for a condition.
//!
//! Invariants: nothing here waits longer than [`PATIENCE`]; a process that was started is killed when its handle is
//! dropped; no test depends on how fast anything is.
#![allow(dead_code, unused_imports)]

pub mod counting;
mod pod_process;
mod raw_link;
mod waiting;

pub use pod_process::*;
pub use raw_link::*;
pub use waiting::*;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use atoll::base::CoreIndex;
use atoll::pod::config::Cores as CoreCount;
use atoll::services::echo::EchoRef;
use atoll::wire::Inspect;
use atoll::{Client, Config, Pod};

/// Longest time that any condition is awaited: far beyond what a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A pod for tests: some unpinned cores, a free port.
pub fn config(cores: u16) -> Config {
    let mut config = Config::dev();
    config.pod.cores = CoreCount::Count(cores);
    config.pod.listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    config
}

/// An id whose entity lives on that core of the pod; different for each `n`.
pub fn id_on(pod: &Pod, core: u16, n: usize) -> String {
    let table = pod.assignments();
    let on_core = |id: &String| table.owner(pod.shard_of(id)).is_some_and(|owner| owner.core == CoreIndex(core));
    (0..100_000).map(|at| format!("e{at}")).filter(on_core).nth(n).expect("each core owns shards")
}

/// The counters of a pod, as operators see them.
pub fn counters(client: &Client) -> serde_json::Value {
    serde_json::from_str(&client.inspect(Inspect::Counters, PATIENCE).unwrap()).unwrap()
}

/// A counter, summed over the cores.
pub fn sum_of(counters: &serde_json::Value, name: &str) -> u64 {
    counters["cores"].as_array().unwrap().iter().map(|core| core[name].as_u64().unwrap()).sum()
}

/// How many links were closed for a reason.
pub fn refused(counters: &serde_json::Value, reason: &str) -> u64 {
    let cores = counters["cores"].as_array().unwrap().iter();
    cores.map(|core| core["links_refused"][reason].as_u64().unwrap_or(0)).sum()
}

/// A client that asks one thing after the other on its own thread, and expects every ask to succeed.
pub struct SteadyClient {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl SteadyClient {
    pub fn start(address: SocketAddr) -> SteadyClient {
        let client = Client::connect([address]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let echoes = client.messenger::<EchoRef>();
            let mut asked = 0;
            // At least one, however short the test is.
            while asked == 0 || !stopped.load(Ordering::Relaxed) {
                asked += 1;
                let echo = echoes.entity(&format!("steady{}", asked % 7));
                assert_eq!(block_on(echo.echo(vec![asked as u8; 100])), Ok(vec![asked as u8; 100]), "ask {asked}");
            }
            asked
        });
        SteadyClient { stop, thread: Some(thread) }
    }

    /// Ends it; every ask that it made must have succeeded, and there must have been some.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let asked = self.thread.take().unwrap().join().expect("another client's asks go on succeeding");
        assert!(asked > 0);
    }
}

impl Drop for SteadyClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
