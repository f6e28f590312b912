//! Streams that are ended or watched from outside: kill switches, `watch_termination`, `monitor`, and flows whose two
//! halves end together.
//!
//! The handles work from any thread. Invariants: the first word of a switch counts; a stage that starts after it, or
//! while it is said, sees it, because it registers before it looks; a stage that has stopped leaves nothing in a switch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::made::Made;
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::{BidiFlow, Flow, FlowOps, Fusable, GraphBuilder, Identity, Sink, Source, keep};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::{BidiPorts, BidiShape, FlowShape, Logic, Setup};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
enum Signal {
    Shutdown,
    Abort(StreamError),
}

#[derive(Default)]
struct SwitchState {
    signal: Option<Signal>,
    /// Of the stages that run, by a number of their own.
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

#[derive(Clone, Default)]
struct Switch(Arc<Mutex<SwitchState>>);

impl Switch {
    fn signal(&self, signal: Signal) -> bool {
        let wakers = {
            let mut state = lock(&self.0);
            if state.signal.is_some() {
                return false;
            }
            state.signal = Some(signal);
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers.into_values() {
            waker.wake();
        }
        true
    }

    fn is_used(&self) -> bool {
        lock(&self.0).signal.is_some()
    }

    fn register(&self, waker: Waker) -> Registered {
        let mut state = lock(&self.0);
        state.next += 1;
        let number = state.next;
        if state.signal.is_none() {
            state.wakers.insert(number, waker);
        }
        drop(state);
        Registered { switch: self.clone(), number }
    }
}

/// A stage in a switch.
struct Registered {
    switch: Switch,
    number: u64,
}

impl Registered {
    fn obey(&self, context: &mut Context) {
        let signal = lock(&self.switch.0).signal.clone();
        match signal {
            None => {}
            Some(Signal::Shutdown) => context.complete_stage(),
            Some(Signal::Abort(error)) => context.fail_stage(error),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.switch.0).wakers.remove(&self.number);
    }
}

macro_rules! switch_methods {
    () => {
        /// Completes the stream downstream and cancels it upstream. False if the switch was used before.
        pub fn shutdown(&self) -> bool {
            self.switch.signal(Signal::Shutdown)
        }

        /// Fails the stream. False if the switch was used before.
        pub fn abort(&self, error: StreamError) -> bool {
            self.switch.signal(Signal::Abort(error))
        }

        /// Whether it was used.
        #[must_use]
        pub fn is_used(&self) -> bool {
            self.switch.is_used()
        }
    };
}

/// Ends one stream, from any thread. See [`KillSwitches::single`].
#[derive(Clone)]
pub struct UniqueKillSwitch {
    switch: Switch,
}

impl UniqueKillSwitch {
    switch_methods!();
}

/// Ends any number of streams, from any thread: those that have one of its flows, and run or will run.
///
/// ```
/// use atoll::stream::dsl::{FlowOps, Sink, Source};
/// use atoll::stream::operators::SharedKillSwitch;
///
/// let switch = SharedKillSwitch::new("imports");
/// let graph = Source::from_iterator(|| 0_u64..).via(switch.flow()).to_right(Sink::ignore());
/// # let host = atoll::stream::host::StreamHost::new(atoll::stream::host::HostInbox::new());
/// let mut end = graph.run_on(&host)?;
/// # host.run_one(atoll::base::Nanos::ZERO);
/// switch.shutdown();
/// # while host.take_events(atoll::base::Nanos::ZERO) { host.run_one(atoll::base::Nanos::ZERO); }
/// assert!(end.try_take().unwrap().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedKillSwitch {
    name: Arc<str>,
    switch: Switch,
}

impl SharedKillSwitch {
    /// A switch. The name is for people.
    #[must_use]
    pub fn new(name: &str) -> SharedKillSwitch {
        SharedKillSwitch { name: Arc::from(name), switch: Switch::default() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A flow that passes elements on until the switch is used. If it was used before, the stream ends when it starts.
    #[must_use]
    pub fn flow<T: 'static>(&self) -> Flow<T, T, SharedKillSwitch> {
        let shared = self.clone();
        let prepare = move |_: &_| (shared.switch.clone(), shared.clone());
        Flow::from_stage(Made::new("kill_switch", FlowShape::<T, T>::new(), prepare, |switch: Switch, ports, setup| {
            KillFlow { inlet: ports.inlet, outlet: ports.outlet, registered: switch.register(setup.waker()) }
        }))
        .named(&self.name)
    }

    /// Number of streams that run with it.
    #[must_use]
    pub fn streams(&self) -> usize {
        lock(&self.switch.0).wakers.len()
    }

    switch_methods!();
}

/// Where switches for one stream come from.
pub struct KillSwitches;

impl KillSwitches {
    /// A flow that passes elements on until its materialized switch is used.
    #[must_use]
    pub fn single<T: 'static>() -> Flow<T, T, UniqueKillSwitch> {
        let shape = FlowShape::<T, T>::new();
        Flow::from_stage(Made::new(
            "kill_switch",
            shape,
            |_| unique(),
            |switch: Switch, ports, setup| KillFlow {
                inlet: ports.inlet,
                outlet: ports.outlet,
                registered: switch.register(setup.waker()),
            },
        ))
    }

