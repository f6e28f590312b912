//! The command line. Without arguments the canonical run.

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::floors::Floor;
use crate::scenario::{
    ENTITIES, ENTITIES_STARTED, Handler, Operation, PAYLOAD_BYTES, Pace, Place, Scenario, Setting, Spin,
};

const EXAMPLES: &str = "\
Examples:
  atoll-bench                                     the canonical run, against a pod that it starts
  atoll-bench ask --outstanding 1024              remote asks, 1024 in flight
  atoll-bench ask --rate 200k --duration 10s      open loop: 200,000 asks per second, latency from the intended time
  atoll-bench sweep                               the same at rising rates, up to the knee
  atoll-bench ask --local --entities 100k         asks on one core of this process
  atoll-bench ask --pods 10.0.0.1:7000 --json ask.json
  atoll-bench start --local                       a million entities from cold
  atoll-bench cluster                             three pods under load: kills, clean stops, a pause
  atoll-bench floor all                           only the floors: what this machine can do
  atoll-bench ask --html ask.html --hgrm ask.hgrm a page with charts, and the latencies for other plotters
  atoll-bench compare before.json after.json      what changed, and what of that is more than noise
  atoll-bench flame ask-remote-64                 a flame graph, in flamegraphs/ask-remote-64/

Every figure stands beside a floor: the same work written by hand, run in alternating rounds. A ratio above 1 always
means slower than the floor. Exit codes: 0 measured, 1 failed, 2 wrong arguments, 3 refused because the harness itself
was the bottleneck, 4 worse (compare --fail-on-worse).";

/// The load test of atoll: asks, tells and starts, each beside its floor.
#[derive(Debug, Parser)]
#[command(name = "atoll-bench", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Arguments {
    /// What to measure; without it the canonical run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The circumstances.
    #[command(flatten)]
    pub common: Common,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Messages with a reply
    #[command(after_help = "Examples:\n  atoll-bench ask --outstanding 64\n  atoll-bench ask --rate 100k\n  \
                            atoll-bench ask --local --outstanding 1 --handler yields")]
    Ask(Load),
    /// Messages without a reply
    #[command(after_help = "Example:\n  atoll-bench tell --local --entities 1000")]
    Tell(Load),
    /// First messages to entities that are not running yet
    #[command(after_help = "Example:\n  atoll-bench start --local --entities 1M")]
    Start(Load),
    /// Remote asks in an open loop at rising rates, up to the knee, and at half of it
    #[command(after_help = "Examples:\n  atoll-bench sweep\n  atoll-bench sweep --from 20k --html sweep.html")]
    Sweep(SweepArguments),
    /// The stream engine: hops, fusion, boundaries, materialization
    #[command(after_help = "Examples:\n  atoll-bench stream --local\n  atoll-bench stream --local --row fused-10 \
                            --json stream.json")]
    Stream(StreamArguments),
    /// Only the floors: what hand-written code does on this machine
    #[command(after_help = "Examples:\n  atoll-bench floor all\n  atoll-bench floor bare-ring --outstanding 64 \
                            --request-bytes 160 --reply-bytes 128")]
    Floor(FloorArguments),
    /// Three pods and a manager under open load, while pods are killed, stopped, started and paused
    #[command(after_help = "Examples:\n  atoll-bench cluster\n  atoll-bench cluster --long --json cluster.json\n  \
                            atoll-bench cluster --kills 1 --stops 5 --rate 2k\n\nEverything runs on this machine, in \
                            processes that the run starts. The exit code is 1 if a target is missed.")]
    Cluster(ClusterArguments),
    /// What changed between two files of `--json`, and what of that is more than noise
    #[command(
        after_help = "Examples:\n  atoll-bench compare before.json after.json\n  atoll-bench compare before.json \
                            after.json --fail-on-worse --json change.json\n\nThe noise band comes from the rounds of \
                            both files; five rounds of each are enough."
    )]
    Compare(CompareArguments),
    /// Records a canonical scenario or a floor with perf and renders its flame graph
    #[command(after_help = "Examples:\n  atoll-bench flame ask-remote-64\n  atoll-bench flame ask-local-1 --output \
                            graph\n  atoll-bench flame floor-mailbox-loop\n\nNeeds perf (Debian, Ubuntu: the \
                            package linux-perf or linux-tools). Frame pointers give the best stacks:\n  \
                            RUSTFLAGS=\"-C force-frame-pointers=yes\" cargo run --release -p bench-harness -- flame \
                            ask-local-1")]
    Flame(FlameArguments),
    /// The pod that a run starts.
    #[command(hide = true)]
    Pod(PodArguments),
    /// The manager that a cluster run starts.
    #[command(hide = true)]
    ClusterManager(ClusterManagerArguments),
    /// A pod that a cluster run starts.
    #[command(hide = true)]
    ClusterPod(ClusterPodArguments),
    /// The answering process of the bare ring.
    #[command(hide = true)]
    FloorPeer(FloorPeer),
    /// Memory of the entity start floor, measured in a fresh process.
    #[command(hide = true)]
    FloorEntityMemory {
        /// Entities started.
        #[arg(long, value_parser = count)]
        entities: u32,
    },
    /// Memory of the subject's entities, measured in a fresh process.
    #[command(hide = true)]
    SubjectEntityMemory {
        /// Entities started.
        #[arg(long, value_parser = count)]
        entities: u32,
    },
}

