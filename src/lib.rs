//! atoll: a thread-per-core server for addressed, sharded, single-writer entities.
//!
//! A trait with [`protocol`] names the messages of an entity type; a struct that implements it and [`Entity`] is the
//! entity. A [`Pod`] hosts entities, a [`Client`] only talks to them; both hand out a [`Messenger`] for each type, whose
//! references have a method for each message. [`services::guild`] is a small service in full.
//!
//! ```no_run
//! use atoll::services::guild::{GuildEntity, GuildRef};
//! use atoll::{Config, EntityOptions, Pod};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pod = Pod::builder()
//!     .config(Config::load()?)
//!     .entity::<GuildEntity>(EntityOptions::default())
//!     .start()?;
//! let guild = pod.messenger::<GuildRef>().entity("g1");
//! let ask = guild.join("ann".to_owned()); // a future: await it on any executor
//! # drop(ask);
//! pod.wait()?; // until SIGTERM
//! # Ok(()) }
//! ```
//!
//! The folders are layers; a lower one never names a higher one (`tests/layers.rs` fails on a wrong edge):
//! `base` < `wire`, `mesh` < `stream`, `entity` < `sharding`, `control` < `engine` < `stores`, `runtime`, `transport` <
//! `client`, `pod` < `services`, `cli`. Everything up to `engine` is pure: no sockets, files, threads or clock.
//! `docs/architecture.md` says how a message flows through them.
#![warn(missing_docs)]
#![deny(unsafe_code)]

extern crate self as atoll;

pub mod base;
pub mod control;
pub mod engine;
pub mod entity;
pub mod mesh;
pub mod services;
pub mod sharding;
pub mod stream;
pub mod wire;

#[cfg(feature = "runtime")]
pub mod cli;
#[cfg(feature = "runtime")]
pub mod client;
#[cfg(feature = "runtime")]
pub mod pod;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod stores;
#[cfg(feature = "runtime")]
pub mod transport;

pub use atoll_macros::{Wire, protocol};
pub use base::{ClusterError, EntityId, SendError};
#[cfg(feature = "runtime")]
pub use client::Client;
pub use entity::{
    Ask, Discard, Entity, EntityOptions, FenceError, Gone, Messenger, Protocol, Scope, StartError, StopReason, View,
    ViewOf, sleep, spawn,
};
#[cfg(feature = "runtime")]
pub use pod::{Pod, config::Config};
/// For the types of `json` protocols: derive its traits with `#[serde(crate = "atoll::serde")]`.
pub use serde;
#[cfg(feature = "runtime")]
pub use stores::StateStore;
pub use wire::never::Never;
pub use wire::schema::Wire;

/// What the code made by the macros of this crate names. Not for use by hand.
#[doc(hidden)]
pub mod private {
    pub use rkyv;
    pub use serde;

    pub use crate::entity::{HandlerCall, Infallible};
    pub use crate::wire::schema;

    /// Makes an owned argument of one that lies in a body.
    ///
    /// # Errors
    /// If a hand-written implementation of rkyv's `Deserialize` refuses it.
    #[inline]
    pub fn owned<T: crate::Wire>(archived: &T::Archived) -> Result<T, crate::wire::CodecError> {
        crate::wire::codec::owned(archived)
    }

    /// Compiles for types that may travel.
    pub const fn travels<T: crate::Wire>() {}
}