    /// A pair of flows that pass elements on until their materialized switch is used, which ends both.
    #[must_use]
    pub fn single_bidi<A: 'static, B: 'static>() -> BidiFlow<A, A, B, B, UniqueKillSwitch> {
        let shape = BidiShape::<A, A, B, B>::new();
        BidiFlow::from_stage(Made::new(
            "kill_switch",
            shape,
            |_| unique(),
            |switch: Switch, ports, setup| Both {
                ports,
                registered: Some(switch.register(setup.waker())),
                is_coupled: false,
            },
        ))
    }
}

fn unique() -> (Switch, UniqueKillSwitch) {
    let switch = Switch::default();
    (switch.clone(), UniqueKillSwitch { switch })
}

struct KillFlow<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    registered: Registered,
}

impl<T: 'static> Logic for KillFlow<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.registered.obey(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.registered.obey(context);
    }
}

/// Passes elements on in two directions.
struct Both<A, B> {
    ports: BidiPorts<A, A, B, B>,
    registered: Option<Registered>,
    /// The end of one direction ends the other.
    is_coupled: bool,
}

impl<A: 'static, B: 'static> Logic for Both<A, B> {
    fn pre_start(&mut self, context: &mut Context) {
        self.on_wake(context);
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        if inlet == 0 {
            let element = self.ports.inlet_down.grab(context);
            self.ports.outlet_down.push(context, element);
        } else {
            let element = self.ports.inlet_back.grab(context);
            self.ports.outlet_back.push(context, element);
        }
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        match outlet {
            0 => self.ports.inlet_down.pull(context),
            _ => self.ports.inlet_back.pull(context),
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        match inlet {
            _ if self.is_coupled => context.complete_stage(),
            0 => self.ports.outlet_down.complete(context),
            _ => self.ports.outlet_back.complete(context),
        }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, inlet: usize, error: StreamError) {
        match inlet {
            _ if self.is_coupled => context.fail_stage(error),
            0 => self.ports.outlet_down.fail(context, error),
            _ => self.ports.outlet_back.fail(context, error),
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        match outlet {
            _ if self.is_coupled => context.cancel_stage(cause),
            0 => self.ports.inlet_down.cancel_because(context, cause),
            _ => self.ports.inlet_back.cancel_because(context, cause),
        }
    }

    fn on_wake(&mut self, context: &mut Context) {
        if let Some(registered) = &self.registered {
            registered.obey(context);
        }
    }
}

struct WatchTermination<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    promise: Promise<()>,
}

impl<T: 'static> Logic for WatchTermination<T> {
    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.promise.succeed(());
        context.complete_stage();
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        self.promise.fail(error.clone());
        context.fail_stage(error);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        self.promise.succeed(());
        context.cancel_stage(cause);
    }
}

/// What a [`FlowMonitor`] has seen.
#[derive(Clone, Debug)]
pub enum MonitorState<T> {
    /// Nothing yet.
    Initialized,
    /// This element last.
    Received(T),
    /// The stream failed.
    Failed(StreamError),
    /// The stream completed, was cancelled, or was stopped.
    Finished,
}

/// Shows what a stream does, to any thread.
pub struct FlowMonitor<T>(Arc<Mutex<MonitorState<T>>>);

impl<T> Clone for FlowMonitor<T> {
    fn clone(&self) -> Self {
        FlowMonitor(Arc::clone(&self.0))
    }
}

impl<T: Clone> FlowMonitor<T> {
    /// What it saw last.
    #[must_use]
    pub fn state(&self) -> MonitorState<T> {
        lock(&self.0).clone()
    }
}

struct Monitor<T> {
    inlet: Inlet<T>,
    outlet: Outlet<T>,
    state: Arc<Mutex<MonitorState<T>>>,
}

impl<T: Clone + 'static> Logic for Monitor<T> {
    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        // The last one is dropped after the lock is free: its drop is the user's code.
        let received = MonitorState::Received(element.clone());
        let last = std::mem::replace(&mut *lock(&self.state), received);
        drop(last);
        self.outlet.push(context, element);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        *lock(&self.state) = MonitorState::Failed(error.clone());
        context.fail_stage(error);
    }
}

impl<T> Drop for Monitor<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if !matches!(*state, MonitorState::Failed(_)) {
            *state = MonitorState::Finished;
        }
    }
}

