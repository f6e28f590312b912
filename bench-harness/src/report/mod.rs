//! What the user sees: a progress line, a table at the end, and one JSON object.

mod floors;
mod json;
mod machine;
mod progress;
mod table;

pub use floors::FloorTable;
pub use json::{FloorReport, Report, ReportFile, RoundReport};
pub use machine::Machine;
pub use progress::ProgressLine;
pub use table::{Row, quantity, table, time};
