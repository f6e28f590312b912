//! Flows that are a function of elements with leftovers: one element may become several or none, and something may come
//! at the end.
//!
//! The short form for stages like `grouped`, `map_concat` or `scan`. The stage asks upstream only when downstream asks and
//! nothing is left over. With a supervision decider a failing element is decided upon.

use super::elementwise::Step;
use super::made::stage;
use super::supervised::attempt;
use super::{FlowPorts, FlowShape, GraphStage, Logic};
use crate::stream::attributes::{Directive, Supervision};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};

/// Failures of the end that a decider may drop before the stage completes without it.
const SKIPS_AT_END: u32 = 16;

/// How a stage ends, for what it has to give back.
#[derive(Debug)]
pub enum Ending<'a> {
    /// Upstream failed.
    Failed(&'a StreamError),
    /// Downstream cancelled.
    Cancelled(&'a Cancellation),
}

/// A function of elements with leftovers. There is demand whenever a step is asked for.
pub trait Transform: 'static {
    /// What it takes.
    type In: 'static;
    /// What it gives.
    type Out: 'static;

    /// Whether a decider is asked about failures. Not where the stage cannot go on behind one.
    const SUPERVISED: bool = true;

    /// Before the first element.
    ///
    /// # Errors
    /// It cannot start; the stage fails.
    fn start(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    /// Handles an element. [`Step::Skip`] asks for the next.
    fn element(&mut self, element: Self::In) -> Step<Self::Out>;

    /// Downstream asks: something that is left over, or [`Step::Skip`] to ask upstream. Also tried after `element` has
    /// skipped.
    fn left_over(&mut self) -> Step<Self::Out> {
        Step::Skip
    }

    /// Upstream has completed; downstream need not have asked.
    ///
    /// # Errors
    /// The stage fails with it.
    fn upstream_finished(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    /// Upstream has completed: whether there is something left to emit.
    fn has_more(&mut self) -> bool {
        false
    }

    /// Upstream has completed and downstream asks. Called until it gives neither [`Step::Emit`] nor [`Step::Skip`].
    fn end(&mut self) -> Step<Self::Out> {
        Step::Done
    }

    /// Forgets what it has gathered: what the directive `Restart` asks for.
    ///
    /// # Errors
    /// It cannot go on; the stage fails.
    fn restart(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    /// The stage ends by a failure of upstream or by cancellation. What it gives is emitted before the failure.
    ///
    /// # Errors
    /// What the stage fails with instead.
    fn close(&mut self, ending: Ending<'_>) -> Result<Option<Self::Out>, StreamError> {
        let _ = ending;
        Ok(None)
    }

    /// After the end, once, however it came.
    ///
    /// # Errors
    /// For the log: nobody else is there to be told.
    fn stopped(&mut self) -> Result<(), StreamError> {
        Ok(())
    }
}

/// The stage that is a [`Transform`]; a factory makes it for each materialization.
pub(crate) fn stage_of<R: Transform>(
    name: &'static str,
    factory: impl FnOnce() -> R + Clone + Send + Sync + 'static,
) -> impl GraphStage<Shape = FlowShape<R::In, R::Out>, Mat = ()> {
    stage(name, FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
        let supervision = if R::SUPERVISED { setup.supervision() } else { None };
        TransformLogic { inlet, outlet, transform: factory(), supervision, upstream_ended: false, given: Step::Skip }
    })
}

/// The running stage of a [`Transform`].
struct TransformLogic<R: Transform> {
    inlet: Inlet<R::In>,
    outlet: Outlet<R::Out>,
    transform: R,
    supervision: Option<Supervision>,
    upstream_ended: bool,
    /// What `give` has to handle. Not an argument: the fast way must not need room on the stack.
    given: Step<R::Out>,
}

impl<R: Transform> TransformLogic<R> {
    /// A step; a failure or a panic is what the decider says.
    #[inline(always)]
    fn step(&mut self, step: impl FnOnce(&mut R) -> Step<R::Out>) -> Step<R::Out> {
        if self.supervision.is_some() { self.step_supervised(step) } else { step(&mut self.transform) }
    }

    #[cold]
    fn step_supervised(&mut self, step: impl FnOnce(&mut R) -> Step<R::Out>) -> Step<R::Out> {
        let Some(supervision) = &self.supervision else { return step(&mut self.transform) };
        let transform = &mut self.transform;
        match attempt(supervision, || step(transform).or_failure()) {
            Ok(step) => step,
            Err((Directive::Stop, error)) => Step::Fail(error),
            Err((Directive::Resume, _)) => Step::Skip,
            Err((Directive::Restart, _)) => match self.transform.restart() {
                Ok(()) => Step::Skip,
                Err(error) => Step::Fail(error),
            },
        }
    }

    /// Apart from the fast way, which ends in a jump only if nothing before it took room on the stack.
    #[cold]
    #[inline(never)]
    fn push_supervised(&mut self, context: &mut Context) {
        let element = self.inlet.grab(context);
        match self.step(|transform| transform.element(element)) {
            Step::Skip => self.go_on_supervised(context),
            step => self.give(context, step),
        }
    }

    /// Downstream asks and nothing is on its way.
    #[inline]
    fn go_on(&mut self, context: &mut Context) {
        if self.upstream_ended || self.supervision.is_some() {
            return self.go_on_supervised(context);
        }
        match self.transform.left_over() {
            Step::Skip => self.inlet.try_pull(context),
            Step::Emit(element) => self.outlet.push(context, element),
            step => self.give(context, step),
        }
    }

    /// As `go_on`, in all its cases.
    #[cold]
    #[inline(never)]
    fn go_on_supervised(&mut self, context: &mut Context) {
        match self.step(R::left_over) {
            Step::Skip if !self.upstream_ended => self.inlet.try_pull(context),
            Step::Skip => self.go_to_end(context),
            step => self.give(context, step),
        }
    }

    fn go_to_end(&mut self, context: &mut Context) {
        for _ in 0..SKIPS_AT_END {
            match self.step(R::end) {
                Step::Skip => {}
                step => return self.give(context, step),
            }
        }
        context.complete_stage();
    }

    #[inline(always)]
    fn give(&mut self, context: &mut Context, step: Step<R::Out>) {
        self.given = step;
        self.give_it(context);
    }

    #[inline(never)]
    fn give_it(&mut self, context: &mut Context) {
        match std::mem::replace(&mut self.given, Step::Skip) {
            Step::Emit(element) => {
                self.outlet.push(context, element);
                if self.upstream_ended && !self.transform.has_more() {
                    context.complete_stage();
                }
            }
            Step::Last(element) => {
                self.outlet.push(context, element);
                context.complete_stage();
            }
            Step::Done => context.complete_stage(),
            Step::Fail(error) => context.fail_and_log(error),
            Step::Skip => {}
        }
    }
}

impl<R: Transform> Logic for TransformLogic<R> {
    fn pre_start(&mut self, context: &mut Context) {
        if let Err(error) = self.transform.start() {
            context.fail_and_log(error);
        }
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        if self.supervision.is_some() {
            return self.push_supervised(context);
        }
        let element = self.inlet.grab(context);
        match self.transform.element(element) {
            Step::Emit(element) => self.outlet.push(context, element),
            Step::Skip => self.go_on(context),
            step => self.give(context, step),
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.go_on(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.upstream_ended = true;
        if let Err(error) = self.transform.upstream_finished() {
            return context.fail_and_log(error);
        }
        if !self.transform.has_more() {
            context.complete_stage();
        } else if self.outlet.is_available(context) {
            self.go_on(context);
        }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        match self.transform.close(Ending::Failed(&error)) {
            Ok(None) => context.fail_stage(error),
            Ok(Some(last)) => {
                // The failure follows the element.
                let outlet_fails = move |stage: &mut Self, context: &mut Context| stage.outlet.fail(context, error);
                context.emit_then::<Self, _>(&self.outlet, last, outlet_fails);
            }
            Err(error) => context.fail_and_log(error),
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        match self.transform.close(Ending::Cancelled(&cause)) {
            Ok(_) => context.cancel_stage(cause),
            Err(error) => context.fail_and_log(error),
        }
    }

    fn post_stop(&mut self, context: &mut Context) {
        if let Err(error) = self.transform.stopped() {
            context.log_failure(context.current, &error);
        }
    }
}
