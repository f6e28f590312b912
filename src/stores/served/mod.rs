//! The store of several pods: one process, `atoll manager`, serves its records to all.
//!
//! [`StoreServer`] is what the manager runs, [`ServedStore`] what the control thread of a pod uses; the saved state of
//! entities ([`crate::stores::state`]) goes the same way, over connections of its own. The semantics are those of
//! [`crate::control::store_state`], as everywhere.

mod client;
mod connection;
mod core;
mod disk;
pub(crate) mod link;
mod outlet;
pub(crate) mod protocol;
mod server;
#[cfg(test)]
mod tests;

pub use self::core::{LeaseClock, ServerCounters};
pub use client::{ConnectError, ServedStore, Wake};
pub use protocol::Broken;
pub use server::{CONNECTIONS_MAX, QUEUE_BYTES_MAX, ServerError, ServerOptions, StoreServer};
