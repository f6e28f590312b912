//! The interpreter: runs the fused stages of an island.
//!
//! `builder` makes an [`Island`] out of stages and wires; the host of a core's streams runs it. An element moves from an
//! outlet through the slot of a connection to an inlet without being boxed; what happens next is an event, which is a
//! connection and a function, and most events follow one another without going through the queue. The semantics are
//! those of Akka's `GraphInterpreter`; the dispatch is that of a study that reached 3 ns a hop.

mod arena;
pub(crate) mod builder;
pub(crate) mod connection;
mod context;
pub(crate) mod events;
mod inbox;
mod island;
mod overrides;
mod ports;
pub mod snapshot;
mod timers;

pub use builder::{PortWiring, WiringError};
pub use context::{Context, IslandId};
pub use inbox::IslandWake;
pub(crate) use inbox::{IslandInbox, StageWake};
pub use island::{EVENTS_PER_RUN, Island, RunState};
pub use ports::{Inlet, Outlet};
pub use timers::TimerKey;
