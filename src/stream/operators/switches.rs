//! Streams that are ended or watched from outside: kill switches, `watch_termination`, `monitor`, and flows whose two
//! halves end together.
//!
//! The handles work from any thread. Invariants: the first word of a switch counts; a stage that starts after it, or
//! while it is said, sees it, because it registers before it looks; a stage that has stopped leaves nothing in a switch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::passing::{Ending, Passing, Watch};
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::{BidiFlow, Flow, FlowOps, Fusable, GraphBuilder, Identity, Sink, Source, keep};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::Context;
use crate::stream::stage::made::{stage, stage_with};
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
        Flow::from_stage(stage_with("kill_switch", FlowShape::new(), move |_| {
            let switch = shared.switch.clone();
            (move |ports, setup: &Setup<'_>| Passing::new(ports, Killed::by(&switch, setup)), shared.clone())
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
        Flow::from_stage(stage_with("kill_switch", FlowShape::new(), |_| {
            let switch = Switch::default();
            let handle = UniqueKillSwitch { switch: switch.clone() };
            (move |ports, setup: &Setup<'_>| Passing::new(ports, Killed::by(&switch, setup)), handle)
        }))
    }

    /// A pair of flows that pass elements on until their materialized switch is used, which ends both.
    #[must_use]
    pub fn single_bidi<A: 'static, B: 'static>() -> BidiFlow<A, A, B, B, UniqueKillSwitch> {
        BidiFlow::from_stage(stage_with("kill_switch", BidiShape::new(), |_| {
            let switch = Switch::default();
            let handle = UniqueKillSwitch { switch: switch.clone() };
            let create = move |ports, setup: &Setup<'_>| Both {
                ports,
                registered: Some(switch.register(setup.waker())),
                is_coupled: false,
            };
            (create, handle)
        }))
    }
}

/// Passes elements on until a switch is used.
struct Killed {
    registered: Registered,
}

impl Killed {
    fn by(switch: &Switch, setup: &Setup<'_>) -> Self {
        Killed { registered: switch.register(setup.waker()) }
    }
}

impl<T: 'static> Watch<T> for Killed {
    fn start(&mut self, context: &mut Context) {
        self.registered.obey(context);
    }

    fn woken(&mut self, context: &mut Context) {
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
        self.ports.pass_element(context, inlet);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        self.ports.pass_demand(context, outlet);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        if self.is_coupled { context.complete_stage() } else { self.ports.pass_completion(context, inlet) }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, inlet: usize, error: StreamError) {
        if self.is_coupled { context.fail_stage(error) } else { self.ports.pass_failure(context, inlet, error) }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, outlet: usize, cause: Cancellation) {
        if self.is_coupled { context.cancel_stage(cause) } else { self.ports.pass_cancellation(context, outlet, cause) }
    }

    fn on_wake(&mut self, context: &mut Context) {
        if let Some(registered) = &self.registered {
            registered.obey(context);
        }
    }
}

struct WatchTermination {
    promise: Promise<()>,
}

impl<T: 'static> Watch<T> for WatchTermination {
    fn finished(&mut self, _: &mut Context) {
        self.promise.succeed(());
    }

    fn failed(&mut self, _: &mut Context, error: StreamError) -> Ending<T> {
        self.promise.fail(error.clone());
        Ending::Fail(error)
    }

    fn cancelled(&mut self, _: &mut Context, _: &Cancellation) {
        self.promise.succeed(());
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
    state: Arc<Mutex<MonitorState<T>>>,
    /// The last element of this run of the island, which is shown when the run ends.
    last: Option<T>,
}

impl<T: Clone + 'static> Watch<T> for Monitor<T> {
    #[inline]
    fn element(&mut self, context: &mut Context, element: &T) {
        if self.last.replace(element.clone()).is_none() {
            context.call_at_run_end();
        }
    }

    fn failed(&mut self, _: &mut Context, error: StreamError) -> Ending<T> {
        self.last = None;
        *lock(&self.state) = MonitorState::Failed(error.clone());
        Ending::Fail(error)
    }

    fn run_ends(&mut self) {
        if let Some(last) = self.last.take() {
            // The one before is dropped after the lock is free: its drop is the user's code.
            let before = std::mem::replace(&mut *lock(&self.state), MonitorState::Received(last));
            drop(before);
        }
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
        let stage = stage_with("watch_termination", FlowShape::new(), |_| {
            let (promise, end) = completion();
            let create = move |ports, _: &Setup<'_>| Passing::new(ports, WatchTermination { promise });
            (create, end)
        });
        self.via_stage_mat(stage, combine)
    }

    /// Materializes a [`FlowMonitor`] that shows the last element and the end to any thread. Each element is cloned; the
    /// last one is shown when the core has served the stream and turns to others, under a lock that a reader holds for as
    /// long as a clone takes.
    fn monitor<M: 'static>(
        self,
        combine: impl Fn(Self::Mat, FlowMonitor<Self::Out>) -> M + Send + Sync + 'static,
    ) -> Self::With<Self::Out, M, Identity<Self::Out>>
    where
        Self::Out: Clone + Send,
    {
        let stage = stage_with("monitor", FlowShape::new(), |_| {
            let state = Arc::new(Mutex::new(MonitorState::Initialized));
            let shown = FlowMonitor(Arc::clone(&state));
            (move |ports, _: &Setup<'_>| Passing::new(ports, Monitor { state, last: None }), shown)
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
        let coupling = graph.add_stage(stage("coupled", BidiShape::<In, In, Out, Out>::new(), |ports, _| Both {
            ports,
            registered: None,
            is_coupled: true,
        }));
        graph.connect(coupling.outlet_down, inlet);
        graph.connect(outlet, coupling.inlet_back);
        graph.flow(coupling.inlet_down, coupling.outlet_back).expect(WIRED_HERE)
    }
}
