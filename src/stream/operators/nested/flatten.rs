//! Sources that come as elements, and what is in them: one after the other, several at once, or only the latest.

use std::collections::VecDeque;
use std::marker::PhantomData;

use super::substream::{Sub, SubInlet, Substreams};
use crate::stream::dsl::Source;
use crate::stream::error::StreamError;
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::{FlowPorts, FlowShape, Logic, Setup};

blueprint!(
    /// Runs up to so many of the sources that come in at once and emits what they give.
    ///
    /// Emits when one of them has an element. Back-pressures when downstream does, or so many run. Completes when upstream
    /// has and all of them have. Fails as soon as one does.
    FlattenMerge<T> { breadth: usize }
);

impl<T> FlattenMerge<T> {
    /// `breadth` is at least one; with one the sources run one after the other.
    #[must_use]
    pub fn new(breadth: usize) -> FlattenMerge<T> {
        FlattenMerge { breadth: breadth.max(1), elements: PhantomData }
    }
}

/// The running stage of [`FlattenMerge`].
pub struct FlattenMergeLogic<T> {
    inlet: Inlet<Source<T>>,
    outlet: Outlet<T>,
    substreams: Substreams,
    breadth: usize,
    /// Sources that run. The one in front gives next, and then goes to the end.
    active: VecDeque<SubInlet<T>>,
}

impl<T: Send + 'static> Blueprint for FlattenMerge<T> {
    type Shape = FlowShape<Source<T>, T>;
    type Logic = FlattenMergeLogic<T>;
    const NAME: &'static str = "flatten";

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn logic(self, ports: FlowPorts<Source<T>, T>, setup: &Setup<'_>) -> Self::Logic {
        let FlattenMerge { breadth, .. } = self;
        let FlowPorts { inlet, outlet } = ports;
        FlattenMergeLogic { inlet, outlet, substreams: Substreams::new(setup), breadth, active: VecDeque::new() }
    }
}

impl<T: Send + 'static> FlattenMergeLogic<T> {
    /// Gives an element if one is wanted and there, and notices sources that have ended.
    fn step(&mut self, context: &mut Context) {
        let mut unasked = self.active.len();
        while unasked > 0 && self.outlet.is_available(context) {
            unasked -= 1;
            let Some(mut source) = self.active.pop_front() else { break };
            match source.poll() {
                Sub::Element(element) => {
                    self.outlet.push(context, element);
                    self.active.push_back(source);
                }
                Sub::Pending => self.active.push_back(source),
                Sub::Completed => {}
                Sub::Failed(error) => {
                    context.fail_stage(error);
                    return;
                }
            }
        }
        if self.active.is_empty() && self.inlet.is_closed(context) {
            context.complete_stage();
        } else if self.active.len() < self.breadth {
            self.inlet.try_pull(context);
        }
    }
}

impl<T: Send + 'static> Logic for FlattenMergeLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let source = self.inlet.grab(context);
        match self.substreams.run(source) {
            Ok(source) => self.active.push_back(source),
            Err(error) => return context.fail_stage(error),
        }
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        if !self.outlet.is_closed(context) {
            self.step(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.active.is_empty() {
            context.complete_stage();
        }
    }
}

blueprint!(
    /// Emits what the latest source gives: a new one takes the place of the one before, which is cancelled.
    ///
    /// Never back-pressures upstream. Completes when upstream has and the latest source has.
    SwitchLatest<T> {}
);

impl<T> SwitchLatest<T> {
    /// The stage.
    #[must_use]
    pub fn new() -> SwitchLatest<T> {
        SwitchLatest { elements: PhantomData }
    }
}

impl<T> Default for SwitchLatest<T> {
    fn default() -> Self {
        SwitchLatest::new()
    }
}

/// The running stage of [`SwitchLatest`].
pub struct SwitchLatestLogic<T> {
    inlet: Inlet<Source<T>>,
    outlet: Outlet<T>,
    substreams: Substreams,
    active: Option<SubInlet<T>>,
}

impl<T: Send + 'static> Blueprint for SwitchLatest<T> {
    type Shape = FlowShape<Source<T>, T>;
    type Logic = SwitchLatestLogic<T>;
    const NAME: &'static str = "switch_latest";

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn logic(self, ports: FlowPorts<Source<T>, T>, setup: &Setup<'_>) -> Self::Logic {
        let FlowPorts { inlet, outlet } = ports;
        SwitchLatestLogic { inlet, outlet, substreams: Substreams::new(setup), active: None }
    }
}

