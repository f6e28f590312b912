//! The stream engine: blueprints of processing graphs, and what turns them into running streams.
//!
//! - [`attributes`] say what is not wiring: names, buffers, placement, supervision;
//! - [`module`] is the leaf of a blueprint, opaque to what follows;
//! - [`traversal`] is the immutable description of a graph, and the builders that make one;
//! - [`materializer`] walks a traversal once, tracks islands and hands each module to the phase of its island;
//! - [`stage`] and [`error`] belong to the fused island, which is one such phase.
//!
//! Called by the typed DSL. Pure: no I/O, no clock, no threads. A blueprint is `Send + Sync`; what runs is not.

pub mod attributes;
pub mod error;
mod inline;
pub mod materializer;
pub mod module;
pub mod stage;
pub mod traversal;

pub use attributes::{Attribute, Attributes, MandatoryAttribute};
pub use error::StreamError;
pub use module::{AtomicModule, MaterializedValue, not_used};
