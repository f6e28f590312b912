//! The JSON object of a run, and how rounds become one figure: medians, and ratios of a round to the floor beside it.

use serde::Serialize;

use super::Machine;
use super::files::Distribution;
use super::provenance::{Provenance, ReportKind};
use super::table::{Row, quantity, table, time};
use super::targets::floor_ratio_max;
use crate::floors::Floor;
use crate::measure::{Latencies, Percentiles, Sample, Usage};
use crate::rounds::{Round, median};
use crate::scenario::{Pace, Place, Scenario, Setting};
use crate::schedule::{Refused, Tally};

/// What `--json` writes: the headline scenario, and the others of the same run.
#[derive(Clone, Debug, Serialize)]
pub struct ReportFile {
    /// Where the file comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The first scenario.
    #[serde(flatten)]
    pub headline: Report,
    /// Further scenarios of the run.
    pub further: Vec<Report>,
    /// Where it ran.
    pub machine: Machine,
}

/// One scenario, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Its parts.
    pub parameters: Scenario,
    /// The circumstances.
    pub setting: Setting,
    /// Operations per second: the median of the rounds.
    pub operations_per_second: f64,
    /// Time of an operation at this throughput: the median of the rounds.
    pub ns_per_operation: f64,
    /// Percentiles: each the median of the rounds; `max` is the largest of all.
    pub latency_ns: Percentiles,
    /// Operations that failed, in all rounds.
    pub errors: u64,
    /// The subject's figure over the floor's, the median over rounds. More than 1 always means slower than the floor.
    pub floor_ratio: Option<f64>,
    /// The same of the 99th percentiles.
    pub floor_ratio_p99: Option<f64>,
    /// What `floor_ratio` shall be at most, where the project has set itself a target.
    pub floor_ratio_target: Option<f64>,
    /// The floor beside it.
    pub floor: Option<FloorReport>,
    /// Processor time of an operation: time in turns that did work if the subject counts it, else that of the processes.
    pub cpu_ns_per_operation: f64,
    /// Processor time of all processes, spinning included.
    pub process_cpu_ns_per_operation: f64,
    /// Memory of an idle entity, where it was measured.
    pub bytes_per_entity: Option<f64>,
    /// The longest time without a start, where it was measured.
    pub longest_pause_ns: Option<u64>,
    /// Sends that left the harness late; 0 in a closed loop.
    pub late_sends: u64,
    /// The sends of an open loop, over all rounds.
    pub sends: Option<Tally>,
    /// Why the result must not be used.
    pub refused: Option<Refused>,
    /// Every round.
    pub rounds: Vec<RoundReport>,
    /// The latencies of all rounds, merged.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// The floor, measured in the same rounds.
#[derive(Clone, Debug, Serialize)]
pub struct FloorReport {
    /// Which one, and its parameters.
    #[serde(flatten)]
    pub floor: Floor,
    /// Which figure the ratio compares: `ns_per_operation` or `latency_p50`.
    pub ratio_basis: &'static str,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Time of an operation at this throughput.
    pub ns_per_operation: f64,
    /// Percentiles.
    pub latency_ns: Percentiles,
    /// Processor time of an operation.
    pub cpu_ns_per_operation: f64,
    /// Memory of an entity, where it was measured.
    pub bytes_per_entity: Option<f64>,
    /// Time of an operation if only the bytes are moved and no messages told apart: the floor before ADR 11.
    pub byte_pump_ns_per_operation: Option<f64>,
    /// Every round of a floor that ran alone; beside a subject, the subject's rounds have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RoundReport>,
    /// The latencies of all rounds, merged.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// One round.
#[derive(Clone, Debug, Serialize)]
pub struct RoundReport {
    /// Operations per second.
    pub operations_per_second: f64,
    /// Percentiles.
    pub latency_ns: Percentiles,
    /// Errors.
    pub errors: u64,
    /// What it used, and what disturbed it.
    pub usage: Usage,
    /// The floor's operations per second beside it.
    pub floor_operations_per_second: Option<f64>,
    /// The floor's percentiles beside it.
    pub floor_latency_ns: Option<Percentiles>,
    /// The ratio of this round.
    pub floor_ratio: Option<f64>,
    /// How often it was tried before.
    pub repeats: u32,
    /// Whether it was disturbed even so.
    pub disturbed: bool,
}

/// Which figure is compared with the floor's. Over a network with one message at a time the median latency is what a
/// user feels, in an open loop what the slowest hundredth feels; everywhere else the time of an operation, which is free
/// of the clock's own cost.
fn ratio_basis(scenario: &Scenario) -> &'static str {
    match (scenario.place, scenario.pace) {
        (Place::Remote, Pace::Open { .. }) => "latency_p99",
        (Place::Remote, Pace::Closed { outstanding: 1 }) => "latency_p50",
        _ => "ns_per_operation",
    }
}

/// The latency that a basis names, with its short name; nothing if it is no latency.
fn latency_of(basis: &str, latencies: &Percentiles) -> Option<(u64, &'static str)> {
    match basis {
        "latency_p50" => Some((latencies.p50, "p50")),
        "latency_p99" => Some((latencies.p99, "p99")),
        _ => None,
    }
}

