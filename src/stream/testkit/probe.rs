//! Probes: the stages at the ends of an island under test. They do nothing by themselves but record.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::bench::{InletOf, InterpreterBench, OutletOf, StageHandle};
use super::event::{EventLog, ProbeEvent};
use crate::stream::error::{Cancellation, IllegalUse, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::Logic;

/// A source that pushes when the test says so.
pub struct UpstreamProbe<T> {
    pub(super) stage: StageHandle,
    pub(super) port: Rc<OnceCell<Outlet<T>>>,
}

/// A sink that pulls when the test says so.
pub struct DownstreamProbe<T> {
    pub(super) stage: StageHandle,
    pub(super) port: Rc<OnceCell<Inlet<T>>>,
    pub(super) received: Rc<RefCell<Vec<T>>>,
}

impl<T> Clone for UpstreamProbe<T> {
    fn clone(&self) -> Self {
        UpstreamProbe { stage: self.stage, port: Rc::clone(&self.port) }
    }
}

impl<T> Clone for DownstreamProbe<T> {
    fn clone(&self) -> Self {
        DownstreamProbe { stage: self.stage, port: Rc::clone(&self.port), received: Rc::clone(&self.received) }
    }
}

fn started<P>(port: &OnceCell<P>) -> &P {
    port.get().unwrap_or_else(|| panic!("start the bench before its probes act"))
}

impl<T: 'static> UpstreamProbe<T> {
    /// Where it is connected.
    #[must_use]
    pub fn outlet(&self) -> OutletOf {
        self.stage.outlet(0)
    }

    /// Pushes an element.
    ///
    /// # Errors
    /// The outlet is closed, or was not pulled. The element is dropped then, and nothing changes.
    pub fn push(&self, bench: &mut InterpreterBench, element: T) -> Result<(), IllegalUse> {
        let port = started(&self.port);
        bench.act(self.stage, |context| {
            port.check_push(context)?;
            port.push(context, element);
            Ok(())
        })
    }

    /// Pushes an element and completes in one go, before downstream sees either.
    ///
    /// # Errors
    /// As for [`UpstreamProbe::push`].
    pub fn push_and_complete(&self, bench: &mut InterpreterBench, element: T) -> Result<(), IllegalUse> {
        let port = started(&self.port);
        bench.act(self.stage, |context| {
            port.check_push(context)?;
            port.push(context, element);
            port.complete(context);
            Ok(())
        })
    }

    /// Pushes an element and fails in one go, before downstream sees either.
    ///
    /// # Errors
    /// As for [`UpstreamProbe::push`].
    pub fn push_and_fail(
        &self,
        bench: &mut InterpreterBench,
        element: T,
        error: StreamError,
    ) -> Result<(), IllegalUse> {
        let port = started(&self.port);
        bench.act(self.stage, |context| {
            port.check_push(context)?;
            port.push(context, element);
            port.fail(context, error);
            Ok(())
        })
    }

    /// Completes. Nothing happens if the outlet is closed.
    pub fn complete(&self, bench: &mut InterpreterBench) {
        let port = started(&self.port);
        bench.act(self.stage, |context| port.complete(context));
    }

    /// Fails. Nothing happens if the outlet is closed.
    pub fn fail(&self, bench: &mut InterpreterBench, error: StreamError) {
        let port = started(&self.port);
        bench.act(self.stage, |context| port.fail(context, error));
    }

    /// Whether an element may be pushed.
    #[must_use]
    pub fn is_available(&self, bench: &mut InterpreterBench) -> bool {
        started(&self.port).is_available(bench.context())
    }

    /// Whether the outlet is closed.
    #[must_use]
    pub fn is_closed(&self, bench: &mut InterpreterBench) -> bool {
        started(&self.port).is_closed(bench.context())
    }

    /// Why a push would be illegal now, if it would be.
    ///
    /// # Errors
    /// As for [`UpstreamProbe::push`].
    pub fn check_push(&self, bench: &mut InterpreterBench) -> Result<(), IllegalUse> {
        started(&self.port).check_push(bench.context())
    }
}

