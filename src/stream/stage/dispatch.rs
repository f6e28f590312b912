//! Which functions handle the events of a stage type.
//!
//! [`Logic::dispatch`] is hidden and returns what only this crate can make, so the functions always fit the type.

use crate::stream::interpreter::connection::EventFunction;
use crate::stream::interpreter::events::{elementwise_event, pull_event, push_event};

use super::Logic;
use super::elementwise::{Elementwise, ElementwiseStage};

/// The event functions of a stage type.
pub struct Dispatch {
    pub(crate) on_push: EventFunction,
    pub(crate) on_pull: EventFunction,
    /// A pull of its outlet is nothing but a pull of its inlet.
    pub(crate) passes_pulls: bool,
    /// The type that they were made for.
    made_for: std::any::TypeId,
}

impl Dispatch {
    /// The functions of a stage type; those of the general case if it claims those of another type.
    pub(crate) fn of<S: Logic>() -> Dispatch {
        let dispatch = S::dispatch();
        if dispatch.made_for == std::any::TypeId::of::<S>() { dispatch } else { Dispatch::general::<S>() }
    }

    pub(crate) fn general<S: Logic>() -> Dispatch {
        Dispatch {
            on_push: push_event::<S>,
            on_pull: pull_event::<S>,
            passes_pulls: false,
            made_for: std::any::TypeId::of::<S>(),
        }
    }

    pub(crate) fn elementwise<E: Elementwise>() -> Dispatch {
        Dispatch {
            on_push: elementwise_event::<E>,
            on_pull: pull_event::<ElementwiseStage<E>>,
            passes_pulls: true,
            made_for: std::any::TypeId::of::<ElementwiseStage<E>>(),
        }
    }
}
