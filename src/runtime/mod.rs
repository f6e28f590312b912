//! One thread per core: executor, ring, clock, and the loop that drives an engine.
//!
//! Called by `pod` and `client`, which implement [`Engine`] and start the cores with [`executor::prepare`]. What lives here:
//! [`engine_port`] (what the loop drives), [`pump`] (the loop), `reactor` (links over the ring, safe code),
//! [`uring`] (the only system calls made by hand), [`clock`], [`counters`], [`executor`] (threads) and [`watchdog`].
//! The bookkeeping that decides when memory or a descriptor may be reused (`operations`, `links`, `greetings`)
//! does no I/O, so that Miri and property tests run it.
//!
//! Invariants: a ring and everything in it stay on the thread that made them; a descriptor is closed only when no operation
//! names it; an engine hears `closed` exactly once per link.

pub mod clock;
pub mod counters;
pub mod engine_port;
pub mod executor;
mod greetings;
pub mod helpers;
mod links;
mod operations;
pub mod options;
pub mod pump;
mod reactor;
pub mod streams;
pub mod transit;
pub mod uring;
pub mod watchdog;

pub use clock::{Clock, boot_time};
pub use counters::{CoreCounters, CounterValues};
pub use engine_port::{CloseReason, Engine, HELLO_BYTES, SocketCommand};
pub use executor::{
    CoreContext, CorePlacement, CoresHandle, CoresOptions, CoresPlan, StartError, prepare, start_cores,
    usable_processors,
};
pub use helpers::{HelperGuard, Helpers};
pub use options::{LinkLimits, PumpOptions, Spin};
pub use streams::{StreamRuntime, StreamRuntimeError};
pub use transit::Transit;
pub use uring::bell::EventBell;
pub use uring::probe::{Feature, probe};
pub use watchdog::{Activity, Watchdog};
