//! Streams within streams: how a stage takes elements from a stream that it runs, and gives elements to one that
//! somebody else will run.
//!
//! Both directions are a boundary ring of one place (or as many as the attribute `InputBuffer` of the stage says), woken
//! by the waker of the stage. A [`SubInlet`] ends a source that runs as an island of its own on this core; a
//! [`SubOutlet`] begins a source that is an element, may go anywhere, and runs once.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::stream::attributes::InputBuffer;
use crate::stream::boundary::ring::{Consumer, End, Producer, ring};
use crate::stream::dsl::{Fusable, NoHost, RunnableGraph, Sink, Source};
use crate::stream::error::{AbruptTermination, Cancellation, StreamError};
use crate::stream::host::current;
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::stage_with;
use crate::stream::stage::{Logic, Setup, SinkShape, SourceShape};

/// A source that came out of a stream was run a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a substream cannot be materialized more than once; use a broadcast to read it twice")]
pub struct SubstreamUsed;

/// What a stage needs to have streams of its own.
pub(super) struct Substreams {
    /// Places between the stage and a stream: one, unless the attributes ask for more.
    places: usize,
    waker: Waker,
}

impl Substreams {
    pub fn new(setup: &Setup<'_>) -> Substreams {
        let places = setup.attributes().get::<InputBuffer>().map_or(1, InputBuffer::max);
        Substreams { places, waker: setup.waker() }
    }

    /// Runs a source on this core, as an island of its own.
    pub fn run<T, M, P>(&self, source: Source<T, M, P>) -> Result<SubInlet<T>, StreamError>
    where
        T: Send + 'static,
        M: 'static,
        P: Fusable<Out = T>,
    {
        self.run_mat(source).map(|(inlet, _)| inlet)
    }

    /// As [`Substreams::run`], with the materialized value of the source.
    pub fn run_mat<T, M, P>(&self, source: Source<T, M, P>) -> Result<(SubInlet<T>, M), StreamError>
    where
        T: Send + 'static,
        M: 'static,
        P: Fusable<Out = T>,
    {
        let (producer, mut consumer) = ring(self.places);
        consumer.attach(self.waker.clone());
        let value = run_here(source.to(sink_of(producer)))?;
        Ok((SubInlet { consumer }, value))
    }

    /// The beginning of a stream, and its source to give away.
    pub fn begin<T: Send + 'static>(&self) -> (SubOutlet<T>, Source<T>) {
        let (producer, consumer) = ring(self.places);
        (SubOutlet::new(producer, self.waker.clone()), source_of(consumer))
    }
}

/// Runs a graph on this core.
pub(super) fn run_here<M: 'static>(graph: RunnableGraph<M>) -> Result<M, StreamError> {
    let host = current::host().ok_or_else(|| StreamError::new(NoHost))?;
    graph.run_on(&host).map_err(|error| StreamError::text(error.to_string()))
}

/// The end of a stream that a stage runs.
pub(super) struct SubInlet<T> {
    consumer: Consumer<T>,
}

/// What a [`SubInlet`] has.
pub(super) enum Sub<T> {
    /// An element.
    Element(T),
    /// Nothing yet: the stage is woken when there is something.
    Pending,
    /// The stream has completed.
    Completed,
    /// The stream has failed.
    Failed(StreamError),
}

impl<T: Send + 'static> SubInlet<T> {
    /// Gives downstream what there is, if it asks, and the end also if it does not.
    pub fn relay(&mut self, context: &mut Context, outlet: &Outlet<T>) {
        if outlet.is_closed(context) {
            return;
        }
        if !outlet.is_available(context) {
            // Ends reach downstream without demand.
            match self.consumer.end() {
                End::Failed(error) => context.fail_stage(error),
                End::Gone => context.fail_stage(StreamError::new(AbruptTermination)),
                End::Completed if !self.consumer.has_next() => context.complete_stage(),
                End::Completed | End::Open => {}
            }
            return;
        }
        match self.poll() {
            Sub::Element(element) => outlet.push(context, element),
            Sub::Pending => {}
            Sub::Completed => context.complete_stage(),
            Sub::Failed(error) => context.fail_stage(error),
        }
    }

    pub fn poll(&mut self) -> Sub<T> {
        loop {
            // The end first: what is published before it is seen after it.
            match self.consumer.end() {
                End::Failed(error) => return Sub::Failed(error),
                End::Gone => return Sub::Failed(StreamError::new(AbruptTermination)),
                End::Completed => {
                    return match self.consumer.take() {
                        Some(element) => Sub::Element(element),
                        None => Sub::Completed,
                    };
                }
                End::Open => {}
            }
            if let Some(element) = self.consumer.take() {
                self.consumer.release();
                return Sub::Element(element);
            }
            if self.consumer.wait() {
                return Sub::Pending;
            }
        }
    }

    pub fn cancel(&mut self, cause: Cancellation) {
        self.consumer.cancel(cause);
    }
}

