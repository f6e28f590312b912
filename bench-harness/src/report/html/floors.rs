//! The page of floors alone.

use super::scenarios::dot;
use super::{Curve, Page, Role, Section, Strip};
use crate::report::json::FloorReport;
use crate::report::{FloorTable, quantity};

impl FloorTable {
    /// The page of this run.
    pub fn page(&self) -> Page {
        Page {
            title: "Load test: floors".to_owned(),
            provenance: self.provenance.clone(),
            machine: self.machine.clone(),
            facts: Vec::new(),
            columns: FloorTable::COLUMNS.to_vec(),
            rows: self.rows(),
            notes: self.notes(),
            bars: Vec::new(),
            sections: self.floors.iter().map(section).collect(),
        }
    }
}

fn section(floor: &FloorReport) -> Section {
    let mut curve = Curve::default();
    curve.line(floor.floor.name(), Role::Floor, &floor.latencies);
    // Alone, the floor is what is measured.
    let strip = Strip {
        figure: "time of an operation",
        subject: floor.floor.name().to_owned(),
        floor: String::new(),
        dots: floor.rounds.iter().map(|round| dot(round, floor.ratio_basis)).collect(),
    };
    Section {
        name: floor.floor.title(),
        lead: format!("{} operations/s", quantity(floor.operations_per_second)),
        refused: None,
        curve,
        strip,
    }
}
