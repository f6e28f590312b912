//! The report of a run of floors alone.

use serde::Serialize;

use super::Machine;
use super::json::FloorReport;
use super::table::{Row, quantity, table, time};
use crate::floors::Floor;
use crate::rounds::Round;

/// All floors of a run.
#[derive(Clone, Debug, Serialize)]
pub struct FloorTable {
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
            floors: floors.iter().zip(rounds).filter_map(|(floor, rounds)| FloorReport::alone(floor, rounds)).collect(),
            machine: Machine::read(),
            spreads: rounds.iter().map(spread).collect(),
        }
    }

    /// The table on the terminal.
    pub fn text(&self) -> String {
        let header = ["floor", "ops/s", "time/op", "least", "most", "p50", "p90", "p99", "p99.9", "max", "CPU/op"];
        let rows: Vec<Row> = self.floors.iter().zip(&self.spreads).map(|(floor, spread)| row(floor, spread)).collect();
        let mut text = table(&header, &rows);
        for (floor, spread) in self.floors.iter().zip(&self.spreads) {
            let title = floor.floor.title();
            if let Some(pause) = spread.longest_pause_ns {
                text.push_str(&format!("{title}: longest pause {}\n", time(pause as f64)));
            }
            if let Some(bytes) = floor.bytes_per_entity {
                text.push_str(&format!("{title}: {bytes:.0} bytes per entity\n"));
            }
            if spread.disturbed > 0 {
                text.push_str(&format!("{title}: {} rounds were disturbed by other load\n", spread.disturbed));
            }
        }
        text
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
