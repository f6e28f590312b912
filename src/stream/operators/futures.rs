//! Sources, sinks and flows that wait for one future at a time, and sources of foreign streams.
//!
//! A future is polled on the core that runs the stage, so it need not be `Send`; it is woken from anywhere. What is under
//! way when the stage ends is dropped, which is how a future is cancelled.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use futures_core::Stream;

use super::flights::Flight;
use super::map_async::MapAsyncOps;
use crate::stream::attributes::{Directive, Supervision};
use crate::stream::completion::Completion;
use crate::stream::dsl::{Flow, FlowOps, Plain, Sink, Source, keep};
use crate::stream::error::StreamError;
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::stage;
use crate::stream::stage::supervised::{Judged, judge};
use crate::stream::stage::{FlowPorts, FlowShape, Logic, SourceShape};

/// Result of a function that may fail.
type Fallible<U> = Result<U, StreamError>;

/// How what a future gives becomes the next state and an element.
type Unfolded<Fut, S, T> = fn(<Fut as Future>::Output) -> Fallible<Option<(S, T)>>;

/// What a polled source does next.
enum Next<T> {
    Emit(T),
    Last(T),
    Done,
    Wait,
}

/// What a source polls when it is asked for an element.
trait PollSource: 'static {
    type Out: 'static;

    /// Begins before there is demand.
    const IS_EAGER: bool = false;

    fn start(&mut self) {}

    fn poll(&mut self) -> Result<Next<Self::Out>, StreamError>;
}

struct PolledSource<S: PollSource> {
    outlet: Outlet<S::Out>,
    source: S,
    /// The end is known and an element waits for demand.
    last: Option<S::Out>,
}

impl<S: PollSource> PolledSource<S> {
    fn look(&mut self, context: &mut Context) {
        if !self.outlet.is_available(context) && (!S::IS_EAGER || self.last.is_some()) {
            return;
        }
        if let Some(last) = self.last.take() {
            self.outlet.push(context, last);
            self.outlet.complete(context);
            return;
        }
        match self.source.poll() {
            Ok(Next::Emit(element)) => self.outlet.push(context, element),
            Ok(Next::Last(element)) => {
                self.last = Some(element);
                if self.outlet.is_available(context) {
                    self.look(context);
                }
            }
            Ok(Next::Done) => context.complete_stage(),
            Ok(Next::Wait) => {}
            Err(error) => context.fail_and_log(error),
        }
    }
}

