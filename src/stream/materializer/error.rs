//! Why a graph could not be materialized.

use std::error::Error;

use crate::stream::traversal::builder::IncompleteGraph;
use crate::stream::traversal::{IslandTag, ValueMismatch};

/// Why a graph could not be materialized. Nothing of it was started, and all that was made is dropped.
#[derive(Debug, thiserror::Error)]
pub enum MaterializationError {
    /// The graph has ports that lead nowhere.
    #[error(transparent)]
    Incomplete(#[from] IncompleteGraph),
    /// Two outlets lead to one inlet, in a traversal made by hand.
    #[error("inlet `{port}` is connected twice: each inlet has one outlet")]
    ConnectedTwice {
        /// `Operator.port`.
        port: String,
    },
    /// No factory was given for this kind of island.
    #[error("no phase is known for islands tagged `{tag}`: give the materializer a factory for it")]
    UnknownIsland {
        /// The tag.
        tag: IslandTag,
    },
    /// A phase does not understand an operator.
    #[error("phase `{phase}` does not take operator `{module}`: {reason}")]
    ModuleRefused {
        /// The phase.
        phase: String,
        /// The operator.
        module: String,
        /// What it expects.
        reason: String,
    },
    /// A phase cannot be connected to another island in this way.
    #[error("phase `{phase}` cannot {operation}: place the boundary of this island elsewhere")]
    BoundaryRefused {
        /// The phase.
        phase: String,
        /// What it was asked for.
        operation: &'static str,
    },
    /// A phase failed for a reason of its own.
    #[error("phase `{phase}` failed: {cause}")]
    Phase {
        /// The phase.
        phase: String,
        /// The reason.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// A function on materialized values was given another type.
    #[error(transparent)]
    Value(#[from] ValueMismatch),
    /// The commands make no sense, as in a pop of an empty stack, in a traversal made by hand.
    #[error("the traversal is malformed: {reason}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
}
