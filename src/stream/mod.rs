//! The stream engine: blueprints of processing graphs, and what runs them.
//!
//! From the user's side inwards:
//! - [`dsl`] is the typed language (sources, flows, sinks, graphs) and [`operators`] is what it is made of;
//! - [`stage`] is the interface for own operators;
//! - [`attributes`] say what is not wiring: names, buffers, placement, supervision;
//! - [`module`] is the leaf of a blueprint, opaque to what follows;
//! - [`traversal`] is the immutable description of a graph, and the builders that make one;
//! - [`materializer`] walks a traversal once, tracks islands and hands each module to the phase of its island;
//! - [`fused`] is the phase for stages; [`boundary`] is what connects its islands;
//! - [`interpreter`] runs the stages of an island, [`host`] the islands of a core.
//!
//! Called by whatever runs streams: the pod's cores, or a runtime for streams alone. Pure: no I/O, no clock, no threads.
//! A blueprint is `Send + Sync`; what runs is not.

pub mod attributes;
pub mod boundary;
pub mod completion;
pub mod dsl;
pub mod error;
pub mod fused;
pub mod host;
mod inline;
pub mod interpreter;
pub mod materializer;
pub mod module;
pub mod operators;
pub mod stage;
pub mod testkit;
pub mod traversal;

pub use attributes::{Attribute, Attributes, MandatoryAttribute};
pub use error::{Cancellation, StreamError};
pub use module::{AtomicModule, MaterializedValue, not_used};
