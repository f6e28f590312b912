//! The operators: stages, and the extension traits that put them into the DSL.
//!
//! One file for each family. An operator that is a function of single elements is a [`Fusable`](super::dsl::Fusable);
//! everything else is a [`GraphStage`](super::stage::GraphStage), made as `stage::made` says. `prelude` has all traits.

pub mod accumulating;
pub mod buffers;
pub mod closing;
pub mod elementwise;
pub mod fan_in;
pub mod fan_out;
pub mod framing;
pub mod gatherers;
pub mod gatherings;
pub mod generators;
pub mod groups;
pub mod maybe;
pub mod nested;
mod passing;
pub mod resources;
pub mod selection;
pub mod sinks;
pub mod sources;
pub mod stateful;
pub mod watching;
pub mod whole;

pub(crate) mod flights;
pub mod futures;
pub mod map_async;
pub mod queues;
pub mod rates;
pub mod switches;
pub mod timeouts;
pub mod within;

pub use accumulating::AccumulatingOps;
pub use buffers::{BufferOps, OverflowStrategy};
pub use elementwise::ElementwiseOps;
pub use fan_in::{
    Concat, FanInOps, Interleave, Merge, MergePreferred, MergeSorted, OrElse, Zip, ZipLatestWith, ZipN, ZipWith,
};
pub use fan_out::{Balance, Broadcast, FanOutOps, Partition, PartitionOutOfBounds, Unzip, UnzipWith, WireTap};
pub use framing::{ByteOrder, FieldLength, FramingError, FramingOps, SimpleFraming};
pub use groups::GroupOps;
pub use nested::{FlattenOps, NestedOps};
pub use selection::SelectionOps;
pub use stateful::StatefulOps;
pub use watching::WatchingOps;

pub use flights::PARALLELISM_MAX;
pub use futures::AsyncAccumulatingOps;
pub use map_async::MapAsyncOps;
pub use queues::{BoundedQueue, Offered, SinkQueue};
pub use rates::{DelayStrategy, Rate, RateExceeded, RateOps, ThrottleMode};
pub use switches::{FlowMonitor, KillSwitches, MonitorState, SharedKillSwitch, TerminationOps, UniqueKillSwitch};
pub use timeouts::{StreamTimeout, TimeoutOps};
pub use within::{TickHandle, WithinOps};

/// Everything that a graph is written with.
pub mod prelude {
    pub use super::{
        AccumulatingOps, AsyncAccumulatingOps, BufferOps, ElementwiseOps, FanInOps, FanOutOps, FlattenOps, FramingOps,
        GroupOps, MapAsyncOps, NestedOps, RateOps, SelectionOps, StatefulOps, TerminationOps, TimeoutOps, WatchingOps,
        WithinOps,
    };
    pub use crate::stream::dsl::{BidiFlow, Flow, FlowOps, GraphBuilder, RunnableGraph, Sink, Source, keep};
}