fn ratio(subject: f64, floor: f64) -> Option<f64> {
    (subject.is_finite() && floor.is_finite() && floor > 0.0).then(|| subject / floor)
}

fn round_ratio(basis: &str, round: &Round) -> Option<f64> {
    let floor = round.floor.as_ref()?;
    let figure = |sample: &Sample| {
        latency_of(basis, &sample.latencies.percentiles())
            .map_or_else(|| sample.ns_per_operation(), |(latency, _)| latency as f64)
    };
    ratio(figure(&round.subject), figure(floor))
}

/// Percentiles over rounds.
pub(crate) fn percentiles<'a>(samples: impl Iterator<Item = &'a Sample>) -> Percentiles {
    let rounds: Vec<Percentiles> = samples.map(|sample| sample.latencies.percentiles()).collect();
    let middle =
        |part: fn(&Percentiles) -> u64| median(rounds.iter().map(|round| part(round) as f64)).unwrap_or(0.0) as u64;
    Percentiles {
        p50: middle(|round| round.p50),
        p90: middle(|round| round.p90),
        p99: middle(|round| round.p99),
        p99_9: middle(|round| round.p99_9),
        max: rounds.iter().map(|round| round.max).max().unwrap_or(0),
    }
}

/// One histogram of all rounds.
fn merged<'a>(samples: impl Iterator<Item = &'a Sample>) -> Latencies {
    let mut all = Latencies::new();
    samples.for_each(|sample| all.merge(&sample.latencies));
    all
}

fn middle<'a>(samples: impl Iterator<Item = &'a Sample>, part: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.map(part)).unwrap_or(0.0)
}

impl Report {
    /// The figures of `rounds` (at least one) of `scenario`.
    pub fn new(scenario: &Scenario, setting: &Setting, floor: Option<&Floor>, rounds: &[Round]) -> Self {
        let basis = ratio_basis(scenario);
        let subjects = || rounds.iter().map(|round| &round.subject);
        let process_cpu = middle(subjects(), Sample::cpu_ns_per_operation);
        let work = subjects().filter_map(|sample| Some(sample.work_ns? as f64 / sample.operations.max(1) as f64));
        let mut sends = None::<Tally>;
        subjects().filter_map(|sample| sample.sends).for_each(|tally| sends.get_or_insert_default().merge(&tally));
        let p99 = |round: &Round| {
            let floor = round.floor.as_ref()?.latencies.percentiles().p99;
            ratio(round.subject.latencies.percentiles().p99 as f64, floor as f64)
        };
        let has_latencies = subjects().any(|sample| sample.latencies.count() > 0);
        Self {
            scenario: scenario.name(),
            parameters: scenario.clone(),
            setting: setting.clone(),
            operations_per_second: middle(subjects(), Sample::operations_per_second),
            ns_per_operation: middle(subjects(), Sample::ns_per_operation),
            latency_ns: percentiles(subjects()),
            errors: subjects().map(|sample| sample.errors).sum(),
            floor_ratio: median(rounds.iter().filter_map(|round| round_ratio(basis, round))),
            floor_ratio_p99: median(rounds.iter().filter_map(p99)).filter(|_| has_latencies),
            floor_ratio_target: floor_ratio_max(scenario),
            floor: floor.and_then(|floor| FloorReport::new(floor, basis, rounds)),
            cpu_ns_per_operation: median(work).unwrap_or(process_cpu),
            process_cpu_ns_per_operation: process_cpu,
            bytes_per_entity: median(subjects().filter_map(|sample| sample.bytes_per_entity)),
            longest_pause_ns: subjects().filter_map(|sample| sample.longest_pause_ns).max(),
            late_sends: sends.map_or(0, |sends| sends.late_sends),
            sends,
            refused: sends.and_then(|sends| sends.verdict().err()),
            rounds: rounds.iter().map(|round| RoundReport::new(basis, round)).collect(),
            latencies: merged(subjects()),
        }
    }

    /// The columns of [`Self::row`].
    pub(super) const COLUMNS: [&str; 12] =
        ["scenario", "ops/s", "time/op", "p50", "p90", "p99", "p99.9", "max", "CPU/op", "errors", "floor", "ratio"];

    /// The table of several reports.
    pub fn table(reports: &[Self]) -> String {
        let rows: Vec<Row> = reports.iter().map(Self::row).collect();
        let mut text = table(&Self::COLUMNS, &rows);
        for report in reports {
            report.notes().for_each(|note| {
                text.push_str(&format!("{}: {note}\n", report.scenario));
            });
        }
        text
    }

