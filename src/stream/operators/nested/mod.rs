//! Streams of streams: flattening, grouping, splitting, alternatives.
//!
//! A source that comes as an element runs as an island of its own on the core of the stage that runs it.
//! [`NestedOps`] has the methods; elements that go between islands have to be `Send`.

mod flatten;
mod lazy;
mod restart;
mod split;
mod substream;

use std::hash::Hash;

use super::elementwise::ElementwiseOps;
use crate::stream::dsl::{FlowOps, Fusable, Plain, Source};
use crate::stream::error::StreamError;
pub use flatten::{FlattenMerge, FlattenMergeLogic, RecoverWith, RecoverWithLogic, SwitchLatest, SwitchLatestLogic};
pub use lazy::NeverMaterialized;
pub use restart::{RestartFlow, RestartSettings, RestartSink, RestartSource};
pub use split::{Cut, GroupBy, GroupByLogic, PrefixAndTail, PrefixAndTailLogic, Split, SplitLogic, TooManySubstreams};
pub(super) use substream::RingSink;
pub use substream::SubstreamUsed;

/// The first elements of a stream, and the source of the others.
pub type PrefixedTail<T> = (Vec<T>, Source<T>);

/// Operators with streams of streams.
pub trait NestedOps: FlowOps {
    /// Runs the source that the function makes of each element, one after the other. See [`FlattenMerge`].
    fn flat_map_concat<T: Send + 'static, M: 'static, P: Fusable<Out = T>>(
        self,
        function: impl FnMut(Self::Out) -> Source<T, M, P> + Clone + Send + Sync + 'static,
    ) -> Plain<Self, T> {
        self.flat_map_merge(1, function)
    }

    /// Runs the sources that the function makes of elements, up to `breadth` at once. See [`FlattenMerge`].
    fn flat_map_merge<T: Send + 'static, M: 'static, P: Fusable<Out = T>>(
        self,
        breadth: usize,
        mut function: impl FnMut(Self::Out) -> Source<T, M, P> + Clone + Send + Sync + 'static,
    ) -> Plain<Self, T> {
        let sources = self.map(move |element| function(element).map_materialized_value(drop));
        Self::from_chain(sources.via_stage(FlattenMerge::new(breadth)).into_chain())
    }

    /// Emits what the source of the latest element gives. See [`SwitchLatest`].
    fn switch_map<T: Send + 'static, M: 'static, P: Fusable<Out = T>>(
        self,
        mut function: impl FnMut(Self::Out) -> Source<T, M, P> + Clone + Send + Sync + 'static,
    ) -> Plain<Self, T> {
        let sources = self.map(move |element| function(element).map_materialized_value(drop));
        Self::from_chain(sources.via_stage(SwitchLatest::new()).into_chain())
    }

    /// See [`PrefixAndTail`].
    fn prefix_and_tail(self, wanted: usize) -> Plain<Self, PrefixedTail<Self::Out>>
    where
        Self::Out: Send,
    {
        self.via_stage(PrefixAndTail::new(wanted))
    }

    /// A substream for each key, `max` at most. See [`GroupBy`].
    fn group_by<K: Hash + Eq + Clone + Send + 'static>(
        self,
        max: usize,
        key: impl FnMut(&Self::Out) -> K + Clone + Send + Sync + 'static,
    ) -> Plain<Self, (K, Source<Self::Out>)>
    where
        Self::Out: Send,
    {
        self.via_stage(GroupBy::new(max, key))
    }

    /// A new substream before each element for which the predicate holds. See [`Split`].
    fn split_when(
        self,
        predicate: impl FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    ) -> Plain<Self, Source<Self::Out>>
    where
        Self::Out: Send,
    {
        self.via_stage(Split::new(Cut::When, predicate))
    }

    /// A new substream after each element for which the predicate holds. See [`Split`].
    fn split_after(
        self,
        predicate: impl FnMut(&Self::Out) -> bool + Clone + Send + Sync + 'static,
    ) -> Plain<Self, Source<Self::Out>>
    where
        Self::Out: Send,
    {
        self.via_stage(Split::new(Cut::After, predicate))
    }

    /// Goes on with another source each time upstream fails. See [`RecoverWith`].
    fn recover_with(
        self,
        alternative: impl FnMut(&StreamError) -> Option<Source<Self::Out>> + Clone + Send + Sync + 'static,
    ) -> Plain<Self, Self::Out>
    where
        Self::Out: Send,
    {
        self.via_stage(RecoverWith::new(None, alternative))
    }

    /// As [`NestedOps::recover_with`], for so many failures.
    fn recover_with_retries(
        self,
        attempts: u32,
        alternative: impl FnMut(&StreamError) -> Option<Source<Self::Out>> + Clone + Send + Sync + 'static,
    ) -> Plain<Self, Self::Out>
    where
        Self::Out: Send,
    {
        self.via_stage(RecoverWith::new(Some(attempts), alternative))
    }
}

impl<S: FlowOps> NestedOps for S {}

/// Operators on streams whose elements are sources.
pub trait FlattenOps<T: Send + 'static>: FlowOps<Out = Source<T>> {
    /// One after the other.
    fn flatten(self) -> Plain<Self, T> {
        self.via_stage(FlattenMerge::new(1))
    }

    /// Up to `breadth` at once.
    fn flatten_merge(self, breadth: usize) -> Plain<Self, T> {
        self.via_stage(FlattenMerge::new(breadth))
    }
}

impl<T: Send + 'static, S: FlowOps<Out = Source<T>>> FlattenOps<T> for S {}
