//! The stream engine on one machine: what an element costs at each hop, beside a hand-written loop.
//!
//! `atoll-bench stream --local`. Each row is the median of rounds in which floor and subject alternate; peers that are
//! Rust run in the same rounds. `ns_per_element` is per operator and element for hops, per element for whole streams,
//! per operator for `materialize-10`.

mod boundary;
mod chains;
mod diamond;
mod general;
mod materialize;

use anyhow::Context;
use atoll::runtime::StreamRuntime;
use serde::Serialize;

use crate::arguments::Common;
use crate::measure::{Clock, pin_to};
use crate::report::html::{Bar, Curve, Dot, Page, Section, Strip};
use crate::report::{Files, Machine, ProgressLine, Provenance, ReportKind, Row, stream_ratio_max, table};
use crate::rounds::median;

/// Elements of one measurement: long enough for the clock, short enough for many rounds.
const ELEMENTS: u64 = 1_000_000;

/// One measured row.
#[derive(Clone, Debug, Serialize)]
pub struct StreamRow {
    /// What was measured.
    pub name: &'static str,
    /// Nanoseconds: see the module.
    pub ns_per_element: f64,
    /// `ns_per_element` by that of the floor; above 1 is slower.
    pub floor_ratio: Option<f64>,
    /// What the floor is.
    pub floor: &'static str,
    /// Its nanoseconds.
    pub floor_ns: Option<f64>,
    /// Other ways to do the same, measured in the same rounds.
    pub peers: Vec<Peer>,
    /// Every round.
    pub rounds: Vec<StreamRound>,
}

/// One round of a row.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StreamRound {
    /// Nanoseconds: see the module.
    pub ns_per_element: f64,
    /// Those of the floor beside it.
    pub floor_ns: Option<f64>,
}

/// Another way to do the same.
#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    /// What it is.
    pub name: &'static str,
    /// Its nanoseconds.
    pub ns_per_element: f64,
}

/// One round of a peer, in nanoseconds.
pub(super) type PeerRound = Box<dyn FnMut() -> f64>;

/// A row as it is measured: each function does one round and returns nanoseconds.
pub(super) struct Measurement {
    pub name: &'static str,
    pub floor: &'static str,
    pub subject: Box<dyn FnMut(&StreamRuntime) -> f64>,
    pub floor_round: Option<Box<dyn FnMut() -> f64>>,
    pub peers: Vec<(&'static str, PeerRound)>,
}

#[derive(Serialize)]
struct File {
    #[serde(flatten)]
    provenance: Provenance,
    scenario: &'static str,
    machine: Machine,
    rows: Vec<StreamRow>,
}

/// Measures all rows and prints them.
pub(crate) fn run(common: &Common, only: &[String]) -> anyhow::Result<()> {
    let files = Files::of(common);
    files.prepare(false)?;
    pin_to(common.pod_cpu).with_context(|| format!("cannot use processor {}", common.pod_cpu))?;
    let runtime = StreamRuntime::single();
    let mut measurements = Vec::new();
    measurements.extend(chains::measurements());
    measurements.extend(general::measurements());
    measurements.extend(diamond::measurements());
    if common.pod_cpu == common.client_cpu {
        eprintln!("the boundary needs two processors: choose them with --pod-cpu and --client-cpu");
    } else {
        measurements.extend(boundary::measurements(common.client_cpu)?);
    }
    measurements.extend(materialize::measurements());
    measurements.retain(|row| only.is_empty() || only.iter().any(|name| name == row.name));
    anyhow::ensure!(!measurements.is_empty(), "no row has this name; without `--row` all are measured");
    let mut line = ProgressLine::new();
    let mut rows = Vec::new();
    for mut measurement in measurements {
        let mut rounds: Vec<(f64, Option<f64>, Vec<f64>)> = Vec::new();
        for round in 0..=common.rounds {
            line.show(&format!("{}: round {round} of {}", measurement.name, common.rounds));
            let floor = measurement.floor_round.as_mut().map(|floor| floor());
            let subject = (measurement.subject)(&runtime);
            let peers = measurement.peers.iter_mut().map(|(_, peer)| peer()).collect();
            // The first round only warms up.
            if round > 0 {
                rounds.push((subject, floor, peers));
            }
        }
        rows.push(row(&measurement, &rounds));
    }
    line.clear();
    let provenance = Provenance::here(ReportKind::Streams);
    let file = File { provenance, scenario: "stream-local", machine: Machine::read(), rows };
    println!("{}\n", file.machine.line());
    print!("{}", table(&COLUMNS, &cells(&file.rows)));
    files.write(&file, &[], || file.page())
}

fn row(measurement: &Measurement, rounds: &[(f64, Option<f64>, Vec<f64>)]) -> StreamRow {
    let ns_per_element = median(rounds.iter().map(|round| round.0)).unwrap_or_default();
    let floor_ns = median(rounds.iter().filter_map(|round| round.1));
    let peers = measurement.peers.iter().enumerate().map(|(at, (name, _))| Peer {
        name,
        ns_per_element: median(rounds.iter().map(|round| round.2[at])).unwrap_or_default(),
    });
    StreamRow {
        name: measurement.name,
        ns_per_element,
        floor_ratio: floor_ns.filter(|floor| *floor > 0.0).map(|floor| ns_per_element / floor),
        floor: measurement.floor,
        floor_ns,
        peers: peers.collect(),
        rounds: rounds.iter().map(|round| StreamRound { ns_per_element: round.0, floor_ns: round.1 }).collect(),
    }
}

const COLUMNS: [&str; 5] = ["stream", "atoll", "by floor", "floor", "peers"];

fn cells(rows: &[StreamRow]) -> Vec<Row> {
    let nanoseconds = |ns: f64| format!("{ns:.2} ns");
    let lines = rows.iter().map(|row| {
        let peers = row.peers.iter().map(|peer| format!("{} {:.2} ns", peer.name, peer.ns_per_element));
        let cells = vec![
            row.name.to_owned(),
            nanoseconds(row.ns_per_element),
            row.floor_ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} x")),
            row.floor_ns.map_or_else(String::new, |ns| format!("{ns:.2} ns {}", row.floor)),
            peers.collect::<Vec<_>>().join(", "),
        ];
        Row { cells }
    });
    lines.collect()
}