/// What is common to all measurements.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Measured time of each round [default: 1s]
    #[arg(long, global = true, value_parser = some_duration, help_heading = "Measurement")]
    pub duration: Option<Duration>,
    /// Unmeasured time at the start of each round
    #[arg(long, global = true, value_parser = duration, default_value = "300ms", help_heading = "Measurement")]
    pub warm_up: Duration,
    /// Rounds whose median is reported
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Measurement")]
    pub rounds: u32,
    /// Writes the result as one JSON object
    #[arg(long, global = true, value_name = "FILE", help_heading = "Measurement")]
    pub json: Option<PathBuf>,
    /// Writes the latencies as HdrHistogram text; of several scenarios into a folder
    #[arg(long, global = true, value_name = "FILE|DIR", help_heading = "Measurement")]
    pub hgrm: Option<PathBuf>,
    /// Writes a page with charts: one file, no scripts, nothing to load
    #[arg(long, global = true, value_name = "FILE", help_heading = "Measurement")]
    pub html: Option<PathBuf>,
    /// Processor of the pod's core, and of everything local
    #[arg(long, global = true, default_value_t = 0, value_name = "N", help_heading = "Placement")]
    pub pod_cpu: usize,
    /// Processor of the client's core
    #[arg(long, global = true, default_value_t = 1, value_name = "N", help_heading = "Placement")]
    pub client_cpu: usize,
    /// How long a core looks for work before it sleeps: a duration, or `always`
    #[arg(long, global = true, default_value = "50us", value_parser = spin, help_heading = "Placement")]
    pub spin: Spin,
    /// Leaves the floor rounds out (for flame graphs).
    #[arg(long, global = true, hide = true)]
    pub no_floor: bool,
}

/// A sweep.
#[derive(Args, Clone, Debug)]
pub struct SweepArguments {
    /// The first rate, in sends per second; each further one is 1.4 times the one before. Takes k and M
    #[arg(long, value_name = "R", value_parser = rate, default_value = "50k")]
    pub from: f64,
    /// Addresses of pods that run already; without it a pod is started for each rate
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub pods: Vec<String>,
    /// Entities that the messages go round; takes k and M
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000")]
    pub entities: u32,
    /// Body bytes of a message; 0 means a bare number
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD_BYTES,
          value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub payload: u32,
}

/// What to measure of the stream engine.
#[derive(Args, Clone, Debug)]
pub struct StreamArguments {
    /// In this process (streams between pods cannot be measured yet)
    #[arg(long, required = true)]
    pub local: bool,
    /// Only these rows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub row: Vec<String>,
}

/// One load.
#[derive(Args, Clone, Debug)]
pub struct Load {
    /// Sends within this process, on one core; otherwise over TCP to a pod
    #[arg(long, conflicts_with = "pods")]
    pub local: bool,
    /// Sends within this process, from one core to another
    #[arg(long, conflicts_with_all = ["pods", "local"])]
    pub cross_core: bool,
    /// Addresses of pods that run already; without it a pod is started for the run
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub pods: Vec<String>,
    /// Closed loop: messages in flight at any time [default: 64; starts: 1]
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "rate")]
    pub outstanding: Option<u32>,
    /// Open loop: sends per second, at times fixed beforehand; takes k and M
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// What the handler does
    #[arg(long, value_enum, default_value_t = Handler::Ready)]
    pub handler: Handler,
    /// Entities that the messages go round; takes k and M [default: 1000; starts: 1M]
    #[arg(long, value_name = "N", value_parser = count)]
    pub entities: Option<u32>,
    /// Body bytes of a message; 0 means a bare number [default: 64; local: 0]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub payload: Option<u32>,
}

