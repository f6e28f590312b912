//! The control plane: who owns a shard, decided through records in a store.
//!
//! Called by the control thread of a pod (and by `atoll manager`), never on the path of a message. Pure: the state
//! machines emit [`StoreRequest`]s and consume [`StoreResponse`]s and [`StoreEvent`]s; the back ends are in `stores`.
//!
//! The parts: [`keys`] and [`records`] say what is stored; [`store`] is the model of a store and [`store_state`] its
//! semantics; [`view`] mirrors the records; [`planner`] is the pure decision; [`membership`] joins, keeps and leaves
//! the cluster; [`ownership`] claims shards, writes the plan and builds the tables; [`handover`] gives shards away;
//! [`orders`] takes those of an admin; [`driver`] runs it all against a blocking store.
//!
//! Invariants: the manager writes only the plan; a pod writes the ownership record of a shard itself, under its own
//! lease, only if there is none, so two owners cannot exist; the token of a shard is the revision at which its record
//! was created (plus the cluster's base), so a later owner has a larger one; a pod is frozen before its lease can lapse.

pub mod config;
pub mod driver;
pub mod handover;
pub mod keys;
pub mod membership;
pub mod memory;
pub mod orders;
pub mod ownership;
pub mod planner;
pub mod records;
pub mod store;
pub mod store_state;
pub mod view;

#[cfg(test)]
mod tests;

use core::time::Duration;

pub use config::{ControlConfig, Refusal};
pub use driver::{ControlDriver, StartError};
pub use handover::HandOver;
pub use keys::{KeySpace, RecordKey};
pub use membership::{ControlEffect, ControlEvent, ControlNotice, PodControl};
pub use memory::MemoryStore;
pub use orders::{Order, OrderError};
pub use planner::{Move, Plan, PlannerInput, PlannerPod, plan};
pub use store::{Store, StoreError, StoreEvent, StoreRequest, StoreResponse, StoreWaker};

/// Time after which a lease lapses when it is not renewed, by default.
pub const LEASE_TTL: Duration = Duration::from_secs(5);
/// Shortest lease: etcd grants no shorter one.
pub const LEASE_TTL_MIN: Duration = Duration::from_secs(2);
/// Least time before the lapse at which a pod freezes itself: covers a late turn of the control thread.
pub const FREEZE_MARGIN_MIN: Duration = Duration::from_millis(500);
/// Time between two rounds of rebalancing, by default.
pub const REBALANCE_INTERVAL: Duration = Duration::from_secs(20);
/// Share of all shards that one pod may gain in a round, in thousandths.
pub const REBALANCE_RATE_PER_MILLE: u32 = 20;
/// How long the manager waits after the loss of a pod: it may come back, and others may be lost with it.
pub const SETTLE: Duration = Duration::from_millis(500);
/// Time after which a request to the store counts as failed.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before a failed request is sent again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Longest time that a table is held back because more claims are about to succeed.
pub const PUBLISH_HOLD_MAX: Duration = Duration::from_millis(250);
/// Records that one range read returns when the whole cluster is listed: about 200 KB.
pub const LIST_PAGE: u32 = 1000;
/// Transactions in flight for claims and plan pages.
pub const WRITES_IN_FLIGHT_MAX: usize = 32;
/// Shards of one pod that are on their way to others at a time. Each batch costs a few writes to the store, for which
/// the messages of its shards wait: a larger batch waits longer, a smaller one makes a stop slow.
pub const RELEASES_IN_FLIGHT_MAX: usize = 32;
/// Longest time that a shard which was given up, and which nobody took, holds up the next ones.
pub const HAND_OVER_SLOT_MAX: Duration = Duration::from_secs(1);