impl<T> Drop for SubInlet<T> {
    fn drop(&mut self) {
        self.consumer.cancel(Cancellation::NoMoreElementsNeeded);
    }
}

/// Ends a stream in a ring.
pub(in crate::stream::operators) struct RingSink<T> {
    inlet: Inlet<T>,
    /// None if it has run before.
    outlet: Option<SubOutlet<T>>,
}

fn sink_of<T: Send + 'static>(producer: Producer<T>) -> Sink<T> {
    let producer = Mutex::new(Some(producer));
    Sink::from_stage(stage_with("substream_sink", SinkShape::new(), move |_| {
        let producer = take(&producer);
        (|inlet, setup: &Setup<'_>| RingSink::new(inlet, producer, setup), ())
    }))
}

/// What can be used once.
fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<T: Send + 'static> RingSink<T> {
    pub(in crate::stream::operators) fn new(
        inlet: Inlet<T>,
        producer: Option<Producer<T>>,
        setup: &Setup<'_>,
    ) -> RingSink<T> {
        RingSink { inlet, outlet: producer.map(|producer| SubOutlet::new(producer, setup.waker())) }
    }

    fn advance(&mut self, context: &mut Context) {
        let Some(outlet) = &mut self.outlet else {
            context.fail_stage(StreamError::new(SubstreamUsed));
            return;
        };
        // A cancellation wakes this stage even if it waits for no place.
        if outlet.has_room() {
            self.inlet.try_pull(context);
        } else if let Some(cause) = outlet.cancellation() {
            self.inlet.cancel_because(context, cause);
        }
    }
}

impl<T: Send + 'static> Logic for RingSink<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.advance(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if let Some(outlet) = &mut self.outlet {
            // There is a place: it was there when the inlet was pulled.
            outlet.push(element);
        }
        self.advance(context);
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        if let Some(outlet) = &mut self.outlet {
            outlet.complete();
        }
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        if let Some(outlet) = &mut self.outlet {
            outlet.fail(error);
        }
    }

    fn on_wake(&mut self, context: &mut Context) {
        if !self.inlet.is_closed(context) {
            self.advance(context);
        }
    }
}

/// The beginning of a stream that is an element of another.
pub(super) struct SubOutlet<T> {
    producer: Producer<T>,
}

impl<T: Send + 'static> SubOutlet<T> {
    fn new(mut producer: Producer<T>, waker: Waker) -> SubOutlet<T> {
        producer.attach(waker);
        SubOutlet { producer }
    }

    /// Whether an element can be given now. If not, the stage is woken when that changes.
    pub fn has_room(&mut self) -> bool {
        loop {
            if self.producer.cancellation().is_some() {
                return false;
            }
            if self.producer.has_room() {
                return true;
            }
            if self.producer.wait() {
                return false;
            }
        }
    }

    /// Why the substream takes no more, if it does not.
    pub fn cancellation(&self) -> Option<Cancellation> {
        self.producer.cancellation().map(|cause| cause.unwrap_or(Cancellation::NoMoreElementsNeeded))
    }

    /// Gives an element, for which there is room. It is dropped if the substream has cancelled.
    pub fn push(&mut self, element: T) {
        drop(self.producer.write(element));
        self.producer.publish();
    }

    pub fn complete(&mut self) {
        self.producer.complete();
    }

    pub fn fail(&mut self, error: StreamError) {
        self.producer.fail(error);
    }
}

fn source_of<T: Send + 'static>(consumer: Consumer<T>) -> Source<T> {
    let consumer = Mutex::new(Some(consumer));
    Source::from_stage(stage_with("substream", SourceShape::new(), move |_| {
        let consumer = take(&consumer);
        let create = |outlet, setup: &Setup<'_>| {
            let inlet = consumer.map(|mut consumer| {
                consumer.attach(setup.waker());
                SubInlet { consumer }
            });
            RingSource { outlet, inlet }
        };
        (create, ())
    }))
}

/// Two halves of a stream: a sink for one that runs, and a source of what comes in there. Each runs once.
pub(super) fn bridge<T: Send + 'static>() -> (Sink<T>, Source<T>) {
    let (producer, consumer) = ring(1);
    (sink_of(producer), source_of(consumer))
}

/// Begins a stream from a ring.
struct RingSource<T> {
    outlet: Outlet<T>,
    /// None if it has run before.
    inlet: Option<SubInlet<T>>,
}

impl<T: Send + 'static> RingSource<T> {
    fn advance(&mut self, context: &mut Context) {
        let Some(inlet) = &mut self.inlet else {
            context.fail_stage(StreamError::new(SubstreamUsed));
            return;
        };
        inlet.relay(context, &self.outlet);
    }
}

impl<T: Send + 'static> Logic for RingSource<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.advance(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.advance(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.advance(context);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        if let Some(inlet) = &mut self.inlet {
            inlet.cancel(cause.clone());
        }
        context.cancel_stage(cause);
    }
}
