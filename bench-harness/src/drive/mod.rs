//! The subject: the only part of the harness that knows atoll. It starts the pod (by re-executing this binary), opens
//! the client, and runs rounds of a scenario. [`crate::run`] calls it; nothing else does.
//!
//! Senders are tasks on the core that sends, which is where a service's own messages come from. `sender` has what runs
//! there; this file has what surrounds it.

mod sender;

use core::time::Duration;
use std::sync::mpsc;

use anyhow::{Context, bail};
use atoll::base::CoreIndex;
use atoll::client::ClientOptions;
use atoll::pod::config::{Config, Spin as ConfigSpin};
use atoll::runtime::{CorePlacement, PumpOptions};
use atoll::services::echo::{EchoEntity, EchoRef};
use atoll::wire::Inspect;
use atoll::{Client, EntityOptions, Messenger, Pod};

use crate::arguments::PodArguments;
use crate::child::Child;
use crate::floors::ids;
use crate::measure::{RoundLength, Sample, Watch, resident_bytes};
use crate::scenario::{Operation, Pace, Place, Scenario, Setting, Spin};
use sender::{Job, RoundResult};

/// Longest time without a word from the core that sends, beyond the length of the round.
const ROUND_GRACE: Duration = Duration::from_secs(60);
/// Asks that find out how many bytes a request and a reply have.
const SIZING_ASKS: u64 = 64;

enum Side {
    /// Sender and entities in this process.
    Pod(Pod),
    /// Entities in a child or at pods that run already.
    Client { client: Client, child: Option<Child> },
}

/// A scenario that is ready to run rounds.
pub struct Subject {
    scenario: Scenario,
    setting: Setting,
    side: Side,
    frame_bytes: (usize, usize),
    bytes_per_entity: Option<f64>,
}

impl Subject {
    /// Starts what the scenario needs: a pod unless `setting.pods` names some, or an executor in this process.
    pub fn prepare(scenario: &Scenario, setting: &Setting) -> anyhow::Result<Self> {
        let mut subject = Subject {
            scenario: scenario.clone(),
            setting: setting.clone(),
            side: start_side(scenario, setting)?,
            frame_bytes: (0, 0),
            bytes_per_entity: None,
        };
        if scenario.place == Place::Remote {
            subject.frame_bytes = subject.measure_frame_bytes()?;
        }
        if scenario.operation == Operation::Start && scenario.place == Place::Local && setting.floor {
            subject.bytes_per_entity = Some(bytes_per_entity(scenario.entities)?);
        }
        Ok(subject)
    }

    /// Bytes of a request and of a reply on the wire, for the bare ring.
    pub fn frame_bytes(&self) -> (usize, usize) {
        self.frame_bytes
    }

    /// Called before a round of the floor: a pod that spins for ever leaves its processor.
    pub fn pause(&mut self) {
        if let Side::Client { child: Some(child), .. } = &mut self.side {
            child.pause();
        }
    }

    /// Runs one round; the subject may be paused before it.
    pub fn round(&mut self, length: RoundLength) -> anyhow::Result<Sample> {
        if self.scenario.operation == Operation::Start {
            // Entities that run already cannot be started again.
            self.side = start_side(&self.scenario, &self.setting)?;
        }
        if let Side::Client { child: Some(child), .. } = &mut self.side {
            child.resume();
        }
        let busy_before = self.busy_ns()?;
        let result = self.send(Job::new(&self.scenario, length, self.watch()))?;
        let mut sample = Sample::new(result.operations, result.elapsed, result.latencies, result.usage);
        sample.errors = result.errors;
        sample.sends = result.sends;
        sample.longest_pause_ns = result.longest_pause_ns;
        sample.bytes_per_entity = self.bytes_per_entity;
        // The counters span the warm-up too: scale to what was measured.
        let busy = self.busy_ns()?.saturating_sub(busy_before) as f64;
        let share = result.operations as f64 / (result.operations + result.warm_up_operations).max(1) as f64;
        sample.work_ns = Some((busy * share) as u64);
        Ok(sample)
    }