/// Which floors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloorName {
    /// All of them, with the canonical parameters
    All,
    /// Two processes, two raw io_uring rings, TCP over loopback
    BareRing,
    /// Id lookup, erased entity, boxed handler polled in place
    BoxedFuture,
    /// Mailboxes, run queue and reply cells on one thread; asks
    MailboxLoop,
    /// The same; tells
    MailboxLoopTell,
    /// A hash map that takes new ids
    EntityStart,
    /// One cache line each way between two spinning threads
    SpscPingPong,
}

/// Parameters of a floor alone.
#[derive(Args, Clone, Debug)]
pub struct FloorArguments {
    /// Which floor
    #[arg(value_enum, default_value_t = FloorName::All)]
    pub floor: FloorName,
    /// Messages in flight
    #[arg(long, value_parser = count, default_value = "64", conflicts_with = "rate")]
    pub outstanding: u32,
    /// Open loop on the bare ring: messages per second; takes k and M
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Entities [default: 1000; starts: 1M]
    #[arg(long, value_parser = count)]
    pub entities: Option<u32>,
    /// Body bytes of a local message; 0 means a bare number
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1 << 20), default_value_t = 0)]
    pub payload: u32,
    /// Bytes of a request on the bare ring
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub request_bytes: u32,
    /// Bytes of a reply on the bare ring
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub reply_bytes: u32,
}

/// How stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallGraph {
    /// Frame pointers; unwinding tables if most stacks come out cut
    Auto,
    /// Frame pointers
    Fp,
    /// Unwinding tables: slower and much larger recordings
    Dwarf,
}

/// Two runs.
#[derive(Args, Clone, Debug)]
pub struct CompareArguments {
    /// What `--json` wrote earlier
    #[arg(value_name = "A.json")]
    pub before: PathBuf,
    /// What `--json` wrote later
    #[arg(value_name = "B.json")]
    pub after: PathBuf,
    /// Ends with exit code 4 if a scenario is worse beyond the noise
    #[arg(long)]
    pub fail_on_worse: bool,
}

/// What to draw.
#[derive(Args, Clone, Debug)]
pub struct FlameArguments {
    /// A canonical scenario (see the table of a run without arguments) or `floor-NAME`
    pub scenario: String,
    /// The folder for SVG and folded stacks [default: flamegraphs/SCENARIO]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Samples per second
    #[arg(long, default_value_t = 997, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub frequency: u32,
    /// How stacks are taken
    #[arg(long, value_enum, default_value_t = CallGraph::Auto)]
    pub call_graph: CallGraph,
}

/// The pod that a run starts by re-executing this binary.
#[derive(Args, Clone, Debug)]
pub struct PodArguments {
    /// The processor of its core.
    #[arg(long)]
    pub cpu: usize,
    /// How long it spins.
    #[arg(long, value_parser = spin)]
    pub spin: Spin,
}

/// A run with several pods.
#[derive(Args, Clone, Debug)]
pub struct ClusterArguments {
    /// Pods that are killed and started again, one after the other [default: 2, with --long 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub kills: Option<u32>,
    /// Pods that are stopped cleanly and started again [default: 3, with --long 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub stops: Option<u32>,
    /// Asks per second, at times fixed beforehand; one in eight is a deposit. Takes k and M
    #[arg(long, value_name = "R", value_parser = rate, default_value = "4k")]
    pub rate: f64,
    /// Time to live of the leases, 2s to 1m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub ttl: Duration,
    /// Ten kills and ten stops
    #[arg(long)]
    pub long: bool,
}

impl ClusterArguments {
    /// How many of each.
    pub fn kills_and_stops(&self) -> (u32, u32) {
        let (kills, stops) = if self.long { (10, 10) } else { (2, 3) };
        (self.kills.unwrap_or(kills), self.stops.unwrap_or(stops))
    }
}

/// The manager of a cluster run.
#[derive(Args, Clone, Debug)]
pub struct ClusterManagerArguments {
    /// Where pods reach it.
    #[arg(long)]
    pub listen: SocketAddr,
    /// Its folder.
    #[arg(long)]
    pub data_directory: PathBuf,
}

/// A pod of a cluster run.
#[derive(Args, Clone, Debug)]
pub struct ClusterPodArguments {
    /// Its manager.
    #[arg(long)]
    pub store: SocketAddr,
    /// Time to live of its lease.
    #[arg(long, value_parser = duration)]
    pub ttl: Duration,
}

