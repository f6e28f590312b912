//! The manager and the pods of a cluster run: children of this very binary.

use core::time::Duration;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use atoll::pod::config::{Config, Store};
use atoll::pod::open_state;
use atoll::runtime::boot_time;
use atoll::services::account::{AccountEntity, use_store};
use atoll::services::echo::EchoEntity;
use atoll::stores::served::{ServerOptions, StoreServer};
use atoll::{EntityOptions, Pod};

use super::entities::{self, LateWriterEntity, OwnerEntity};
use crate::arguments::{ClusterManagerArguments, ClusterPodArguments};
use crate::child::Child;

/// Shards of a cluster run: each is asked several times a second, so that a move is seen by messages in flight.
pub(super) const SHARDS: u32 = 64;
/// Pods of a cluster run.
pub(super) const PODS: usize = 3;
/// Longest time that a killed manager's port stays in use.
const PORT_PATIENCE: Duration = Duration::from_secs(10);

/// The processes.
pub(super) struct Processes {
    manager_address: SocketAddr,
    ttl: Duration,
    manager: Option<Child>,
    pods: Vec<Option<(Child, String)>>,
    directory: Directory,
}

/// Removed at the end.
struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left is a folder in the folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Processes {
    pub fn start(ttl: Duration) -> anyhow::Result<Processes> {
        let directory = std::env::temp_dir().join(format!("atoll-bench-cluster-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let manager_address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut processes = Processes {
            manager_address,
            ttl,
            manager: None,
            pods: (0..PODS).map(|_| None).collect(),
            directory: Directory(directory),
        };
        processes.start_manager()?;
        for pod in 0..PODS {
            processes.start_pod(pod)?;
        }
        Ok(processes)
    }

    pub fn start_manager(&mut self) -> anyhow::Result<()> {
        let (listen, directory) = (self.manager_address.to_string(), self.directory.0.display().to_string());
        let mut manager = Child::start(["cluster-manager", "--listen", &listen, "--data-directory", &directory])?;
        manager.line()?;
        self.manager = Some(manager);
        Ok(())
    }

    /// SIGKILL, a moment without a manager, and a new one on the same records.
    pub fn restart_manager(&mut self) -> anyhow::Result<()> {
        self.manager = None;
        std::thread::sleep(Duration::from_millis(200));
        self.start_manager()
    }

    pub fn start_pod(&mut self, pod: usize) -> anyhow::Result<()> {
        let ttl = format!("{}ms", self.ttl.as_millis());
        let mut child = Child::start(["cluster-pod", "--store", &self.manager_address.to_string(), "--ttl", &ttl])?;
        let address = child.line()?;
        self.pods[pod] = Some((child, address));
        Ok(())
    }

    /// SIGKILL.
    pub fn kill_pod(&mut self, pod: usize) {
        self.pods[pod] = None;
    }

    /// SIGTERM; the caller waits for the end.
    pub fn begin_stop(&mut self, pod: usize) -> anyhow::Result<Child> {
        let (mut child, _) = self.pods[pod].take().context("the pod does not run")?;
        child.terminate();
        Ok(child)
    }

    pub fn pause_pod(&mut self, pod: usize) {
        if let Some((child, _)) = &mut self.pods[pod] {
            child.pause();
        }
    }

    pub fn resume_pod(&mut self, pod: usize) {
        if let Some((child, _)) = &mut self.pods[pod] {
            child.resume();
        }
    }

    pub fn address(&self, pod: usize) -> Option<&str> {
        self.pods[pod].as_ref().map(|(_, address)| address.as_str())
    }

    pub fn manager_address(&self) -> SocketAddr {
        self.manager_address
    }
}

/// What the manager process does: prints a line when it serves, until it is ended.
pub fn manager(arguments: &ClusterManagerArguments) -> anyhow::Result<()> {
    let give_up = Instant::now() + PORT_PATIENCE;
    let directory: &Path = &arguments.data_directory;
    let server = loop {
        match StoreServer::start(ServerOptions::new(arguments.listen, directory.to_owned(), Arc::new(boot_time))) {
            Ok(server) => break server,
            Err(error) if Instant::now() >= give_up => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    println!("{}", server.address());
    loop {
        std::thread::park();
    }
}

/// What a pod process does: prints the address it listens on, serves until it is told to stop.
pub fn pod(arguments: &ClusterPodArguments) -> anyhow::Result<()> {
    let mut config = Config::dev();
    config.pod.listen = ([127, 0, 0, 1], 0).into();
    config.control.store = Store::Served;
    config.control.address = arguments.store;
    config.control.lease_ttl = arguments.ttl;
    config.control.rebalance_interval = Duration::from_millis(200);
    config.control.rebalance_rate_per_mille = 1000;
    config.sharding.number_of_shards = SHARDS;
    let store = open_state(&config)?;
    entities::use_store(store.clone());
    use_store(store)?;
    let pod = Pod::builder()
        .config(config)
        .entity::<AccountEntity>(EntityOptions::default())
        .entity::<EchoEntity>(EntityOptions::default())
        .entity::<OwnerEntity>(EntityOptions::default())
        .entity::<LateWriterEntity>(EntityOptions::default())
        .start()?;
    println!("{}", pod.address());
    pod.wait()?;
    Ok(())
}