impl<T: 'static> DownstreamProbe<T> {
    /// Where it is connected.
    #[must_use]
    pub fn inlet(&self) -> InletOf {
        self.stage.inlet(0)
    }

    /// Asks for an element.
    ///
    /// # Errors
    /// The inlet is closed, or was pulled and nothing came since. Nothing changes then.
    pub fn pull(&self, bench: &mut InterpreterBench) -> Result<(), IllegalUse> {
        let port = started(&self.port);
        bench.act(self.stage, |context| {
            port.check_pull(context)?;
            port.pull(context);
            Ok(())
        })
    }

    /// Takes the element that arrived. `None` where that is illegal. Only for probes that leave elements in the inlet.
    pub fn grab(&self, bench: &mut InterpreterBench) -> Option<T> {
        started(&self.port).try_grab(bench.context())
    }

    /// Cancels, because no more is needed. Nothing happens if the inlet is closed.
    pub fn cancel(&self, bench: &mut InterpreterBench) {
        self.cancel_because(bench, Cancellation::NoMoreElementsNeeded);
    }

    /// Cancels for this reason. Nothing happens if the inlet is closed.
    pub fn cancel_because(&self, bench: &mut InterpreterBench, cause: Cancellation) {
        let port = started(&self.port);
        bench.act(self.stage, |context| port.cancel_because(context, cause));
    }

    /// The elements that came since this was last called.
    #[must_use]
    pub fn received(&self) -> Vec<T> {
        std::mem::take(&mut self.received.borrow_mut())
    }

    /// Whether an element has arrived that was not taken.
    #[must_use]
    pub fn is_available(&self, bench: &mut InterpreterBench) -> bool {
        started(&self.port).is_available(bench.context())
    }

    /// Whether the inlet was pulled and nothing came since.
    #[must_use]
    pub fn has_been_pulled(&self, bench: &mut InterpreterBench) -> bool {
        started(&self.port).has_been_pulled(bench.context())
    }

    /// Whether the inlet is closed.
    #[must_use]
    pub fn is_closed(&self, bench: &mut InterpreterBench) -> bool {
        started(&self.port).is_closed(bench.context())
    }

    /// Why a pull would be illegal now, if it would be.
    ///
    /// # Errors
    /// As for [`DownstreamProbe::pull`].
    pub fn check_pull(&self, bench: &mut InterpreterBench) -> Result<(), IllegalUse> {
        started(&self.port).check_pull(bench.context())
    }
}

pub(super) struct Upstream {
    pub name: &'static str,
    pub log: EventLog,
}

impl Logic for Upstream {
    fn on_pull(&mut self, _: &mut Context, _: usize) {
        self.log.borrow_mut().push(ProbeEvent::Request(self.name));
    }

    fn on_downstream_finish(&mut self, _: &mut Context, _: usize, cause: Cancellation) {
        self.log.borrow_mut().push(ProbeEvent::Cancel(self.name, cause));
    }
}

pub(super) struct Downstream<T> {
    pub name: &'static str,
    pub log: EventLog,
    pub inlet: Inlet<T>,
    /// Where elements go; if there is none, they stay in the inlet.
    pub received: Option<Rc<RefCell<Vec<T>>>>,
}

impl<T: fmt::Debug + 'static> Logic for Downstream<T> {
    fn pre_start(&mut self, context: &mut Context) {
        // What a stage has not taken is dropped when it stops.
        context.set_keep_going(self.received.is_none());
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let event = match &self.received {
            Some(received) => {
                let element = self.inlet.grab(context);
                let text = format!("{element:?}");
                received.borrow_mut().push(element);
                ProbeEvent::Next(self.name, text)
            }
            None => ProbeEvent::Arrived(self.name),
        };
        self.log.borrow_mut().push(event);
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.log.borrow_mut().push(ProbeEvent::Complete(self.name));
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.log.borrow_mut().push(ProbeEvent::Failure(self.name, error));
    }
}