    pub(super) fn row(&self) -> Row {
        let Percentiles { p50, p90, p99, p99_9, max } = self.latency_ns;
        let floor = self.floor.as_ref().map_or("–".to_owned(), |floor| {
            let figure = match latency_of(floor.ratio_basis, &floor.latency_ns) {
                Some((latency, name)) => format!("{} {name}", time(latency as f64)),
                None => time(floor.ns_per_operation),
            };
            format!("{} {figure}", floor.floor.name())
        });
        let mut cells = vec![self.scenario.clone()];
        cells.push(if self.refused.is_some() { "refused".into() } else { quantity(self.operations_per_second) });
        cells.push(time(self.ns_per_operation));
        let shown = |ns: u64| if max == 0 { "–".to_owned() } else { time(ns as f64) };
        cells.extend([p50, p90, p99, p99_9, max].map(shown));
        cells.push(time(self.cpu_ns_per_operation));
        cells.push(self.errors.to_string());
        cells.push(floor);
        cells.push(self.floor_ratio.map_or("–".into(), |ratio| format!("{ratio:.2} ×")));
        Row { cells }
    }

    fn distribution(&self) -> Distribution<'_> {
        let rounds = self.rounds.len();
        Distribution {
            name: self.scenario.clone(),
            title: format!("{}, {rounds} rounds", self.scenario),
            latencies: &self.latencies,
            floor: self.floor.as_ref().map(|floor| {
                (format!("{}, {rounds} rounds beside {}", floor.floor.title(), self.scenario), &floor.latencies)
            }),
        }
    }

    /// What a reader has to know besides the row.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let disturbed = self.rounds.iter().filter(|round| round.disturbed).count();
        let held_back = self.sends.map_or(0, |sends| sends.held_back_sends + sends.withheld_sends);
        [
            self.refused.as_ref().map(ToString::to_string),
            (self.late_sends > 0).then(|| format!("{} sends left the harness late", self.late_sends)),
            (held_back > 0).then(|| format!("the subject held {held_back} sends back: it was saturated")),
            (disturbed > 0).then(|| format!("{disturbed} rounds were disturbed by other load and count even so")),
            self.longest_pause_ns.map(|pause| format!("longest pause {}", time(pause as f64))),
            self.bytes_per_entity.map(|bytes| format!("{bytes:.0} bytes per idle entity")),
            self.floor.as_ref().and_then(|floor| floor.byte_pump_ns_per_operation).map(|pump| {
                let ratio = self.ns_per_operation / pump;
                format!("moving the bytes alone, telling no messages apart, takes {} ({ratio:.2} ×)", time(pump))
            }),
        ]
        .into_iter()
        .flatten()
    }
}

impl FloorReport {
    fn new(floor: &Floor, ratio_basis: &'static str, rounds: &[Round]) -> Option<Self> {
        let samples = || rounds.iter().filter_map(|round| round.floor.as_ref());
        samples().next()?;
        Some(Self {
            floor: floor.clone(),
            ratio_basis,
            operations_per_second: middle(samples(), Sample::operations_per_second),
            ns_per_operation: middle(samples(), Sample::ns_per_operation),
            latency_ns: percentiles(samples()),
            cpu_ns_per_operation: middle(samples(), Sample::cpu_ns_per_operation),
            bytes_per_entity: median(samples().filter_map(|sample| sample.bytes_per_entity)),
            byte_pump_ns_per_operation: median(samples().filter_map(|sample| sample.byte_pump_ns)),
            rounds: Vec::new(),
            latencies: merged(samples()),
        })
    }
}

impl FloorReport {
    /// A floor that ran without a subject: its own rounds are the subject's.
    pub(super) fn alone(floor: &Floor, rounds: &[Round]) -> Option<Self> {
        let as_floors: Vec<Round> =
            rounds.iter().map(|round| Round { floor: Some(round.subject.clone()), ..round.clone() }).collect();
        let mut report = Self::new(floor, "ns_per_operation", &as_floors)?;
        report.rounds = rounds.iter().map(|round| RoundReport::new(report.ratio_basis, round)).collect();
        Some(report)
    }
}

impl RoundReport {
    fn new(basis: &str, round: &Round) -> Self {
        Self {
            operations_per_second: round.subject.operations_per_second(),
            latency_ns: round.subject.latencies.percentiles(),
            errors: round.subject.errors,
            usage: round.subject.usage,
            floor_operations_per_second: round.floor.as_ref().map(Sample::operations_per_second),
            floor_latency_ns: round.floor.as_ref().map(|floor| floor.latencies.percentiles()),
            floor_ratio: round_ratio(basis, round),
            repeats: round.repeats,
            disturbed: round.disturbed(),
        }
    }
}

impl ReportFile {
    /// The object for `--json`; nothing without reports.
    pub fn new(mut reports: Vec<Report>) -> Option<Self> {
        if reports.is_empty() {
            return None;
        }
        let headline = reports.remove(0);
        let provenance = Provenance::here(ReportKind::Scenarios);
        Some(Self { provenance, headline, further: reports, machine: Machine::read() })
    }

    /// The latencies of the run, for `--hgrm`.
    pub fn distributions(&self) -> Vec<Distribution<'_>> {
        self.reports().map(Report::distribution).collect()
    }

    /// All scenarios of the run.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        core::iter::once(&self.headline).chain(&self.further)
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
