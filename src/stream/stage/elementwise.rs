//! Stages that are a function of one element at a time: the short form, and what the typed DSL fuses.
//!
//! Such a stage passes pulls on and has no other events of its own, so the interpreter goes through it in one step and
//! pulls jump over it. Several of them in a row become one by [`Then`], at compile time. With a supervision decider a
//! failing element is decided upon by each function for itself.

use super::Logic;
use super::dispatch::{Dispatch, OwnPorts};
use super::shape::FlowPorts;
use super::supervised::attempt;
use crate::stream::attributes::{Attributes, Directive, Supervision};
use crate::stream::error::StreamError;
use crate::stream::interpreter::{Context, Inlet, Outlet};

/// What became of an element.
#[derive(Debug)]
pub enum Step<T> {
    /// An element for downstream.
    Emit(T),
    /// Nothing; the next element is wanted.
    Skip,
    /// The last element: downstream completes after it, upstream is cancelled.
    Last(T),
    /// Nothing, and no more is wanted.
    Done,
    /// The stage fails.
    Fail(StreamError),
}

impl<T> Step<T> {
    pub(crate) fn or_failure(self) -> Result<Step<T>, StreamError> {
        match self {
            Step::Fail(error) => Err(error),
            step => Ok(step),
        }
    }
}

/// A function of one element at a time, with state.
pub trait Elementwise: 'static {
    /// What it takes.
    type In: 'static;
    /// What it gives.
    type Out: 'static;

    /// Handles an element.
    fn step(&mut self, element: Self::In) -> Step<Self::Out>;

    /// Forgets what it has gathered: what the directive `Restart` asks for.
    fn restart(&mut self) {}

    /// Whether it is done before the first element, so that the stage completes when it starts.
    fn takes_nothing(&self) -> bool {
        false
    }

    /// Handles an element; a failure or a panic is what the decider says.
    fn step_supervised(&mut self, element: Self::In, supervision: &Supervision) -> Step<Self::Out> {
        match attempt(supervision, || self.step(element).or_failure()) {
            Ok(step) => step,
            Err((Directive::Stop, error)) => Step::Fail(error),
            Err((Directive::Resume, _)) => Step::Skip,
            Err((Directive::Restart, _)) => {
                self.restart();
                Step::Skip
            }
        }
    }
}

/// One function after another.
#[derive(Clone, Copy, Debug)]
pub struct Then<A, B>(pub A, pub B);

impl<A: Elementwise, B: Elementwise<In = A::Out>> Then<A, B> {
    #[inline(always)]
    fn after(step: Step<A::Out>, mut next: impl FnMut(A::Out) -> Step<B::Out>) -> Step<B::Out> {
        match step {
            Step::Emit(element) => next(element),
            Step::Skip => Step::Skip,
            Step::Last(element) => match next(element) {
                Step::Emit(element) | Step::Last(element) => Step::Last(element),
                Step::Skip | Step::Done => Step::Done,
                Step::Fail(error) => Step::Fail(error),
            },
            Step::Done => Step::Done,
            Step::Fail(error) => Step::Fail(error),
        }
    }
}

impl<A: Elementwise, B: Elementwise<In = A::Out>> Elementwise for Then<A, B> {
    type In = A::In;
    type Out = B::Out;

    #[inline(always)]
    fn step(&mut self, element: A::In) -> Step<B::Out> {
        let Then(first, second) = self;
        Self::after(first.step(element), |element| second.step(element))
    }

    fn restart(&mut self) {
        self.0.restart();
        self.1.restart();
    }

    fn takes_nothing(&self) -> bool {
        self.0.takes_nothing() || self.1.takes_nothing()
    }

    fn step_supervised(&mut self, element: A::In, supervision: &Supervision) -> Step<B::Out> {
        let Then(first, second) = self;
        let step = first.step_supervised(element, supervision);
        Self::after(step, |element| second.step_supervised(element, supervision))
    }
}

/// The stage of an [`Elementwise`] function.
pub struct ElementwiseStage<E: Elementwise> {
    pub(crate) inlet: Inlet<E::In>,
    pub(crate) outlet: Outlet<E::Out>,
    pub(crate) function: E,
}

impl<E: Elementwise> ElementwiseStage<E> {
    /// The stage of a function, which has these ports.
    pub fn new(ports: FlowPorts<E::In, E::Out>, function: E) -> Self {
        ElementwiseStage { inlet: ports.inlet, outlet: ports.outlet, function }
    }

    pub(crate) fn own_ports(&self) -> OwnPorts {
        OwnPorts {
            inlet: (self.inlet.connection(), self.inlet.island()),
            outlet: (self.outlet.connection(), self.outlet.island()),
        }
    }

    /// What is not the usual case of [`Step`].
    #[cold]
    #[inline(never)]
    pub(crate) fn end(&mut self, context: &mut Context, step: Step<E::Out>) {
        match step {
            Step::Emit(element) => self.outlet.push_implied(context, element),
            Step::Skip => self.inlet.try_pull(context),
            Step::Last(element) => {
                self.outlet.push_implied(context, element);
                context.complete_stage();
            }
            Step::Done => context.complete_stage(),
            Step::Fail(error) => context.fail_and_log(error),
        }
    }
}

/// The way of events when the fast one does not apply: the element comes together with the end of upstream.
impl<E: Elementwise> Logic for ElementwiseStage<E> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.function.takes_nothing() {
            context.complete_stage();
        }
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let step = self.function.step(element);
        self.end(context, step);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.try_pull(context);
    }

    fn dispatch() -> Dispatch {
        Dispatch::elementwise::<E>()
    }
}

/// A function whose failures are decided upon, if the attributes have a decider.
pub struct Supervised<E> {
    function: E,
    supervision: Option<Supervision>,
}

impl<E> Supervised<E> {
    /// The function under the decider of the attributes. Without one it is as fast as the function alone.
    pub fn maybe(function: E, attributes: &Attributes) -> Supervised<E> {
        Supervised { function, supervision: attributes.get::<Supervision>().cloned() }
    }
}

impl<E: Elementwise> Elementwise for Supervised<E> {
    type In = E::In;
    type Out = E::Out;

    #[inline(always)]
    fn step(&mut self, element: E::In) -> Step<E::Out> {
        match &self.supervision {
            None => self.function.step(element),
            Some(supervision) => self.function.step_supervised(element, supervision),
        }
    }

    fn takes_nothing(&self) -> bool {
        self.function.takes_nothing()
    }
}
