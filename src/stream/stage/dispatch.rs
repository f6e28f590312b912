//! Which functions handle the events of a stage type.
//!
//! [`Logic::dispatch`] is hidden and returns what only this crate can make, so the functions always fit the type.
//!
//! The shim of an element-wise stage takes elements out of the connection and uses the outlet of the stage, both without
//! a check. That is sound for the stage's own ports only, and [`ElementwiseStage::new`] takes any: those of a neighbour,
//! of another type, of an island that is gone. So the island builder compares them ([`Dispatch::own_ports`]), and a stage
//! with other ports is handled as a general one, whose ports check each use. They cannot be exchanged later, because
//! nobody gets a reference to such a stage: a callback that names it is refused
//! ([`StageEntry::type_id`](crate::stream::interpreter::Context)).

use crate::stream::interpreter::IslandId;
use crate::stream::interpreter::connection::{ConnectionRef, EventFunction};
use crate::stream::interpreter::events::{elementwise_event, pull_event, push_event};

use std::any::Any;

use super::Logic;
use super::elementwise::{Elementwise, ElementwiseStage};

/// One inlet and one outlet, each with the island that it was made for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnPorts {
    pub inlet: (ConnectionRef, IslandId),
    pub outlet: (ConnectionRef, IslandId),
}

/// The event functions of a stage type.
pub struct Dispatch {
    pub(crate) on_push: EventFunction,
    pub(crate) on_pull: EventFunction,
    /// A pull of its outlet is nothing but a pull of its inlet.
    pub(crate) passes_pulls: bool,
    /// The ports that the functions use without a check; `None` if they check each use, or the stage is of another type.
    pub(crate) own_ports: Option<fn(&dyn Any) -> Option<OwnPorts>>,
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
            own_ports: None,
            made_for: std::any::TypeId::of::<S>(),
        }
    }

    pub(crate) fn elementwise<E: Elementwise>() -> Dispatch {
        Dispatch {
            on_push: elementwise_event::<E>,
            on_pull: pull_event::<ElementwiseStage<E>>,
            passes_pulls: true,
            own_ports: Some(|stage| Some(stage.downcast_ref::<ElementwiseStage<E>>()?.own_ports())),
            made_for: std::any::TypeId::of::<ElementwiseStage<E>>(),
        }
    }
}
