//! Neighbouring element-wise operators become one stage, at compile time.
//!
//! A [`Fusable`] is the blueprint of an [`Elementwise`] function; the tail of a [`Source`](super::Source) or
//! [`Flow`](super::Flow) collects them in its type until something else follows. Names stay for printing.

use std::marker::PhantomData;

use crate::stream::attributes::Attributes;
use crate::stream::operators::whole::Whole;
use crate::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step, Supervised, Then};
use crate::stream::stage::gathering::{Gathering, Through};
use crate::stream::stage::{FlowPorts, FlowShape, GraphStage, Setup};

/// The blueprint of a function of one element at a time.
pub trait Fusable: Clone + Send + Sync + 'static {
    /// What it takes.
    type In: 'static;
    /// What it gives.
    type Out: 'static;
    /// The function with its state, new for each materialization.
    type Function: Elementwise<In = Self::In, Out = Self::Out>;
    /// Whether it gives what it takes, so that nothing has to be added for it.
    const IS_IDENTITY: bool = false;

    /// Makes the function.
    fn create(&self) -> Self::Function;

    /// The whole stream as one stage, from where its elements come to this gathering, if the operators know where they
    /// come from.
    #[doc(hidden)]
    fn whole<G: Gathering<In = Self::Out>>(&self, gathering: G) -> Option<Whole<G::Out>> {
        let _ = gathering;
        None
    }
}

/// Gives what it takes: the empty tail.
pub struct Identity<T>(PhantomData<fn(T)>);

impl<T> Clone for Identity<T> {
    fn clone(&self) -> Self {
        Identity(PhantomData)
    }
}

impl<T> Default for Identity<T> {
    fn default() -> Self {
        Identity(PhantomData)
    }
}

impl<T: 'static> Elementwise for Identity<T> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn step(&mut self, element: T) -> Step<T> {
        Step::Emit(element)
    }
}

impl<T: 'static> Fusable for Identity<T> {
    type In = T;
    type Out = T;
    type Function = Identity<T>;
    const IS_IDENTITY: bool = true;

    fn create(&self) -> Identity<T> {
        Identity(PhantomData)
    }
}

impl<A: Fusable, B: Fusable<In = A::Out>> Fusable for Then<A, B> {
    type In = A::In;
    type Out = B::Out;
    type Function = Then<A::Function, B::Function>;
    const IS_IDENTITY: bool = A::IS_IDENTITY && B::IS_IDENTITY;

    fn create(&self) -> Self::Function {
        Then(self.0.create(), self.1.create())
    }

    fn whole<G: Gathering<In = B::Out>>(&self, gathering: G) -> Option<Whole<G::Out>> {
        self.0.whole(Through { operator: self.1.clone(), gathering })
    }
}

/// The blueprint of the one stage that fused operators become.
pub struct FusedStage<P> {
    pub(crate) operators: P,
    pub(crate) name: &'static str,
}

impl<P: Fusable> GraphStage for FusedStage<P> {
    type Shape = FlowShape<P::In, P::Out>;
    type Seed = P;
    type Mat = ();
    type Logic = FusedLogic<P::Function>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (P, ()) {
        (self.operators.clone(), ())
    }

    fn create(seed: P, ports: FlowPorts<P::In, P::Out>, setup: &Setup<'_>) -> Self::Logic {
        let function = Supervised::maybe(seed.create(), setup.attributes());
        ElementwiseStage::new(ports, function)
    }
}

/// The running stage of fused operators.
pub type FusedLogic<E> = ElementwiseStage<Supervised<E>>;