/// Operators that show a stream to the outside.
pub trait TerminationOps: FlowOps {
    /// Materializes a [`Completion`] that is there when the stream ends here: with `Ok` when it completes or is cancelled,
    /// with the failure when it fails, with [`AbruptTermination`](crate::stream::error::AbruptTermination) when it is
    /// stopped. `combine` gets the value of what was there and the completion, see [`keep`].
    fn watch_termination<M: 'static>(
        self,
        combine: impl Fn(Self::Mat, Completion<()>) -> M + Send + Sync + 'static,
    ) -> Self::With<Self::Out, M, Identity<Self::Out>> {
        let shape = FlowShape::<Self::Out, Self::Out>::new();
        let stage = Made::new(
            "watch_termination",
            shape,
            |_| completion(),
            |promise: Promise<()>, ports, _| WatchTermination { inlet: ports.inlet, outlet: ports.outlet, promise },
        );
        self.via_stage_mat(stage, combine)
    }

    /// Materializes a [`FlowMonitor`] that shows the last element and the end to any thread. Each element is cloned, under
    /// a lock that a reader holds for as long as a clone takes.
    fn monitor<M: 'static>(
        self,
        combine: impl Fn(Self::Mat, FlowMonitor<Self::Out>) -> M + Send + Sync + 'static,
    ) -> Self::With<Self::Out, M, Identity<Self::Out>>
    where
        Self::Out: Clone + Send,
    {
        let shape = FlowShape::<Self::Out, Self::Out>::new();
        let prepare = |_: &_| {
            let state = Arc::new(Mutex::new(MonitorState::Initialized));
            (Arc::clone(&state), FlowMonitor(state))
        };
        let stage = Made::new("monitor", shape, prepare, |state, ports, _: &Setup<'_>| Monitor {
            inlet: ports.inlet,
            outlet: ports.outlet,
            state,
        });
        self.via_stage_mat(stage, combine)
    }
}

impl<S: FlowOps> TerminationOps for S {}

/// The parts of a flow that is made of a sink and a source are wired where it is made.
const WIRED_HERE: &str = "the sink and the source of a flow are wired here only";

impl<In: 'static, Out: 'static> Flow<In, Out> {
    /// A flow whose elements go to the sink, and which emits those of the source; the two have nothing to do with one
    /// another.
    pub fn from_sink_and_source<M1: 'static, M2: 'static, P: Fusable<Out = Out>>(
        sink: Sink<In, M1>,
        source: Source<Out, M2, P>,
    ) -> Flow<In, Out> {
        Flow::from_sink_and_source_mat(sink, source, keep::none)
    }

    /// As [`Flow::from_sink_and_source`], with the halves coupled: when one ends the other does.
    ///
    /// Completion of either input completes both outputs and cancels the other input; so does a cancellation of either
    /// output. A failure fails both. So if upstream completes, downstream completes and the source is cancelled; if the
    /// sink cancels, upstream is cancelled and downstream completes; if the source ends, upstream is cancelled and the
    /// sink completes.
    pub fn from_sink_and_source_coupled<M1: 'static, M2: 'static, P: Fusable<Out = Out>>(
        sink: Sink<In, M1>,
        source: Source<Out, M2, P>,
    ) -> Flow<In, Out> {
        Flow::from_sink_and_source_coupled_mat(sink, source, keep::none)
    }
}

impl<In: 'static, Out: 'static, R: 'static> Flow<In, Out, R> {
    /// As [`Flow::from_sink_and_source`], with the materialized values combined.
    pub fn from_sink_and_source_mat<M1: 'static, M2: 'static, P: Fusable<Out = Out>>(
        sink: Sink<In, M1>,
        source: Source<Out, M2, P>,
        combine: impl Fn(M1, M2) -> R + Send + Sync + 'static,
    ) -> Flow<In, Out, R> {
        let (graph, inlet) = GraphBuilder::with(sink);
        let (graph, outlet) = graph.add_mat(source, combine);
        graph.flow(inlet, outlet).expect(WIRED_HERE)
    }

    /// As [`Flow::from_sink_and_source_coupled`], with the materialized values combined.
    pub fn from_sink_and_source_coupled_mat<M1: 'static, M2: 'static, P: Fusable<Out = Out>>(
        sink: Sink<In, M1>,
        source: Source<Out, M2, P>,
        combine: impl Fn(M1, M2) -> R + Send + Sync + 'static,
    ) -> Flow<In, Out, R> {
        let (graph, inlet) = GraphBuilder::with(sink);
        let (mut graph, outlet) = graph.add_mat(source, combine);
        let shape = BidiShape::<In, In, Out, Out>::new();
        let coupling = graph.add_stage(Made::new(
            "coupled",
            shape,
            |_| ((), ()),
            |(), ports, _| Both { ports, registered: None, is_coupled: true },
        ));
        graph.connect(coupling.outlet_down, inlet);
        graph.connect(outlet, coupling.inlet_back);
        graph.flow(coupling.inlet_down, coupling.outlet_back).expect(WIRED_HERE)
    }
}
