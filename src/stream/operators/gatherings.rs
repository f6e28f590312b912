//! The blueprints of gatherings, shared by [`super::sinks`] and [`super::closing`]. What each does is said there.

use super::gatherers::{
    Collecting, Counting, Deciding, Folding, FoldingWhile, ForEach, Heading, Lasting, Reducing, Required, Tailing,
};
use crate::stream::error::StreamError;
use crate::stream::stage::gathering::{GatherWith, Gathering};

/// What can be folded into: cloned for each run, and sent to whoever waits for it.
pub trait Folded: Clone + Send + Sync + 'static {}
impl<A: Clone + Send + Sync + 'static> Folded for A {}

/// What can be the outcome of a stream: it is sent to whoever waits for it.
pub trait Outcome: Send + 'static {}
impl<T: Send + 'static> Outcome for T {}

/// A collection of elements that can be the outcome of a stream.
pub trait Collected<T>: Default + Extend<T> + Send + 'static {}
impl<T, C: Default + Extend<T> + Send + 'static> Collected<T> for C {}

pub(super) fn ignore<T: 'static>() -> impl Gathering<In = T, Out = ()> {
    GatherWith::new("ignore", || {
        ForEach::new(|element: T| {
            drop(element);
            Ok(())
        })
    })
}

pub(super) fn for_each<T: 'static>(
    function: impl FnMut(T) + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = ()> {
    GatherWith::new("for_each", move || {
        let mut function = function.clone();
        ForEach::new(move |element| {
            function(element);
            Ok(())
        })
    })
}

pub(super) fn try_for_each<T: 'static>(
    function: impl FnMut(T) -> Result<(), StreamError> + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = ()> {
    GatherWith::new("for_each", move || ForEach::new(function.clone()))
}

pub(super) fn fold<T: 'static, A: Folded>(
    zero: A,
    function: impl FnMut(A, T) -> A + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = A> {
    GatherWith::new("fold", move || {
        let mut function = function.clone();
        Folding::new(zero.clone(), move |state, element| Ok(function(state, element)))
    })
}

pub(super) fn try_fold<T: 'static, A: Folded>(
    zero: A,
    function: impl FnMut(A, T) -> Result<A, StreamError> + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = A> {
    GatherWith::new("fold", move || Folding::new(zero.clone(), function.clone()))
}

pub(super) fn fold_while<T: 'static, A: Folded>(
    zero: A,
    predicate: impl FnMut(&A) -> bool + Clone + Send + Sync + 'static,
    function: impl FnMut(A, T) -> A + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = A> {
    GatherWith::new("fold_while", move || {
        let mut function = function.clone();
        FoldingWhile::new(zero.clone(), predicate.clone(), move |state, element| Ok(function(state, element)))
    })
}

pub(super) fn reduce<T: Clone + Send + 'static>(
    function: impl FnMut(T, T) -> T + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = T> {
    GatherWith::new("reduce", move || Reducing::new(function.clone()))
}

pub(super) fn head<T: Outcome>() -> impl Gathering<In = T, Out = T> {
    GatherWith::new("head", || Required(Heading::new()))
}

pub(super) fn head_option<T: Outcome>() -> impl Gathering<In = T, Out = Option<T>> {
    GatherWith::new("head_option", Heading::new)
}

pub(super) fn last<T: Outcome>() -> impl Gathering<In = T, Out = T> {
    GatherWith::new("last", || Required(Lasting::new()))
}

pub(super) fn last_option<T: Outcome>() -> impl Gathering<In = T, Out = Option<T>> {
    GatherWith::new("last_option", Lasting::new)
}

pub(super) fn take_last<T: Outcome>(wanted: usize) -> impl Gathering<In = T, Out = Vec<T>> {
    GatherWith::new("take_last", move || Tailing::new(wanted))
}

pub(super) fn collect<T: 'static, C: Collected<T>>() -> impl Gathering<In = T, Out = C> {
    GatherWith::new("collect", Collecting::new)
}

pub(super) fn count<T: 'static>() -> impl Gathering<In = T, Out = u64> {
    GatherWith::new("count", Counting::new)
}

pub(super) fn forall<T: 'static>(
    predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = bool> {
    GatherWith::new("forall", move || Deciding::new(predicate.clone(), false, false))
}

pub(super) fn exists<T: 'static>(
    predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = bool> {
    GatherWith::new("exists", move || Deciding::new(predicate.clone(), true, true))
}

pub(super) fn none<T: 'static>(
    predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static,
) -> impl Gathering<In = T, Out = bool> {
    GatherWith::new("none", move || Deciding::new(predicate.clone(), true, false))
}
