//! `atoll-bench cluster`: three pods and a manager under open load, while pods are killed, stopped, started and paused
//! and the manager is killed; and what that did to the messages.
//!
//! [`run`] puts it together; `processes` are the children, `load` the asks, `entities` what they ask, `moves` turns their
//! replies into figures, `report` prints them.

mod entities;
mod load;
mod moves;
mod processes;
mod report;

use core::future::Future;
use core::pin::pin;
use core::task::{Context as TaskContext, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Wake;
use std::time::Instant;

use anyhow::{Context, bail};
use atoll::base::CoreIndex;
use atoll::wire::Inspect;
use atoll::{Client, StateStore};

use crate::arguments::ClusterArguments;
use crate::report::ProgressLine;
use entities::{LateWriterRef, OwnerRef};
use load::{ASK_TIMEOUT, Load, id_in_each_shard};
use processes::{PODS, Processes, SHARDS};
pub use processes::{manager, pod};
pub use report::ClusterReport;

/// Longest time for the cluster to come to rest.
const REST_PATIENCE: Duration = Duration::from_secs(30);
/// Time under load before the first event and after the last.
const CALM: Duration = Duration::from_millis(500);
/// How late the writes of a paused pod are; they run when it goes on.
const LATE_WRITE_MS: u64 = 500;

/// What was done to the cluster, and in which time its moves belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A clean stop or a join.
    Planned,
    /// A kill or a pause past the lease.
    Loss,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub kind: Kind,
    pub from: Instant,
    pub to: Instant,
}

struct Run {
    processes: Processes,
    client: Client,
    events: Vec<Event>,
    failovers: Vec<Duration>,
    line: ProgressLine,
}

/// Runs the whole thing.
///
/// # Errors
/// If a process does not start, or the cluster does not come to rest.
pub fn run(arguments: &ClusterArguments) -> anyhow::Result<ClusterReport> {
    let (kills, stops) = arguments.kills_and_stops();
    let mut line = ProgressLine::new();
    line.show("starting a manager and three pods");
    let processes = Processes::start(arguments.ttl)?;
    let first = processes.address(0).context("the first pod runs")?.to_owned();
    let client = Client::connect([first])?;
    let mut run = Run { processes, client, events: Vec::new(), failovers: Vec::new(), line };
    run.until_balanced()?;
    let (started, load) = (Instant::now(), Load::start(&run.client, arguments.rate)?);
    std::thread::sleep(CALM);
    for number in 0..stops {
        run.line.show(&format!("clean stop and join {} of {stops}", number + 1));
        // In the middle, also one in which the manager is killed.
        run.stop_and_join(number as usize % PODS, false)?;
    }
    for number in 0..kills {
        run.line.show(&format!("kill {} of {kills}", number + 1));
        run.kill(number as usize % PODS)?;
    }
    run.line.show("manager killed while a pod stops");
    run.stop_and_join(0, true)?;
    run.line.show("pod paused past its lease");
    run.pause(1, arguments.ttl)?;
    std::thread::sleep(CALM);
    run.line.show("last asks");
    let asked = load.finish()?;
    let elapsed = started.elapsed();
    run.line.show("comparing replies with the store");
    let store = StateStore::served(run.processes.manager_address(), ASK_TIMEOUT)?;
    let books = load::audit(&store, &asked.deposits)?;
    let statistics = wait_for(store.statistics())?;
    run.line.clear();
    let counted = report::Counted {
        elapsed,
        stops,
        kills,
        events: run.events,
        failovers: run.failovers,
        books,
        stale_rejections: statistics.stale_rejections,
        resends: run.client.resends(),
    };
    Ok(ClusterReport::new(arguments, asked, &counted))
}

impl Run {
    fn stop_and_join(&mut self, pod: usize, manager_is_killed: bool) -> anyhow::Result<()> {
        let from = Instant::now();
        let stopping = self.processes.begin_stop(pod)?;
        if manager_is_killed {
            self.processes.restart_manager()?;
        }
        stopping.wait()?;
        self.until_all_shards_serve()?;
        self.processes.start_pod(pod)?;
        self.until_balanced()?;
        // Without a manager no shard can move, so that this is no figure of a planned move.
        let kind = if manager_is_killed { Kind::Loss } else { Kind::Planned };
        self.events.push(Event { kind, from, to: Instant::now() });
        Ok(())
    }