impl File {
    fn page(&self) -> Page {
        let bar = |row: &StreamRow| {
            let target = stream_ratio_max(row.name);
            row.floor_ratio.map(|ratio| Bar { name: row.name.to_owned(), ratio, target })
        };
        Page {
            title: "Load test: the stream engine".to_owned(),
            provenance: self.provenance.clone(),
            machine: self.machine.clone(),
            facts: Vec::new(),
            columns: COLUMNS.to_vec(),
            rows: cells(&self.rows),
            notes: Vec::new(),
            bars: self.rows.iter().filter_map(bar).collect(),
            sections: self.rows.iter().map(section).collect(),
        }
    }
}

fn section(row: &StreamRow) -> Section {
    let dot = |round: &StreamRound| Dot {
        subject_ns: Some(round.ns_per_element),
        floor_ns: round.floor_ns,
        disturbed: false,
        repeats: 0,
    };
    let floor = if row.floor.is_empty() { String::new() } else { format!("floor: {}", row.floor) };
    Section {
        name: row.name.to_owned(),
        lead: row.floor_ratio.map_or_else(
            || format!("{:.2} ns", row.ns_per_element),
            |ratio| format!("{:.2} ns, {ratio:.2} × the floor, {}", row.ns_per_element, row.floor),
        ),
        refused: None,
        curve: Curve::default(),
        strip: Strip {
            figure: "time of an element",
            subject: "atoll".to_owned(),
            floor,
            dots: row.rounds.iter().map(dot).collect(),
        },
    }
}

/// Nanoseconds of a piece of work.
pub(super) fn timed(work: impl FnOnce()) -> f64 {
    let clock = Clock::get();
    let from = clock.ticks();
    work();
    clock.ns(clock.since(from)) as f64
}

/// Runs a graph to its end on the calling thread and returns its result.
pub(super) fn run_to_end<T: 'static>(
    runtime: &StreamRuntime,
    graph: &atoll::stream::dsl::RunnableGraph<atoll::stream::completion::Completion<T>>,
) -> T {
    let value = runtime.run(graph).expect("the graph is complete");
    runtime.block_on(value).expect("the stream completes")
}
