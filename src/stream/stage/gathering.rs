//! Functions that gather the elements of a stream into one value: what most sinks are.
//!
//! A [`Gathering`] is the blueprint, a [`Gatherer`] the running function. The same ones serve as a sink, as a flow that
//! emits the value, and as the end of a whole stream that runs in one loop (`operators::whole`).

use std::marker::PhantomData;

use super::elementwise::{Elementwise, Step};
use super::supervised::attempt;
use crate::stream::attributes::{Directive, Supervision};
use crate::stream::dsl::Fusable;
use crate::stream::error::StreamError;

/// What became of the gathering with an element.
#[derive(Debug)]
pub enum Gathered<T> {
    /// The next element is wanted.
    More,
    /// The outcome is known; no more is wanted.
    Done(Result<T, StreamError>),
    /// The function failed, and the stage with it.
    Fail(StreamError),
}

impl<T> Gathered<T> {
    pub(crate) fn or_failure(self) -> Result<Gathered<T>, StreamError> {
        match self {
            Gathered::Fail(error) => Err(error),
            gathered => Ok(gathered),
        }
    }
}

/// A function that gathers elements.
pub trait Gatherer: 'static {
    /// What it takes.
    type In: 'static;
    /// What it gives in the end.
    type Out: 'static;

    /// Takes an element.
    fn take(&mut self, element: Self::In) -> Gathered<Self::Out>;

    /// Upstream has completed. Called once at most, and not after [`Gathered::Done`].
    ///
    /// # Errors
    /// What came is not enough for an outcome.
    fn finish(&mut self) -> Result<Self::Out, StreamError>;

    /// Whether it is done before the first element.
    fn takes_nothing(&self) -> bool {
        false
    }

    /// Forgets what it has gathered: what the directive `Restart` asks for.
    fn restart(&mut self) {}

    /// Takes an element; a failure or a panic is what the decider says.
    fn take_supervised(&mut self, element: Self::In, supervision: &Supervision) -> Gathered<Self::Out> {
        match attempt(supervision, || self.take(element).or_failure()) {
            Ok(gathered) => gathered,
            Err((Directive::Stop, error)) => Gathered::Fail(error),
            Err((Directive::Resume, _)) => Gathered::More,
            Err((Directive::Restart, _)) => {
                self.restart();
                Gathered::More
            }
        }
    }
}

/// The blueprint of a [`Gatherer`].
pub trait Gathering: Clone + Send + Sync + 'static {
    /// What it takes.
    type In: 'static;
    /// What it gives in the end. It goes to whoever materialized the stream, maybe on another core.
    type Out: Send + 'static;
    /// The running function.
    type Gatherer: Gatherer<In = Self::In, Out = Self::Out>;

    /// Name for errors and drawings.
    fn name(&self) -> &'static str;

    /// Makes the function, new for each materialization.
    fn create(&self) -> Self::Gatherer;
}

/// A [`Gathering`] with a factory.
pub(crate) struct GatherWith<G, F> {
    name: &'static str,
    factory: F,
    made: PhantomData<fn() -> G>,
}

impl<G: Gatherer, F: Fn() -> G + Clone + Send + Sync + 'static> GatherWith<G, F> {
    pub(crate) fn new(name: &'static str, factory: F) -> Self {
        GatherWith { name, factory, made: PhantomData }
    }
}

impl<G, F: Clone> Clone for GatherWith<G, F> {
    fn clone(&self) -> Self {
        GatherWith { name: self.name, factory: self.factory.clone(), made: PhantomData }
    }
}

impl<G: Gatherer<Out: Send>, F: Fn() -> G + Clone + Send + Sync + 'static> Gathering for GatherWith<G, F> {
    type In = G::In;
    type Out = G::Out;
    type Gatherer = G;

    fn name(&self) -> &'static str {
        self.name
    }

    fn create(&self) -> G {
        (self.factory)()
    }
}

/// A gathering of what a function of single elements makes of them.
#[derive(Clone)]
pub struct Through<B, G> {
    pub(crate) operator: B,
    pub(crate) gathering: G,
}

impl<B: Fusable, G: Gathering<In = B::Out>> Gathering for Through<B, G> {
    type In = B::In;
    type Out = G::Out;
    type Gatherer = ThroughGatherer<B::Function, G::Gatherer>;

    fn name(&self) -> &'static str {
        self.gathering.name()
    }

    fn create(&self) -> Self::Gatherer {
        ThroughGatherer { function: self.operator.create(), gatherer: self.gathering.create() }
    }
}

/// The running function of [`Through`].
pub struct ThroughGatherer<E, G> {
    function: E,
    gatherer: G,
}

impl<E: Elementwise, G: Gatherer<In = E::Out>> ThroughGatherer<E, G> {
    #[inline(always)]
    fn after(
        gatherer: &mut G,
        step: Step<E::Out>,
        take: impl FnOnce(&mut G, E::Out) -> Gathered<G::Out>,
    ) -> Gathered<G::Out> {
        match step {
            Step::Emit(element) => take(gatherer, element),
            Step::Skip => Gathered::More,
            Step::Last(element) => match take(gatherer, element) {
                Gathered::More => Gathered::Done(gatherer.finish()),
                other => other,
            },
            Step::Done => Gathered::Done(gatherer.finish()),
            Step::Fail(error) => Gathered::Fail(error),
        }
    }
}

impl<E: Elementwise, G: Gatherer<In = E::Out>> Gatherer for ThroughGatherer<E, G> {
    type In = E::In;
    type Out = G::Out;

    #[inline(always)]
    fn take(&mut self, element: E::In) -> Gathered<G::Out> {
        let step = self.function.step(element);
        Self::after(&mut self.gatherer, step, |gatherer, element| gatherer.take(element))
    }

    fn finish(&mut self) -> Result<G::Out, StreamError> {
        self.gatherer.finish()
    }

    fn takes_nothing(&self) -> bool {
        self.function.takes_nothing() || self.gatherer.takes_nothing()
    }

    fn take_supervised(&mut self, element: E::In, supervision: &Supervision) -> Gathered<G::Out> {
        let step = self.function.step_supervised(element, supervision);
        Self::after(&mut self.gatherer, step, |gatherer, element| gatherer.take_supervised(element, supervision))
    }
}
