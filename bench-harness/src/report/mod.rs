//! What the user sees: a progress line, a table at the end, and files: one JSON object, distributions as plotters read
//! them, and a page with pictures.

mod files;
mod floors;
mod hgrm;
pub mod html;
mod json;
mod machine;
mod progress;
mod provenance;
mod table;
mod targets;

pub use files::{Distribution, Files};
pub use floors::FloorTable;
pub use json::{FloorReport, Report, ReportFile, RoundReport};
pub use machine::Machine;
pub use progress::ProgressLine;
pub use provenance::{Provenance, ReportKind, SCHEMA_VERSION};
pub use table::{Row, quantity, table, time};
pub use targets::floor_ratio_max;
pub(crate) use targets::stream_ratio_max;
