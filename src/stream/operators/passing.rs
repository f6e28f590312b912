//! Stages that pass elements on and look at what goes by: the common part of `log`, `recover`, `monitor`, kill switches,
//! timeouts and their like, each of which is a [`Watch`].

use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet, TimerKey};
use crate::stream::stage::made::stage;
use crate::stream::stage::{BidiPorts, FlowPorts, FlowShape, Logic, Setup};

/// What becomes of a failure of upstream.
pub(super) enum Ending<T> {
    /// The stage fails.
    Fail(StreamError),
    /// The stage completes.
    Complete,
    /// The stage emits this and completes.
    Last(T),
}

/// What a stage that passes elements on does beside.
pub(super) trait Watch<T>: 'static {
    fn start(&mut self, context: &mut Context) {
        let _ = context;
    }

    fn element(&mut self, context: &mut Context, element: &T) {
        let _ = (context, element);
    }

    /// Downstream asks.
    fn asked(&mut self) {}

    fn finished(&mut self, context: &mut Context) {
        let _ = context;
    }

    fn failed(&mut self, context: &mut Context, error: StreamError) -> Ending<T> {
        let _ = context;
        Ending::Fail(error)
    }

    fn cancelled(&mut self, context: &mut Context, cause: &Cancellation) {
        let _ = (context, cause);
    }

    fn timer(&mut self, context: &mut Context) {
        let _ = context;
    }

    fn woken(&mut self, context: &mut Context) {
        let _ = context;
    }

    fn run_ends(&mut self) {}
}

/// The running stage.
pub(super) struct Passing<T, W> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    watch: W,
}

impl<T, W> Passing<T, W> {
    pub(super) fn new(ports: FlowPorts<T, T>, watch: W) -> Self {
        Passing { inlet: ports.inlet, outlet: ports.outlet, watch }
    }
}

impl<T: 'static, W: Watch<T>> Logic for Passing<T, W> {
    fn pre_start(&mut self, context: &mut Context) {
        self.watch.start(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.watch.element(context, &element);
        self.outlet.push(context, element);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.watch.asked();
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.watch.finished(context);
        context.complete_stage();
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        match self.watch.failed(context, error) {
            Ending::Fail(error) => context.fail_stage(error),
            Ending::Complete => context.complete_stage(),
            Ending::Last(element) => {
                context.emit(&self.outlet, element);
                self.outlet.complete(context);
            }
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        self.watch.cancelled(context, &cause);
        context.cancel_stage(cause);
    }

    fn on_timer(&mut self, context: &mut Context, _: TimerKey) {
        self.watch.timer(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.watch.woken(context);
    }

    fn on_run_end(&mut self, _: &mut Context) {
        self.watch.run_ends();
    }
}

/// Appends a stage that passes elements on. `create` is called once for each materialization.
pub(super) fn pass<S: FlowOps, W: Watch<S::Out>>(
    flow: S,
    name: &'static str,
    create: impl FnOnce() -> W + Clone + Send + Sync + 'static,
) -> Plain<S, S::Out> {
    flow.via_stage(stage(name, FlowShape::new(), move |ports, _: &Setup<'_>| Passing::new(ports, create())))
}

/// What passes elements on in two directions does with the events of its ports.
impl<A: 'static, B: 'static> BidiPorts<A, A, B, B> {
    pub(super) fn pass_element(&self, context: &mut Context, inlet: usize) {
        if inlet == 0 {
            let element = self.inlet_down.grab(context);
            self.outlet_down.push(context, element);
        } else {
            let element = self.inlet_back.grab(context);
            self.outlet_back.push(context, element);
        }
    }

    pub(super) fn pass_demand(&self, context: &mut Context, outlet: usize) {
        match outlet {
            0 => self.inlet_down.pull(context),
            _ => self.inlet_back.pull(context),
        }
    }

    pub(super) fn pass_completion(&self, context: &mut Context, inlet: usize) {
        match inlet {
            0 => self.outlet_down.complete(context),
            _ => self.outlet_back.complete(context),
        }
    }

    pub(super) fn pass_failure(&self, context: &mut Context, inlet: usize, error: StreamError) {
        match inlet {
            0 => self.outlet_down.fail(context, error),
            _ => self.outlet_back.fail(context, error),
        }
    }

    pub(super) fn pass_cancellation(&self, context: &mut Context, outlet: usize, cause: Cancellation) {
        match outlet {
            0 => self.inlet_down.cancel_because(context, cause),
            _ => self.inlet_back.cancel_because(context, cause),
        }
    }
}
