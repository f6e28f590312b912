//! Methods of sources that close the graph with a gathering, for which there is a [`Sink`] of the same name.
//!
//! If the source begins with [`Source::from_iterator`] and everything behind is fused, the whole stream becomes one stage
//! that runs in one loop ([`super::whole`]); otherwise this is `to_right` of the sink.

use super::gatherings::{self, Collected, Folded, Outcome};
use crate::stream::completion::Completion;
use crate::stream::dsl::{Fusable, RunnableGraph, Sink, Source};
use crate::stream::error::StreamError;
use crate::stream::stage::gathering::Gathering;

impl<Out: 'static, Mat: 'static, P: Fusable<Out = Out>> Source<Out, Mat, P> {
    /// Closes the graph with a gathering.
    pub fn into_gathering<G: Gathering<In = Out>>(self, gathering: G) -> RunnableGraph<Completion<G::Out>> {
        if self.chain.tail_attributes.is_empty()
            && let Some(whole) = self.chain.tail.whole(gathering.clone())
        {
            return whole.into_graph(self.chain.names);
        }
        self.to_right(Sink::gather(gathering))
    }

    /// As [`Sink::ignore`].
    pub fn into_ignore(self) -> RunnableGraph<Completion<()>> {
        self.into_gathering(gatherings::ignore())
    }

    /// As [`Sink::for_each`].
    pub fn into_for_each(
        self,
        function: impl FnMut(Out) + Clone + Send + Sync + 'static,
    ) -> RunnableGraph<Completion<()>> {
        self.into_gathering(gatherings::for_each(function))
    }

    /// As [`Sink::try_for_each`].
    pub fn into_try_for_each(
        self,
        function: impl FnMut(Out) -> Result<(), StreamError> + Clone + Send + Sync + 'static,
    ) -> RunnableGraph<Completion<()>> {
        self.into_gathering(gatherings::try_for_each(function))
    }

    /// As [`Sink::fold`].
    ///
    /// ```
    /// use atoll::stream::dsl::Source;
    /// use atoll::stream::operators::ElementwiseOps;
    ///
    /// // The iterator, the operator and the sum run in one loop.
    /// let sum = Source::from_iterator(|| 1..=100_u64).map(|n| n * n).into_fold(0, |sum, n| sum + n);
    /// # drop(sum);
    /// ```
    pub fn into_fold<A: Folded>(
        self,
        zero: A,
        function: impl FnMut(A, Out) -> A + Clone + Send + Sync + 'static,
    ) -> RunnableGraph<Completion<A>> {
        self.into_gathering(gatherings::fold(zero, function))
    }

    /// As [`Sink::fold_while`].
    pub fn into_fold_while<A: Folded>(
        self,
        zero: A,
        predicate: impl FnMut(&A) -> bool + Clone + Send + Sync + 'static,
        function: impl FnMut(A, Out) -> A + Clone + Send + Sync + 'static,
    ) -> RunnableGraph<Completion<A>> {
        self.into_gathering(gatherings::fold_while(zero, predicate, function))
    }

    /// As [`Sink::reduce`].
    pub fn into_reduce(
        self,
        function: impl FnMut(Out, Out) -> Out + Clone + Send + Sync + 'static,
    ) -> RunnableGraph<Completion<Out>>
    where
        Out: Clone + Send,
    {
        self.into_gathering(gatherings::reduce(function))
    }

    /// As [`Sink::head`].
    pub fn into_head(self) -> RunnableGraph<Completion<Out>>
    where
        Out: Outcome,
    {
        self.into_gathering(gatherings::head())
    }

    /// As [`Sink::head_option`].
    pub fn into_head_option(self) -> RunnableGraph<Completion<Option<Out>>>
    where
        Out: Outcome,
    {
        self.into_gathering(gatherings::head_option())
    }

    /// As [`Sink::last`].
    pub fn into_last(self) -> RunnableGraph<Completion<Out>>
    where
        Out: Outcome,
    {
        self.into_gathering(gatherings::last())
    }

    /// As [`Sink::last_option`].
    pub fn into_last_option(self) -> RunnableGraph<Completion<Option<Out>>>
    where
        Out: Outcome,
    {
        self.into_gathering(gatherings::last_option())
    }

    /// As [`Sink::seq`].
    pub fn into_seq(self) -> RunnableGraph<Completion<Vec<Out>>>
    where
        Out: Outcome,
    {
        self.into_gathering(gatherings::collect())
    }

    /// As [`Sink::collect`].
    pub fn into_collection<C: Collected<Out>>(self) -> RunnableGraph<Completion<C>> {
        self.into_gathering(gatherings::collect())
    }

    /// As [`Sink::count`].
    pub fn into_count(self) -> RunnableGraph<Completion<u64>> {
        self.into_gathering(gatherings::count())
    }
}
