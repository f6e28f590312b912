//! How work crosses from one core to another inside a process.
//!
//! - [`spsc`]: one queue for each ordered pair of cores, for everything hot;
//! - [`in_place`]: an element that is read where it lies in its queue;
//! - [`doorbell`]: wakes a core that sleeps, at most once per sleep, and costs a busy core nothing;
//! - [`foreign`]: the inbox of a core for threads that are no cores (clients, file work, signals);
//! - [`woken`]: wake-ups of tasks from any thread, which can neither be lost nor overflow;
//! - [`sync`]: the atomics of all of these, which the model checker replaces.
//!
//! Called by the engine, the runtime (which owns the event that a [`doorbell::Bell`] rings) and the client.
//! Invariants: nothing here blocks, allocates after its construction or makes a system call (except through a
//! `Bell`); each value is delivered or dropped exactly once; whatever was pushed before a ring is seen by a consumer
//! that follows the protocol of the doorbell. `tests/mesh_loom.rs` checks these in all interleavings of small cases.

pub mod doorbell;
pub mod foreign;
pub mod in_place;
pub mod spsc;
pub mod sync;
pub mod woken;

pub use doorbell::{Bell, Doorbell};
pub use foreign::ForeignInbox;
pub use in_place::InPlace;
pub use spsc::{Consumer, Producer, channel};
pub use woken::{Woken, WokenNode, WokenStack};