    fn kill(&mut self, pod: usize) -> anyhow::Result<()> {
        let from = Instant::now();
        self.processes.kill_pod(pod);
        self.until_all_shards_serve()?;
        self.failovers.push(from.elapsed());
        // The asks that waited for the new owners are answered now, too.
        std::thread::sleep(CALM);
        let served = Instant::now();
        self.events.push(Event { kind: Kind::Loss, from, to: served });
        self.processes.start_pod(pod)?;
        self.until_balanced()?;
        self.events.push(Event { kind: Kind::Planned, from: served, to: Instant::now() });
        Ok(())
    }

    fn pause(&mut self, pod: usize, ttl: Duration) -> anyhow::Result<()> {
        let from = Instant::now();
        self.of_each_shard(|client, id| async move {
            client.messenger::<LateWriterRef>().entity(&id).write_later(LATE_WRITE_MS).await.is_ok()
        })?;
        self.processes.pause_pod(pod);
        let paused = Instant::now();
        self.until_all_shards_serve()?;
        self.failovers.push(paused.elapsed());
        self.of_each_shard(|client, id| async move {
            client.messenger::<LateWriterRef>().entity(&id).claim().await.is_ok()
        })?;
        std::thread::sleep(ttl / 4);
        self.processes.resume_pod(pod);
        let back =
            |run: &Run| run.owners().is_some_and(|owners| owners.iter().filter(|shards| **shards > 0).count() == PODS);
        self.until("the paused pod is a member again", back)?;
        self.until_balanced()?;
        self.events.push(Event { kind: Kind::Loss, from, to: Instant::now() });
        Ok(())
    }

    /// Shards of each registered pod.
    fn owners(&self) -> Option<Vec<u64>> {
        let answer = self.client.inspect(Inspect::Pods, Duration::from_secs(1)).ok()?;
        let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
        answer["pods"].as_array()?.iter().map(|pod| pod["shards"].as_u64()).collect()
    }

    fn until(&self, what: &str, done: impl Fn(&Run) -> bool) -> anyhow::Result<()> {
        let give_up = Instant::now() + REST_PATIENCE;
        while !done(self) {
            if Instant::now() >= give_up {
                bail!("not within {REST_PATIENCE:?}: {what}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn until_balanced(&self) -> anyhow::Result<()> {
        self.until("all pods have their share of the shards", |run| {
            let Some(owners) = run.owners() else { return false };
            let least = u64::from(SHARDS) / PODS as u64;
            owners.len() == PODS
                && owners.iter().sum::<u64>() == u64::from(SHARDS)
                && owners.iter().all(|n| *n >= least)
        })
    }

    fn until_all_shards_serve(&self) -> anyhow::Result<()> {
        self.of_each_shard(|client, id| async move {
            client.messenger::<OwnerRef>().timeout(REST_PATIENCE).entity(&id).token().await.is_ok()
        })
    }

    /// Asks an entity of each shard, all at the same time.
    fn of_each_shard<F>(&self, ask: impl Fn(Client, String) -> F + Copy + Send + 'static) -> anyhow::Result<()>
    where
        F: Future<Output = bool> + 'static,
    {
        let (report, answered) = mpsc::channel();
        for id in id_in_each_shard() {
            let (client, report) = (self.client.clone(), report.clone());
            self.client.spawn_on(CoreIndex(0), move || async move {
                // Nobody waits after the first failure.
                let _ = report.send(ask(client, id).await);
            })?;
        }
        for _ in 0..SHARDS {
            if !answered.recv_timeout(REST_PATIENCE * 2).context("a shard does not answer")? {
                bail!("an entity of a shard could not be asked");
            }
        }
        Ok(())
    }
}

/// Waits on this thread, which is no core.
pub(crate) fn wait_for<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}