/// The answering process of the bare ring.
#[derive(Args, Clone, Debug)]
pub struct FloorPeer {
    /// Its processor.
    #[arg(long)]
    pub cpu: usize,
    /// Bytes of a request.
    #[arg(long)]
    pub request_bytes: usize,
    /// Bytes of a reply.
    #[arg(long)]
    pub reply_bytes: usize,
    /// How long it spins.
    #[arg(long, value_parser = spin)]
    pub spin: Spin,
    /// Whether it tells messages apart, or counts bytes.
    #[arg(long)]
    pub told_apart: bool,
}

impl Common {
    /// The circumstances of a run against `pods`, or against a pod of its own.
    pub fn setting(&self, pods: &[String]) -> Setting {
        Setting {
            pods: pods.to_vec(),
            pod_cpu: self.pod_cpu,
            client_cpu: self.client_cpu,
            spin: self.spin,
            rounds: self.rounds,
            warm_up: self.warm_up,
            duration: self.duration.unwrap_or(Duration::from_secs(1)),
            floor: !self.no_floor,
        }
    }
}

impl Load {
    /// The scenario that these flags describe.
    pub fn scenario(&self, operation: Operation) -> Scenario {
        let place = match (self.local, self.cross_core) {
            (true, _) => Place::Local,
            (_, true) => Place::CrossCore,
            _ => Place::Remote,
        };
        let outstanding = self.outstanding.unwrap_or(if operation == Operation::Start { 1 } else { 64 });
        let default = Scenario::closed(operation, place, outstanding.max(1));
        Scenario {
            pace: self.rate.map_or(default.pace, |rate_per_second| Pace::Open { rate_per_second }),
            handler: self.handler,
            entities: self.entities.unwrap_or(default.entities).max(1),
            payload_bytes: self.payload.unwrap_or(default.payload_bytes),
            ..default
        }
    }
}

impl FloorArguments {
    /// The floors that these arguments choose.
    pub fn floors(&self, common: &Common) -> Vec<Floor> {
        let cpu = common.pod_cpu;
        let (payload_bytes, outstanding) = (self.payload, self.outstanding.max(1));
        let entities = self.entities.unwrap_or(ENTITIES).max(1);
        let ring = |outstanding| Floor::BareRing {
            request_bytes: self.request_bytes as usize,
            reply_bytes: self.reply_bytes as usize,
            outstanding,
            rate_per_second: self.rate,
            server_cpu: common.pod_cpu,
            client_cpu: common.client_cpu,
            spin: common.spin,
        };
        let mailbox = |entities, outstanding| Floor::MailboxLoop { entities, outstanding, payload_bytes, cpu };
        let start = Floor::EntityStart { entities: self.entities.unwrap_or(ENTITIES_STARTED).max(1), cpu };
        let boxed = |entities| Floor::BoxedFuture { entities, payload_bytes, cpu };
        let tell = |entities| Floor::MailboxLoopTell { entities, payload_bytes, cpu };
        let ping_pong = Floor::SpscPingPong { cpus: [common.pod_cpu, common.client_cpu] };
        match self.floor {
            FloorName::BareRing => vec![ring(outstanding)],
            FloorName::BoxedFuture => vec![boxed(entities)],
            FloorName::MailboxLoop => vec![mailbox(entities, outstanding)],
            FloorName::MailboxLoopTell => vec![tell(entities)],
            FloorName::EntityStart => vec![start],
            FloorName::SpscPingPong => vec![ping_pong],
            FloorName::All => {
                let crowd = 100 * ENTITIES;
                let mut floors = vec![ring(1), ring(64), ring(1_024), boxed(entities), boxed(crowd)];
                floors.extend([mailbox(entities, 1), mailbox(entities, 64), mailbox(crowd, 64)]);
                floors.extend([tell(entities), tell(crowd), start, ping_pong]);
                floors
            }
        }
    }
}

/// A whole number with an optional k or M.
fn count(text: &str) -> Result<u32, String> {
    let value = rate(text)?;
    if value.fract() != 0.0 || !(1.0..=1e9).contains(&value) {
        return Err("give a whole number from 1 to 1000M, such as 1000, 100k or 1M".into());
    }
    Ok(value as u32)
}

