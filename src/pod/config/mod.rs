//! The configuration of a pod: every key, its default, and where each value came from.
//!
//! Called by the pod's builder, by programs that embed a pod ([`Config::load`]) and by the command line. `keys` is the
//! one table: the structs, the defaults, `config/reference.toml`, `atoll config show` and the error messages are made
//! from it. `sources` resolves flag > environment > file > default without any I/O; only `load` reads files and the
//! environment.
//!
//! Invariants: a `Config` from [`Config::resolve`] or [`Config::load`] passed [`Config::problems`]; every problem is
//! one sentence that names its place (file and line, variable, flag) and says what to do; nothing here panics on input.

mod keys;
mod load;
mod problem;
mod reference;
mod setting;
mod sources;
mod suggest;
mod units;
mod validate;

pub use keys::{
    Config, ControlSection, EntitiesSection, Key, LinksSection, LogSection, LoopSection, MANAGER_PORT, PodSection,
    SectionInfo, ShardingSection,
};
pub use load::cores_available;
pub use problem::{ConfigError, Place, Problem};
pub use reference::{reference, show, show_json};
pub use setting::{Cores, Given, LogFormat, Setting, Spin, Store, Written};
pub use sources::{FileText, Flag, Loaded, Origin, Sources};
pub use suggest::nearest;
pub use units::{format_bytes, format_duration, parse_bytes, parse_duration};