impl<S: PollSource> Logic for PolledSource<S> {
    fn pre_start(&mut self, context: &mut Context) {
        if S::IS_EAGER {
            self.source.start();
            self.look(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.look(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.look(context);
    }
}

/// [`Source::future`] and [`Source::lazy_future`].
struct OneFuture<T, F, Fut: Future, const EAGER: bool> {
    factory: Option<F>,
    flight: Flight<Fut>,
    outcome: fn(Fut::Output) -> Fallible<T>,
}

impl<T: 'static, F: FnOnce() -> Fut + 'static, Fut: Future + 'static, const EAGER: bool> PollSource
    for OneFuture<T, F, Fut, EAGER>
{
    type Out = T;
    const IS_EAGER: bool = EAGER;

    fn start(&mut self) {
        if let Some(factory) = self.factory.take() {
            self.flight.launch(factory());
        }
    }

    fn poll(&mut self) -> Fallible<Next<T>> {
        self.start();
        match self.flight.poll() {
            Poll::Pending => Ok(Next::Wait),
            Poll::Ready(output) => (self.outcome)(output).map(Next::Last),
        }
    }
}

fn one_future<T, F, Fut, const EAGER: bool>(
    name: &'static str,
    factory: F,
    outcome: fn(Fut::Output) -> Fallible<T>,
) -> Source<T>
where
    T: 'static,
    F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
    Fut: Future + 'static,
{
    Source::from_stage(stage(name, SourceShape::new(), move |outlet, setup| {
        let flight = Flight::new(setup.waker());
        let source = OneFuture::<T, F, Fut, EAGER> { factory: Some(factory), flight, outcome };
        PolledSource { outlet, source, last: None }
    }))
}

/// [`Source::unfold_async`].
struct UnfoldAsync<T, S, F, Fut: Future> {
    state: Option<S>,
    function: F,
    flight: Flight<Fut>,
    outcome: Unfolded<Fut, S, T>,
}

impl<T: 'static, S: 'static, F: FnMut(S) -> Fut + 'static, Fut: Future + 'static> PollSource
    for UnfoldAsync<T, S, F, Fut>
{
    type Out = T;

    fn poll(&mut self) -> Fallible<Next<T>> {
        if let Some(state) = self.state.take() {
            self.flight.launch((self.function)(state));
        }
        match self.flight.poll() {
            Poll::Pending => Ok(Next::Wait),
            Poll::Ready(output) => Ok(match (self.outcome)(output)? {
                Some((state, element)) => {
                    self.state = Some(state);
                    Next::Emit(element)
                }
                None => Next::Done,
            }),
        }
    }
}

fn unfold_async<T, S, F, Fut>(state: S, function: F, outcome: Unfolded<Fut, S, T>) -> Source<T>
where
    T: 'static,
    S: Clone + Send + Sync + 'static,
    F: FnMut(S) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future + 'static,
{
    Source::from_stage(stage("unfold_async", SourceShape::new(), move |outlet, setup| {
        let flight = Flight::new(setup.waker());
        PolledSource { outlet, source: UnfoldAsync { state: Some(state), function, flight, outcome }, last: None }
    }))
}

/// [`Source::from_stream`].
struct Foreign<T, St: Stream> {
    stream: Pin<Box<St>>,
    waker: Waker,
    outcome: fn(St::Item) -> Fallible<T>,
}

impl<T: 'static, St: Stream + 'static> PollSource for Foreign<T, St> {
    type Out = T;

    fn poll(&mut self) -> Fallible<Next<T>> {
        match self.stream.as_mut().poll_next(&mut TaskContext::from_waker(&self.waker)) {
            Poll::Pending => Ok(Next::Wait),
            Poll::Ready(None) => Ok(Next::Done),
            Poll::Ready(Some(item)) => (self.outcome)(item).map(Next::Emit),
        }
    }
}

fn from_stream<T, St, F>(factory: F, outcome: fn(St::Item) -> Fallible<T>) -> Source<T>
where
    T: 'static,
    St: Stream + 'static,
    F: FnOnce() -> St + Clone + Send + Sync + 'static,
{
    Source::from_stage(stage("from_stream", SourceShape::new(), move |outlet, setup| {
        let source = Foreign { stream: Box::pin(factory()), waker: setup.waker(), outcome };
        PolledSource { outlet, source, last: None }
    }))
}

impl<T: 'static> Source<T> {
    /// Emits what a future gives, and completes. The future is made when the stream starts, also without demand.
    ///
    /// Emits when the future is done and downstream asks. Completes with the element.
    pub fn future<F, Fut>(factory: F) -> Source<T>
    where
        F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = T> + 'static,
    {
        one_future::<T, F, Fut, true>("future", factory, Ok)
    }

    /// As [`Source::future`]; an `Err` fails the stream at once.
    pub fn try_future<F, Fut>(factory: F) -> Source<T>
    where
        F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<T>> + 'static,
    {
        one_future::<T, F, Fut, true>("future", factory, std::convert::identity)
    }

    /// As [`Source::future`], but the future is made when downstream asks for the first time.
    pub fn lazy_future<F, Fut>(factory: F) -> Source<T>
    where
        F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = T> + 'static,
    {
        one_future::<T, F, Fut, false>("lazy_future", factory, Ok)
    }

    /// As [`Source::lazy_future`]; an `Err` fails the stream.
    pub fn try_lazy_future<F, Fut>(factory: F) -> Source<T>
    where
        F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<T>> + 'static,
    {
        one_future::<T, F, Fut, false>("lazy_future", factory, std::convert::identity)
    }

    /// Emits elements that futures make of a state, one after another, until one gives `None`.
    ///
    /// Emits when the future is done that was made when downstream asked. Completes when a future gives `None`.
    pub fn unfold_async<S, F, Fut>(state: S, function: F) -> Source<T>
    where
        S: Clone + Send + Sync + 'static,
        F: FnMut(S) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Option<(S, T)>> + 'static,
    {
        unfold_async(state, function, Ok)
    }

    /// As [`Source::unfold_async`]; an `Err` fails the stream.
    pub fn try_unfold_async<S, F, Fut>(state: S, function: F) -> Source<T>
    where
        S: Clone + Send + Sync + 'static,
        F: FnMut(S) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<Option<(S, T)>>> + 'static,
    {
        unfold_async(state, function, std::convert::identity)
    }

    /// Emits what a [`Stream`] of any library gives; each run gets a new one from the factory, made on the core that runs
    /// it. It is polled when downstream asks.
    pub fn from_stream<St, F>(factory: F) -> Source<T>
    where
        St: Stream<Item = T> + 'static,
        F: FnOnce() -> St + Clone + Send + Sync + 'static,
    {
        from_stream(factory, Ok)
    }

    /// As [`Source::from_stream`]; the first `Err` fails the stream.
    pub fn try_from_stream<St, F>(factory: F) -> Source<T>
    where
        St: Stream<Item = Fallible<T>> + 'static,
        F: FnOnce() -> St + Clone + Send + Sync + 'static,
    {
        from_stream(factory, std::convert::identity)
    }
}

/// `scan_async` and `fold_async`.
struct Accumulate<T, A, F, Fut: Future> {
    inlet: Inlet<T>,
    outlet: Outlet<A>,
    zero: A,
    state: A,
    function: F,
    flight: Flight<Fut>,
    outcome: fn(Fut::Output) -> Fallible<A>,
    supervision: Option<Supervision>,
    /// A scan emits every state, a fold the last one.
    emits_all: bool,
    /// The present state is to be emitted.
    is_new: bool,
    element: PhantomData<fn(T)>,
}

impl<T, A, F, Fut> Accumulate<T, A, F, Fut>
where
    T: 'static,
    A: Clone + 'static,
    F: FnMut(A, T) -> Fut + 'static,
    Fut: Future + 'static,
{
    fn restart(&mut self, directive: Directive) {
        self.flight.discard();
        if directive == Directive::Restart {
            self.state = self.zero.clone();
            self.is_new |= self.emits_all;
        }
    }

    fn go_on(&mut self, context: &mut Context) {
        if self.flight.is_flying() {
            let (flight, outcome) = (&mut self.flight, self.outcome);
            let polled = judge(self.supervision.as_ref(), || match flight.poll() {
                Poll::Pending => Ok(None),
                Poll::Ready(output) => outcome(output).map(Some),
            });
            match polled {
                Judged::Value(None) => return,
                Judged::Value(Some(state)) => {
                    self.state = state;
                    self.is_new |= self.emits_all;
                }
                Judged::Dropped(directive) => self.restart(directive),
                Judged::Failed(error) => return context.fail_and_log(error),
            }
        }
        let is_last = self.inlet.is_closed(context) && !self.inlet.is_available(context);
        if is_last && !self.emits_all {
            self.is_new = true;
        }
        if self.is_new {
            if !self.outlet.is_available(context) {
                return;
            }
            self.is_new = false;
            self.outlet.push(context, self.state.clone());
            if is_last {
                context.complete_stage();
            }
        } else if is_last {
            context.complete_stage();
        } else if self.outlet.is_available(context) {
            self.inlet.try_pull(context);
        }
    }
}

impl<T, A, F, Fut> Logic for Accumulate<T, A, F, Fut>
where
    T: 'static,
    A: Clone + 'static,
    F: FnMut(A, T) -> Fut + 'static,
    Fut: Future + 'static,
{
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let (function, state) = (&mut self.function, self.state.clone());
        match judge(self.supervision.as_ref(), || Ok(function(state, element))) {
            Judged::Value(future) => self.flight.launch(future),
            Judged::Dropped(directive) => self.restart(directive),
            Judged::Failed(error) => return context.fail_stage(error),
        }
        self.go_on(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.go_on(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.go_on(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.go_on(context);
    }
}

fn accumulate<S, A, F, Fut>(
    flow: S,
    name: &'static str,
    zero: A,
    function: F,
    outcome: fn(Fut::Output) -> Fallible<A>,
    emits_all: bool,
) -> Plain<S, A>
where
    S: FlowOps,
    A: Clone + Send + Sync + 'static,
    F: FnMut(A, S::Out) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future + 'static,
{
    flow.via_stage(stage(name, FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| Accumulate {
        inlet,
        outlet,
        state: zero.clone(),
        zero,
        function,
        flight: Flight::new(setup.waker()),
        outcome,
        supervision: setup.supervision(),
        emits_all,
        is_new: emits_all,
        element: PhantomData,
    }))
}

/// Operators that accumulate by futures, one at a time.
pub trait AsyncAccumulatingOps: FlowOps {
    /// Emits `zero`, and then each state that the futures make of the state before and an element.
    ///
    /// Emits when a future is done. Back-pressures while one is under way. Completes when upstream has and the last state
    /// is emitted. A panic is what the supervision decider says: `Restart` begins with `zero` again, which is emitted.
    fn scan_async<A, F, Fut>(self, zero: A, function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, Self::Out) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = A> + 'static,
    {
        accumulate(self, "scan_async", zero, function, Ok, true)
    }

    /// As [`AsyncAccumulatingOps::scan_async`]; an `Err` fails the stream, or is what the supervision decider says.
    fn try_scan_async<A, F, Fut>(self, zero: A, function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, Self::Out) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<A>> + 'static,
    {
        accumulate(self, "scan_async", zero, function, std::convert::identity, true)
    }

    /// Emits the last state when upstream has completed.
    ///
    /// Emits once, when upstream has completed and the last future is done. Back-pressures while a future is under way.
    fn fold_async<A, F, Fut>(self, zero: A, function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, Self::Out) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = A> + 'static,
    {
        accumulate(self, "fold_async", zero, function, Ok, false)
    }

    /// As [`AsyncAccumulatingOps::fold_async`]; an `Err` fails the stream, or is what the supervision decider says.
    fn try_fold_async<A, F, Fut>(self, zero: A, function: F) -> Plain<Self, A>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, Self::Out) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<A>> + 'static,
    {
        accumulate(self, "fold_async", zero, function, std::convert::identity, false)
    }
}

impl<S: FlowOps> AsyncAccumulatingOps for S {}

impl<T: 'static> Sink<T> {
    /// Waits for a future of each element, up to `parallelism` at a time. The value is there when the stream has completed
    /// and all futures are done.
    pub fn for_each_async<F, Fut>(parallelism: usize, function: F) -> Sink<T, Completion<()>>
    where
        F: FnMut(T) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Flow::<T, T>::new().map_async_unordered(parallelism, function).to_mat(Sink::ignore(), keep::right)
    }

    /// As [`Sink::for_each_async`]; an `Err` fails the stream, or is what the supervision decider says.
    pub fn try_for_each_async<F, Fut>(parallelism: usize, function: F) -> Sink<T, Completion<()>>
    where
        F: FnMut(T) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<()>> + 'static,
    {
        Flow::<T, T>::new().try_map_async_unordered(parallelism, function).to_mat(Sink::ignore(), keep::right)
    }

    /// Folds by futures, one at a time. The value is there when the stream has completed and the last future is done.
    pub fn fold_async<A, F, Fut>(zero: A, function: F) -> Sink<T, Completion<A>>
    where
        A: Clone + Send + Sync + 'static,
        F: FnMut(A, T) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = A> + 'static,
    {
        Flow::<T, T>::new().fold_async(zero, function).to_mat(Sink::head(), keep::right)
    }
}
