//! One core's state machine, composed of everything below: entities, links, queues, table.
//!
//! Pure: no sockets, threads or clock. `pod` adapts it to the loop of `runtime`; tests drive it directly.

mod bulk;
mod core;
mod counters;
#[cfg_attr(not(feature = "runtime"), allow(dead_code, reason = "some ways serve only the questions of clients"))]
mod dialing;
mod frames;
mod handshake;
mod held;
mod json_calls;
mod lanes;
mod link;
mod moves;
mod parcel;
mod parts;
mod payload;
#[cfg_attr(not(feature = "runtime"), allow(dead_code, reason = "asked by clients, which need the runtime"))]
mod questions;
#[cfg_attr(not(feature = "runtime"), allow(dead_code, reason = "some ways serve only the questions of clients"))]
mod routes;
mod serving;

pub use self::core::{Command, Core, CoreParts, CoreQueues, Inspector, Question, Released};
pub use counters::EngineCounters;
pub use link::LinkLimits;
pub use parcel::Parcel;
pub use routes::{Identity, LinkCommand, Routes};
