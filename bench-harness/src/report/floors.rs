//! The report of a run of floors alone.

use serde::Serialize;

use super::Machine;
use super::files::Distribution;
use super::json::FloorReport;
use super::provenance::{Provenance, ReportKind};
use super::table::{Row, quantity, table, time};
use crate::floors::Floor;
use crate::rounds::Round;

/// All floors of a run.
#[derive(Clone, Debug, Serialize)]
pub struct FloorTable {
    /// Where the file comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// One entry each.
    pub floors: Vec<FloorReport>,
    /// Where it ran.
    pub machine: Machine,
    #[serde(skip)]
    spreads: Vec<Spread>,
}

#[derive(Clone, Debug)]
struct Spread {
    least_ns: f64,
    most_ns: f64,
    longest_pause_ns: Option<u64>,
    disturbed: usize,
}

impl FloorTable {
    /// The figures of `floors`, each with its rounds.
    pub fn new(floors: &[Floor], rounds: &[Vec<Round>]) -> Self {
        let spread = |rounds: &Vec<Round>| {
            let figures = || rounds.iter().map(|round| round.subject.ns_per_operation());
            Spread {
                least_ns: figures().fold(f64::INFINITY, f64::min),
                most_ns: figures().fold(0.0, f64::max),
                longest_pause_ns: rounds.iter().filter_map(|round| round.subject.longest_pause_ns).max(),
                disturbed: rounds.iter().filter(|round| round.disturbed()).count(),
            }
        };
        Self {
            provenance: Provenance::here(ReportKind::Floors),
            floors: floors.iter().zip(rounds).filter_map(|(floor, rounds)| FloorReport::alone(floor, rounds)).collect(),
            machine: Machine::read(),
            spreads: rounds.iter().map(spread).collect(),
        }
    }

    /// The columns of the table.
    pub(super) const COLUMNS: [&str; 11] =
        ["floor", "ops/s", "time/op", "least", "most", "p50", "p90", "p99", "p99.9", "max", "CPU/op"];

    /// The table on the terminal.
    pub fn text(&self) -> String {
        let mut text = table(&Self::COLUMNS, &self.rows());
        for note in self.notes() {
            text.push_str(&note);
            text.push('\n');
        }
        text
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.floors.iter().zip(&self.spreads).map(|(floor, spread)| row(floor, spread)).collect()
    }

    /// What a reader has to know besides the rows.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (floor, spread) in self.floors.iter().zip(&self.spreads) {
            let title = floor.floor.title();
            if let Some(pause) = spread.longest_pause_ns {
                notes.push(format!("{title}: longest pause {}", time(pause as f64)));
            }
            if let Some(bytes) = floor.bytes_per_entity {
                notes.push(format!("{title}: {bytes:.0} bytes per entity"));
            }
            if spread.disturbed > 0 {
                notes.push(format!("{title}: {} rounds were disturbed by other load", spread.disturbed));
            }
        }
        notes
    }

    /// The latencies of the run, for `--hgrm`.
    pub fn distributions(&self) -> Vec<Distribution<'_>> {
        let of = |floor| {
            let FloorReport { floor, rounds, latencies, .. }: &FloorReport = floor;
            let title = floor.title();
            Distribution {
                name: title.clone(),
                title: format!("{title}, {} rounds", rounds.len()),
                latencies,
                floor: None,
            }
        };
        self.floors.iter().map(of).collect()
    }
}

fn row(floor: &FloorReport, spread: &Spread) -> Row {
    let latency = floor.latency_ns;
    let shown = |ns: u64| if latency.max == 0 { "–".to_owned() } else { time(ns as f64) };
    let mut cells = vec![floor.floor.title(), quantity(floor.operations_per_second)];
    let exact = |ns: f64| if ns < 100.0 { format!("{ns:.1} ns") } else { time(ns) };
    cells.extend([floor.ns_per_operation, spread.least_ns, spread.most_ns].map(exact));
    cells.extend([latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max].map(shown));
    cells.push(time(floor.cpu_ns_per_operation));
    Row { cells }
}