impl<T: Send + 'static> SwitchLatestLogic<T> {
    fn step(&mut self, context: &mut Context) {
        if self.outlet.is_available(context)
            && let Some(source) = &mut self.active
        {
            match source.poll() {
                Sub::Element(element) => self.outlet.push(context, element),
                Sub::Pending => {}
                Sub::Completed => self.active = None,
                Sub::Failed(error) => {
                    context.fail_stage(error);
                    return;
                }
            }
        }
        if self.active.is_none() && self.inlet.is_closed(context) {
            context.complete_stage();
        }
    }
}

impl<T: Send + 'static> Logic for SwitchLatestLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let source = self.inlet.grab(context);
        // The one before is cancelled when it is dropped.
        self.active = None;
        match self.substreams.run(source) {
            Ok(source) => self.active = Some(source),
            Err(error) => return context.fail_stage(error),
        }
        self.inlet.try_pull(context);
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        if !self.outlet.is_closed(context) {
            self.step(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }
}

blueprint!(
    /// Goes on with another source when upstream fails.
    ///
    /// Emits what upstream has, and after its failure what the alternative has. Completes when the one that is used does.
    /// Fails when no alternative is left, with the last failure.
    RecoverWith<T; F> { attempts: Option<u32>, alternative: F }
);

impl<T, F: FnMut(&StreamError) -> Option<Source<T>>> RecoverWith<T, F> {
    /// `attempts` alternatives at most; `None` for any number.
    pub fn new(attempts: Option<u32>, alternative: F) -> Self {
        RecoverWith { attempts, alternative, elements: PhantomData }
    }
}

/// The running stage of [`RecoverWith`].
pub struct RecoverWithLogic<T, F> {
    ports: FlowPorts<T, T>,
    substreams: Substreams,
    attempts: Option<u32>,
    alternative: F,
    active: Option<SubInlet<T>>,
}

impl<T: Send + 'static, F> Blueprint for RecoverWith<T, F>
where
    F: FnMut(&StreamError) -> Option<Source<T>> + Clone + Send + Sync + 'static,
{
    type Shape = FlowShape<T, T>;
    type Logic = RecoverWithLogic<T, F>;
    const NAME: &'static str = "recover_with";

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn logic(self, ports: FlowPorts<T, T>, setup: &Setup<'_>) -> Self::Logic {
        let RecoverWith { attempts, alternative, .. } = self;
        RecoverWithLogic { ports, substreams: Substreams::new(setup), attempts, alternative, active: None }
    }
}

impl<T: Send + 'static, F: FnMut(&StreamError) -> Option<Source<T>> + 'static> RecoverWithLogic<T, F> {
    fn recover(&mut self, context: &mut Context, error: StreamError) {
        self.active = None;
        if self.attempts == Some(0) {
            context.fail_stage(error);
            return;
        }
        let Some(source) = (self.alternative)(&error) else {
            context.fail_stage(error);
            return;
        };
        self.attempts = self.attempts.map(|attempts| attempts - 1);
        match self.substreams.run(source) {
            Ok(source) => {
                self.active = Some(source);
                self.step(context);
            }
            Err(error) => context.fail_stage(error),
        }
    }

    fn step(&mut self, context: &mut Context) {
        if !self.ports.outlet.is_available(context) {
            return;
        }
        let Some(source) = &mut self.active else { return };
        match source.poll() {
            Sub::Element(element) => self.ports.outlet.push(context, element),
            Sub::Pending => {}
            Sub::Completed => context.complete_stage(),
            Sub::Failed(error) => self.recover(context, error),
        }
    }
}

impl<T: Send + 'static, F: FnMut(&StreamError) -> Option<Source<T>> + 'static> Logic for RecoverWithLogic<T, F> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        self.ports.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.active.is_some() {
            self.step(context);
        } else {
            self.ports.inlet.try_pull(context);
        }
    }

    fn on_wake(&mut self, context: &mut Context) {
        if !self.ports.outlet.is_closed(context) {
            self.step(context);
        }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        // The outlet alone keeps the stage now.
        self.recover(context, error);
    }
}
