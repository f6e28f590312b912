//! The typed language for streams: sources, flows, sinks, and graphs of them.
//!
//! Thin wrappers around the builders of [`crate::stream::traversal`]: types keep element types and materialized values
//! apart, so what compiles is wired correctly. Everything here is a blueprint: immutable, cheap to clone, shared between
//! threads. [`RunnableGraph::run`] makes a running stream of it.

mod bidi;
mod context;
mod flow;
pub mod flow_ops;
pub mod fusing;
pub mod graph;
mod runnable;
mod sink;
mod source;

pub use bidi::BidiFlow;
pub use context::{FlowWithContext, OnElement, SourceWithContext, WithContext};
pub use flow::Flow;
pub use flow_ops::{FlowOps, Plain};
pub use fusing::{Fusable, Identity};
pub use graph::{GraphBuilder, InPort, OutPort, Part};
pub use runnable::{NoHost, RunnableGraph};
pub use sink::Sink;
pub use source::Source;

/// Functions that combine materialized values.
pub mod keep {
    /// The value of what was there.
    pub fn left<L, R>(left: L, _: R) -> L {
        left
    }

    /// The value of what was added.
    pub fn right<L, R>(_: L, right: R) -> R {
        right
    }

    /// Both.
    pub fn both<L, R>(left: L, right: R) -> (L, R) {
        (left, right)
    }

    /// Neither.
    pub fn none<L, R>(_: L, _: R) {}
}