    /// Ends the pod in order.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.side {
            Side::Pod(pod) => pod.stop_now(),
            Side::Client { client, child } => {
                drop(client);
                drop(child);
            }
        }
        Ok(())
    }

    fn watch(&self) -> Watch {
        let mut watch = Watch { processes: vec![std::process::id()], processors: vec![self.setting.pod_cpu] };
        if self.scenario.place != Place::Local {
            watch.processors.push(self.setting.client_cpu);
        }
        if let Side::Client { child: Some(child), .. } = &self.side {
            watch.processes.push(child.id());
        }
        watch
    }

    /// Time in turns that did work, over all cores that take part.
    fn busy_ns(&self) -> anyhow::Result<u64> {
        let own =
            |counters: Vec<atoll::runtime::CounterValues>| counters.iter().map(|core| core.busy_nanos).sum::<u64>();
        Ok(match &self.side {
            Side::Pod(pod) => own(pod.loop_counters()),
            Side::Client { client, .. } => {
                let text =
                    client.inspect(Inspect::Counters, ROUND_GRACE).context("the pod does not tell its counters")?;
                let answer: serde_json::Value = serde_json::from_str(&text)?;
                let cores = answer["cores"].as_array().map_or(&[][..], Vec::as_slice);
                own(client.loop_counters()) + cores.iter().filter_map(|core| core["busy_ns"].as_u64()).sum::<u64>()
            }
        })
    }

    fn measure_frame_bytes(&mut self) -> anyhow::Result<(usize, usize)> {
        let Side::Client { client, .. } = &self.side else { bail!("only a client sends frames") };
        let client = client.clone();
        let mut job =
            Job::new(&self.scenario, RoundLength { warm_up: Duration::ZERO, duration: ROUND_GRACE }, self.watch());
        job.operations_max = Some(SIZING_ASKS);
        job.outstanding = 1;
        // Whatever the pace of the scenario: a schedule would last as long as the round.
        job.pace = Pace::Closed { outstanding: 1 };
        // The first round makes the links.
        self.send(job.clone())?;
        let before = client.loop_counters()[0];
        self.send(job)?;
        let after = client.loop_counters()[0];
        let per_ask = |bytes: u64| (bytes as f64 / SIZING_ASKS as f64).round() as usize;
        Ok((
            per_ask(after.bytes_sent - before.bytes_sent),
            per_ask(after.bytes_received - before.bytes_received).max(1),
        ))
    }

    /// Runs a job on the core that sends.
    fn send(&self, job: Job) -> anyhow::Result<RoundResult> {
        let (report, reported) = mpsc::channel();
        let patience = job.length.warm_up + job.length.duration + ROUND_GRACE;
        match &self.side {
            Side::Pod(pod) => {
                let core = CoreIndex(u16::from(self.scenario.place == Place::CrossCore));
                let ids = self.ids(Some(pod));
                let messenger: Messenger<EchoRef> = pod.messenger();
                pod.spawn_on(core, move || sender::run(job, messenger, ids, report))?;
            }
            Side::Client { client, .. } => {
                let ids = self.ids(None);
                let messenger: Messenger<EchoRef> = client.messenger();
                client.spawn_on(CoreIndex(0), move || sender::run(job, messenger, ids, report))?;
            }
        }
        reported.recv_timeout(patience).context("the core that sends did not report; is the pod still there?")?
    }

    /// The ids that messages go round; across cores only those of the other core.
    fn ids(&self, pod: Option<&Pod>) -> Vec<String> {
        let count = self.scenario.entities;
        if self.scenario.operation == Operation::Start {
            return Vec::new();
        }
        let (Some(pod), Place::CrossCore) = (pod, self.scenario.place) else { return ids::ids(count) };
        let table = pod.assignments();
        let on_first = |id: &String| table.owner(pod.shard_of(id)).is_some_and(|owner| owner.core == CoreIndex(0));
        (0..u32::MAX).map(ids::id).filter(on_first).take(count as usize).collect()
    }
}

