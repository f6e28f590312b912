//! What a stage is: the interface between user-written (and our own) operators and the interpreter.
//!
//! A [`GraphStage`] is the blueprint, shared and reused; each materialization makes a [`Logic`] of it, which has the
//! state and handles the events of its ports. `shape` says which ports, `elementwise` is the short form for functions
//! of single elements, `callback` lets other threads in.

pub mod callback;
pub(crate) mod dispatch;
pub mod elementwise;
pub mod erased;
pub mod gathering;
pub(crate) mod logging;
pub(crate) mod made;
pub mod shape;
pub(crate) mod supervised;
pub mod transform;

use crate::stream::attributes::Attributes;
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, IslandInbox, TimerKey};
pub use callback::{AsyncCallback, Feedback};
pub use erased::{ErasedStage, Seed, StageModule};
pub use shape::{
    BidiPorts, BidiShape, ClosedShape, FanInShape, FanOutShape, FlowPorts, FlowShape, Shape, SinkShape, SourceShape,
    ZipPorts, ZipShape,
};
use std::sync::Arc;

/// A running stage: its state, and what it does at the events of its ports.
///
/// Ports are counted from 0 in the order of the shape, inlets and outlets apart. Handlers get the [`Context`], which
/// the ports need for whatever they do. A panic in a handler fails the stage.
pub trait Logic: 'static {
    /// Before the first event. Here a sink pulls for the first time.
    fn pre_start(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// An element arrived; take it with [`Inlet::grab`](crate::stream::interpreter::Inlet::grab).
    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        let _ = (context, inlet);
        unreachable!("a stage with inlets has a handler for elements");
    }

    /// Upstream has completed; the inlet is closed. By default the stage completes.
    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        let _ = inlet;
        context.complete_stage();
    }

    /// Upstream has failed; the inlet is closed. By default the stage fails.
    fn on_upstream_failure(&mut self, context: &mut Context, inlet: usize, error: StreamError) {
        let _ = inlet;
        context.fail_stage(error);
    }

    /// Downstream asks for an element: from now on one may be pushed.
    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        let _ = (context, outlet);
        unreachable!("a stage with outlets has a handler for demand");
    }

    /// Downstream has cancelled; the outlet is closed. By default the stage is cancelled.
    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        let _ = outlet;
        context.cancel_stage(cause);
    }

    /// A timer of the stage is due.
    fn on_timer(&mut self, context: &mut Context, key: TimerKey) {
        let _ = (context, key);
    }

    /// A waker of the stage was woken (see [`Context::waker`]): whatever it waits for may be there.
    fn on_wake(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// The run of the island ends, and the stage asked to be told (see [`Context::call_at_run_end`]). What it does for
    /// others at once, such as publishing a batch, belongs here; events it causes run with the next wake-up.
    fn on_run_end(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// A run after the one in which the stage called [`Context::look_again`].
    #[doc(hidden)]
    fn on_look(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// After the last event, exactly once, however the stage ends. All ports are closed.
    fn post_stop(&mut self, context: &mut Context) {
        let _ = context;
    }

    #[doc(hidden)]
    fn dispatch() -> dispatch::Dispatch
    where
        Self: Sized,
    {
        dispatch::Dispatch::general::<Self>()
    }
}

/// The blueprint of a stage: what it is before it runs. Shared between threads and materialized any number of times.
///
/// What runs on another core than the one that materializes it goes there as a seed, so only the seed has to be
/// [`Send`], not the running stage. The materialized value stays where `run` was called.
pub trait GraphStage: Send + Sync + 'static {
    /// Its ports.
    type Shape: Shape;
    /// What goes to the core that runs the stage.
    type Seed: Send + 'static;
    /// What the caller of `run` gets.
    type Mat: 'static;
    /// The running stage.
    type Logic: Logic;

    /// Name for errors and drawings; an attribute may give another one.
    fn name(&self) -> &'static str;

    /// Its ports.
    fn shape(&self) -> Self::Shape;

    /// On the core that materializes: what the caller gets, and what is sent to the core that runs the stage.
    fn prepare(&self, attributes: &Attributes) -> (Self::Seed, Self::Mat);

    /// On the core that runs the stage.
    fn create(seed: Self::Seed, ports: <Self::Shape as Shape>::Ports, setup: &Setup<'_>) -> Self::Logic;
}

/// What a stage can have before it runs.
pub struct Setup<'a> {
    pub(crate) attributes: &'a Attributes,
    pub(crate) inbox: &'a Arc<IslandInbox>,
    pub(crate) stage: u32,
}

impl Setup<'_> {
    /// The attributes that are in force for the stage.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        self.attributes
    }

    /// A waker that has `on_wake` of the stage called. Keep it: each call makes a new one.
    #[must_use]
    pub fn waker(&self) -> std::task::Waker {
        crate::stream::interpreter::StageWake::waker(self.inbox, self.stage)
    }
}
