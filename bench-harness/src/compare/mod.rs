//! `atoll-bench compare A.json B.json`: what changed from one run to another, and what of that is more than noise.
//!
//! `read` takes files apart, `noise` says how far a figure moves by itself, `verdict` puts both together for each
//! scenario, and [`table`](Comparison::table) prints it. Pure but for the reading of the two files.

mod noise;
mod read;
mod verdict;

use std::path::Path;

use serde::Serialize;

use crate::arguments::CompareArguments;
use crate::report::{Files, Machine, Row, table};

pub use noise::Change;
pub use read::{ReadError, RunFile};
pub use verdict::{RowChange, Verdict};

/// Two runs, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The earlier run.
    pub before: Origin,
    /// The later run.
    pub after: Origin,
    /// One for each scenario of either run.
    pub rows: Vec<RowChange>,
}

/// Where one side of a comparison comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// When it was made, in UTC.
    pub measured_at: String,
    /// The command line that made it.
    pub command_line: String,
    /// Where it was measured.
    pub machine: Machine,
}

/// Compares two files and prints the table. Whether a row is worse.
///
/// # Errors
/// [`ReadError`] if a file is no report, or the two cannot be compared at all.
pub fn run(arguments: &CompareArguments, files: &Files) -> anyhow::Result<bool> {
    files.only_json()?;
    let comparison = Comparison::new(&read(&arguments.before)?, &read(&arguments.after)?)?;
    print!("{}", comparison.table());
    files.write_json(&comparison)?;
    Ok(comparison.is_worse())
}

fn read(path: &Path) -> Result<RunFile, ReadError> {
    RunFile::read(path)
}

impl Comparison {
    /// What changed from `before` to `after`.
    ///
    /// # Errors
    /// [`ReadError::OtherKind`] if one has scenarios and the other something else.
    pub fn new(before: &RunFile, after: &RunFile) -> Result<Self, ReadError> {
        if before.kind != after.kind {
            let (first, second) = (before.file.clone(), after.file.clone());
            return Err(ReadError::OtherKind { first, first_kind: before.kind, second, second_kind: after.kind });
        }
        Ok(Self { before: before.origin(), after: after.origin(), rows: verdict::rows(before, after) })
    }

    /// Whether a row is worse beyond the noise.
    pub fn is_worse(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.verdict, Verdict::Worse { .. }))
    }

    /// The table for the terminal.
    pub fn table(&self) -> String {
        let cell = |change: &Option<Change>| change.map_or_else(|| "–".to_owned(), |change| change.to_string());
        let rows: Vec<Row> = self
            .rows
            .iter()
            .map(|row| {
                let changes = [&row.operations_per_second, &row.p50, &row.p99, &row.floor_ratio].map(cell);
                let cells = core::iter::once(row.scenario.clone()).chain(changes).chain([row.verdict.to_string()]);
                Row { cells: cells.collect() }
            })
            .collect();
        let origin = |letter: &str, origin: &Origin| {
            format!(
                "{letter}  {}, {}: {}\n   {}\n",
                origin.file,
                origin.measured_at,
                origin.command_line,
                origin.machine.line()
            )
        };
        format!(
            "{}{}\n{}\nFrom A to B; ± is the noise band, and only what goes beyond it counts. More operations/s, shorter times and\n\
             smaller ratios are better. Machines drift: what the floors moved by belongs to the band, the ratio is free of it.\n",
            origin("A", &self.before),
            origin("B", &self.after),
            table(&["scenario", "ops/s", "p50", "p99", "floor ratio", "verdict"], &rows),
        )
    }
}

#[cfg(test)]
mod tests;