fn start_side(scenario: &Scenario, setting: &Setting) -> anyhow::Result<Side> {
    match scenario.place {
        Place::Local => Ok(Side::Pod(start_pod(vec![setting.pod_cpu], setting.spin)?)),
        Place::CrossCore => Ok(Side::Pod(start_pod(vec![setting.pod_cpu, setting.client_cpu], setting.spin)?)),
        Place::Remote => {
            let (child, pods) = if setting.pods.is_empty() {
                let spin = spin_argument(setting.spin);
                let mut child = Child::start(["pod", "--cpu", &setting.pod_cpu.to_string(), "--spin", &spin])?;
                let address = child.line()?;
                (Some(child), vec![address])
            } else {
                (None, setting.pods.clone())
            };
            let options = ClientOptions {
                placement: CorePlacement::Pinned(vec![setting.client_cpu]),
                pump: PumpOptions { spin: pump_spin(setting.spin), ..PumpOptions::default() },
                ..ClientOptions::default()
            };
            let client = Client::connect_with(&pods, options)?;
            Ok(Side::Client { client, child })
        }
    }
}

fn start_pod(processors: Vec<usize>, spin: Spin) -> anyhow::Result<Pod> {
    let mut config = Config::default();
    config.pod.listen = ([127, 0, 0, 1], 0).into();
    // No entity is idle within a measurement.
    config.entities.max_idle = Duration::from_secs(3600);
    config.event_loop.spin = match spin {
        Spin::Always => ConfigSpin::Always,
        Spin::For(duration) => ConfigSpin::For(duration),
    };
    let builder = Pod::builder().config(config).processors(processors);
    Ok(builder.entity::<EchoEntity>(EntityOptions::default()).start()?)
}

fn pump_spin(spin: Spin) -> atoll::runtime::Spin {
    match spin {
        Spin::Always => atoll::runtime::Spin::Always,
        Spin::For(duration) => atoll::runtime::Spin::Micros(duration.as_micros() as u64),
    }
}

fn spin_argument(spin: Spin) -> String {
    match spin {
        Spin::Always => "always".to_owned(),
        Spin::For(duration) => format!("{}us", duration.as_micros()),
    }
}

/// What the pod process does: prints the address it listens on as its first line, serves until it is ended.
pub fn pod(arguments: &PodArguments) -> anyhow::Result<()> {
    let pod = start_pod(vec![arguments.cpu], arguments.spin)?;
    println!("{}", pod.address());
    pod.wait()?;
    Ok(())
}

/// Memory of one idle entity, in a fresh process.
fn bytes_per_entity(entities: u32) -> anyhow::Result<f64> {
    let mut child = Child::start(["subject-entity-memory", "--entities", &entities.to_string()])?;
    let line = child.line()?;
    child.wait()?;
    line.parse().with_context(|| format!("the child says `{line}`, not a number of bytes"))
}

/// Starts entities in this process and prints what one takes.
pub fn print_entity_memory(entities: u32) -> anyhow::Result<()> {
    let pod = start_pod(vec![0], Spin::For(Duration::ZERO))?;
    let scenario = Scenario { entities, ..Scenario::closed(Operation::Start, Place::Local, 1) };
    let length = RoundLength { warm_up: Duration::ZERO, duration: ROUND_GRACE };
    let job = Job::new(&scenario, length, Watch { processes: Vec::new(), processors: Vec::new() });
    let before = resident_bytes()?;
    let (report, reported) = mpsc::channel();
    let messenger: Messenger<EchoRef> = pod.messenger();
    pod.spawn_on(CoreIndex(0), move || sender::run(job, messenger, Vec::new(), report))?;
    reported.recv_timeout(ROUND_GRACE * 2).context("the core did not start its entities")??;
    let after = resident_bytes()?;
    println!("{}", after.saturating_sub(before) as f64 / f64::from(entities));
    pod.stop_now();
    Ok(())
}