/// A positive number with an optional k, M or G.
fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.trim_end_matches(char::is_alphabetic) {
        digits if digits.len() == text.len() => (digits, 1.0),
        digits => match &text[digits.len()..] {
            "k" | "K" => (digits, 1e3),
            "m" | "M" => (digits, 1e6),
            "g" | "G" => (digits, 1e9),
            unit => return Err(format!("{unit:?} is no unit; use k, M or G, as in 100k")),
        },
    };
    let value: f64 = digits.replace('_', "").parse().map_err(|_| format!("{text:?} is no number; try 100k"))?;
    let value = value * factor;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err("give a number above 0".into()) }
}

/// A duration such as 50us, 300ms, 10s or 1m.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let nanoseconds = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        _ if text == "0" => 0.0,
        _ => return Err(format!("{text:?} has no unit of time; write it like 50us, 300ms, 10s or 1m")),
    };
    let value: f64 = digits.parse().map_err(|_| format!("{text:?} is no duration; write it like 300ms"))?;
    if !(0.0..=86_400e9).contains(&(value * nanoseconds)) {
        return Err("give a duration of at most a day".into());
    }
    Ok(Duration::from_nanos((value * nanoseconds).round() as u64))
}

/// A duration in which something can happen.
fn some_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| if time.is_zero() { Err("give a duration above 0".into()) } else { Ok(time) })
}

fn spin(text: &str) -> Result<Spin, String> {
    if text == "always" { Ok(Spin::Always) } else { duration(text).map(Spin::For) }
}

impl Spin {
    /// As `--spin` takes it.
    pub fn argument(&self) -> String {
        match self {
            Self::Always => "always".to_owned(),
            Self::For(duration) => format!("{}ns", duration.as_nanos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Arguments {
        Arguments::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn without_arguments_it_is_the_canonical_run() {
        let arguments = parse("atoll-bench");
        assert!(arguments.command.is_none());
        let setting = arguments.common.setting(&[]);
        assert_eq!((setting.rounds, setting.pod_cpu, setting.client_cpu, setting.floor), (5, 0, 1, true));
    }

    #[test]
    fn flags_make_the_scenario() {
        let Some(Command::Ask(load)) = parse("atoll-bench ask --rate 1.5M --handler yields --entities 100k").command
        else {
            panic!("not an ask")
        };
        let scenario = load.scenario(Operation::Ask);
        assert_eq!(scenario.pace, Pace::Open { rate_per_second: 1.5e6 });
        assert_eq!((scenario.handler, scenario.entities, scenario.payload_bytes), (Handler::Yields, 100_000, 64));
    }

    #[test]
    fn a_cluster_run_is_short_unless_it_is_told() {
        let Some(Command::Cluster(cluster)) = parse("atoll-bench cluster --stops 4").command else {
            panic!("no cluster run")
        };
        assert_eq!(cluster.kills_and_stops(), (2, 4));
        let Some(Command::Cluster(cluster)) = parse("atoll-bench cluster --long").command else {
            panic!("no cluster run")
        };
        assert_eq!(cluster.kills_and_stops(), (10, 10));
    }

    #[test]
    fn the_command_line_of_a_scenario_leads_back_to_it() {
        for scenario in Scenario::canonical() {
            let line = format!("atoll-bench {}", scenario.command_line().join(" "));
            let (operation, load) = match parse(&line).command {
                Some(Command::Ask(load)) => (Operation::Ask, load),
                Some(Command::Tell(load)) => (Operation::Tell, load),
                Some(Command::Start(load)) => (Operation::Start, load),
                other => panic!("{line}: {other:?}"),
            };
            assert_eq!(load.scenario(operation), scenario, "{line}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_advice() {
        for (line, advice) in [
            ("atoll-bench ask --duration 10", "300ms"),
            ("atoll-bench ask --rate fast", "100k"),
            ("atoll-bench ask --rate 0", "above 0"),
            ("atoll-bench cluster --ttl 2", "300ms"),
            ("atoll-bench cluster --kills many", "invalid digit"),
            ("atoll-bench ask --entities 1.5", "whole number"),
            ("atoll-bench ask --local --pods 127.0.0.1:1", "cannot be used"),
            ("atoll-bench ask --rate 5 --outstanding 5", "cannot be used"),
        ] {
            let error = Arguments::try_parse_from(line.split(' ')).expect_err(line).to_string();
            assert!(error.contains(advice), "{line}: {error}");
        }
    }

    #[test]
    fn spin_survives_its_way_to_a_child() {
        for text in ["always", "50us", "0", "3ms"] {
            let value = spin(text).unwrap();
            assert_eq!(spin(&value.argument()), Ok(value));
        }
    }
}
