//! Builders: they track what a graph still needs until every outlet is wired, and then shed all of that.
//!
//! Wiring means to tell outlets their slot; an inlet has its slot by its place. So a traversal exists as soon as every
//! outlet is wired. [`LinearBuilder`] is the fast way for chains; [`CompositeBuilder`] takes parts in any order and keeps
//! each at its place; [`AtomicBuilder`] is one operator with several outlets; a [`CompletedBuilder`] has only inlets left.
//!
//! A part can be imported many times: [`CompositeBuilder::add`] gives new ports for each import, which it maps to those of
//! the part by their position. Invariant: positions of the ports of a part never change while it is a part of another.

mod atomic;
mod completed;
mod composite;
mod level;
mod linear;
mod part;

pub use atomic::AtomicBuilder;
pub use completed::CompletedBuilder;
pub use composite::{Added, CompositeBuilder, InPort, OutPort, SealedComposite};
use level::{Extent, Level};
pub use linear::LinearBuilder;
pub use part::TraversalBuilder;

/// Wiring that cannot be. Ports are named `Operator.port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// A port is wired twice.
    #[error("[{port}] is already connected: a port has one wire; use a junction to merge or to broadcast")]
    AlreadyConnected {
        /// The port.
        port: String,
    },
    /// A port of another builder, or one that was never given out.
    #[error("this port was not given out by this builder: use the ports that `add` returned")]
    UnknownPort,
    /// A chain can go on only with a part that has one inlet.
    #[error("[{part}] has no free inlet: only a part with one inlet can follow the dangling outlet of a chain")]
    NoInlet {
        /// The part.
        part: String,
    },
    /// A chain can go on only where it has an outlet.
    #[error("nothing can follow [{part}]: it has no free outlet")]
    NoOutlet {
        /// The part.
        part: String,
    },
    /// A part with several free inlets or outlets was put into a chain.
    #[error("a chain takes parts with at most one inlet and one outlet; this has {inlets} and {outlets}: use a graph")]
    NotLinear {
        /// Free inlets.
        inlets: usize,
        /// Free outlets.
        outlets: usize,
    },
    /// The resulting shape of a graph has ports that are wired inside.
    #[error("illegal graph: {ports:?} were returned in the resulting shape but were already connected")]
    ReturnedButConnected {
        /// The ports.
        ports: Vec<String>,
    },
    /// The resulting shape of a graph lacks ports that are not wired.
    #[error("illegal graph: {ports:?} were not returned in the resulting shape and not connected")]
    NeitherReturnedNorConnected {
        /// The ports.
        ports: Vec<String>,
    },
}

/// A graph with ports that lead nowhere was to be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the graph is incomplete: connect {}", unconnected.join(", "))]
pub struct IncompleteGraph {
    /// The ports, as `Operator.port`.
    pub unconnected: Vec<String>,
}
