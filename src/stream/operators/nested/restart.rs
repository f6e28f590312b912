//! Streams that are started again when they end: [`RestartSource`], [`RestartFlow`], [`RestartSink`].
//!
//! The stage runs what a factory makes as an island of its own, and talks to it through rings. When it ends the stage
//! waits, longer each time, and runs a new one. Elements that are under way inside when it ends are lost.

use std::sync::Arc;
use std::time::Duration;

use super::substream::{Sub, SubInlet, SubOutlet, Substreams, run_here};
use crate::base::Nanos;
use crate::stream::dsl::{Flow, FlowOps, Fusable, Sink, Source};
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet, TimerKey};
use crate::stream::stage::made::stage;
use crate::stream::stage::{FlowPorts, FlowShape, Logic, Setup, SinkShape, SourceShape};

const RESTART: TimerKey = TimerKey(0);
const CANCELLED: TimerKey = TimerKey(1);
/// A flow that fails cancels its upstream, too. So long its failure may come later than the cancellation.
const CANCELLATION_WAITS: Duration = Duration::from_millis(50);

type Decision = Arc<dyn Fn(&StreamError) -> bool + Send + Sync>;

/// When a stream is started again, and how long that waits.
#[derive(Clone)]
pub struct RestartSettings {
    min: Duration,
    max: Duration,
    random_factor: f64,
    restarts_max: u32,
    within: Duration,
    restarts_on: Option<Decision>,
    error_after: u32,
    seed: Option<u64>,
}

impl RestartSettings {
    /// Waits `min` at first, twice as long each time, `max` at most; and longer by a random part of up to `random_factor`
    /// of that, so that many streams do not start again at once.
    #[must_use]
    pub fn new(min: Duration, max: Duration, random_factor: f64) -> RestartSettings {
        RestartSettings {
            min,
            max: max.max(min),
            random_factor: if random_factor.is_finite() { random_factor.max(0.0) } else { 0.0 },
            restarts_max: u32::MAX,
            within: min,
            restarts_on: None,
            error_after: u32::MAX,
            seed: None,
        }
    }

    /// Restarts so many times at most. The count begins again, and so does the wait, when a stream has run for `within`.
    #[must_use]
    pub fn restarts_max(mut self, restarts: u32, within: Duration) -> RestartSettings {
        (self.restarts_max, self.within) = (restarts, within);
        self
    }

    /// Restarts only after failures for which this holds.
    #[must_use]
    pub fn restart_on(mut self, decide: impl Fn(&StreamError) -> bool + Send + Sync + 'static) -> RestartSettings {
        self.restarts_on = Some(Arc::new(decide));
        self
    }

    /// Failures are logged as warnings, and as errors after so many restarts.
    #[must_use]
    pub fn log_errors_after(mut self, restarts: u32) -> RestartSettings {
        self.error_after = restarts;
        self
    }

    /// Makes the random part of the waits the same each time: for tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> RestartSettings {
        self.seed = Some(seed);
        self
    }
}

/// Counts restarts and says how long to wait.
struct Backoff {
    settings: RestartSettings,
    restarts: u32,
    started: Nanos,
    random: u64,
}

impl Backoff {
    fn new(settings: RestartSettings) -> Backoff {
        Backoff { settings, restarts: 0, started: Nanos::ZERO, random: 0 }
    }

    fn started(&mut self, now: Nanos) {
        if self.random == 0 {
            // xorshift must not begin with zero.
            self.random = self.settings.seed.unwrap_or(now.0 ^ 0x9e37_79b9_7f4a_7c15).max(1);
        }
        self.started = now;
    }

    /// How long to wait for the next restart; `None` if there is to be none.
    fn next(&mut self, now: Nanos) -> Option<Duration> {
        if now.since(self.started) >= self.settings.within {
            self.restarts = 0;
        }
        if self.restarts >= self.settings.restarts_max {
            return None;
        }
        let doubled = self.settings.min.saturating_mul(2_u32.saturating_pow(self.restarts));
        self.restarts += 1;
        // xorshift64 (Marsaglia 2003), its upper 53 bits as a fraction.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let fraction = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        let seconds = doubled.min(self.settings.max).as_secs_f64() * (1.0 + fraction * self.settings.random_factor);
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

/// Runs what is inside, given where its elements come from (if any); gives where its elements go (if any).
type Run<I, O> = Box<dyn FnMut(Option<Source<I>>, &Substreams) -> Result<Option<SubInlet<O>>, StreamError>>;

struct RestartLogic<I, O> {
    inlet: Option<Inlet<I>>,
    outlet: Option<Outlet<O>>,
    run: Run<I, O>,
    substreams: Substreams,
    backoff: Backoff,
    only_failures: bool,
    /// Into what runs.
    feed: Option<SubOutlet<I>>,
    /// Out of what runs.
    draw: Option<SubInlet<O>>,
    is_running: bool,
    /// An end of the outside is gone: no restart any more.
    is_finishing: bool,
    /// An element without demand.
    held: Option<O>,
    /// The stage completes after that element.
    completes: bool,
}

impl<I: Send + 'static, O: Send + 'static> RestartLogic<I, O> {
    fn new(
        (inlet, outlet): (Option<Inlet<I>>, Option<Outlet<O>>),
        run: Run<I, O>,
        settings: RestartSettings,
        only_failures: bool,
        setup: &Setup<'_>,
    ) -> Self {
        RestartLogic {
            inlet,
            outlet,
            run,
            substreams: Substreams::new(setup),
            backoff: Backoff::new(settings),
            only_failures,
            feed: None,
            draw: None,
            is_running: false,
            is_finishing: false,
            held: None,
            completes: false,
        }
    }

    fn start(&mut self, context: &mut Context) {
        self.backoff.started(context.now());
        self.is_running = true;
        let source = self.inlet.is_some().then(|| {
            let (feed, source) = self.substreams.begin();
            self.feed = Some(feed);
            source
        });
        match (self.run)(source, &self.substreams) {
            Ok(draw) => {
                self.draw = draw;
                self.work(context);
            }
            Err(error) => self.inside_ended(context, Some(error)),
        }
    }

    fn work(&mut self, context: &mut Context) {
        self.work_on_feed(context);
        self.work_on_draw(context);
    }

    fn work_on_feed(&mut self, context: &mut Context) {
        let (Some(inlet), Some(feed)) = (&self.inlet, &mut self.feed) else { return };
        if let Some(cause) = feed.cancellation() {
            self.feed = None;
            return self.inside_cancelled(context, cause);
        }
        if inlet.is_available(context) && feed.has_room() {
            let element = inlet.grab(context);
            feed.push(element);
        }
        if inlet.is_available(context) {
            return;
        }
        if inlet.is_closed(context) {
            feed.complete();
            self.feed = None;
            context.set_keep_going(false);
        } else if feed.has_room() {
            inlet.try_pull(context);
        }
    }

    fn work_on_draw(&mut self, context: &mut Context) {
        loop {
            let Some(outlet) = &self.outlet else { return };
            if outlet.is_available(context)
                && let Some(element) = self.held.take()
            {
                outlet.push(context, element);
            }
            if self.held.is_some() {
                return;
            }
            if self.completes {
                return context.complete_stage();
            }
            let Some(draw) = &mut self.draw else { return };
            match draw.poll() {
                Sub::Element(element) => self.held = Some(element),
                Sub::Pending => return,
                Sub::Completed => return self.inside_ended(context, None),
                Sub::Failed(error) => return self.inside_ended(context, Some(error)),
            }
        }
    }

    /// What runs takes no more elements.
    fn inside_cancelled(&mut self, context: &mut Context, cause: Cancellation) {
        if self.is_finishing {
            return context.cancel_stage(cause);
        }
        match cause {
            Cancellation::Failed(error) => self.inside_ended(context, Some(error)),
            _ if self.outlet.is_none() => self.inside_ended(context, None),
            _ => context.schedule_once(CANCELLED, CANCELLATION_WAITS),
        }
    }

    fn inside_ended(&mut self, context: &mut Context, error: Option<StreamError>) {
        context.cancel_timer(CANCELLED);
        self.is_running = false;
        if let Some(mut feed) = self.feed.take() {
            feed.complete();
        }
        self.draw = None;
        let wants = !self.is_finishing
            && match &error {
                None => !self.only_failures,
                Some(error) => self.backoff.settings.restarts_on.as_ref().is_none_or(|decide| decide(error)),
            };
        if wants && let Some(delay) = self.backoff.next(context.now()) {
            self.log(context, delay, error.as_ref());
            return context.schedule_once(RESTART, delay);
        }
        match error {
            Some(error) => context.fail_stage(error),
            None if self.held.is_some() => {
                self.completes = true;
                if let Some(inlet) = &self.inlet {
                    inlet.cancel(context);
                }
            }
            None => context.complete_stage(),
        }
    }

    fn log(&self, context: &Context, delay: Duration, error: Option<&StreamError>) {
        let (stage, restarts) = (context.stage_name(), self.backoff.restarts);
        match error {
            None => tracing::debug!(stage, restarts, ?delay, "a stream has ended and is started again"),
            Some(error) if restarts > self.backoff.settings.error_after => {
                tracing::error!(%error, stage, restarts, ?delay, "a stream has failed and is started again");
            }
            Some(error) => tracing::warn!(%error, stage, restarts, ?delay, "a stream has failed and is started again"),
        }
    }
}

impl<I: Send + 'static, O: Send + 'static> Logic for RestartLogic<I, O> {
    fn pre_start(&mut self, context: &mut Context) {
        self.start(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.work(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.work(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.work(context);
    }

    fn on_timer(&mut self, context: &mut Context, key: TimerKey) {
        if key == RESTART {
            self.start(context);
        } else if self.is_running {
            self.inside_ended(context, None);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.is_finishing = true;
        if !self.is_running {
            return match self.held {
                Some(_) => self.completes = true,
                None => context.complete_stage(),
            };
        }
        if self.inlet.as_ref().is_some_and(|inlet| inlet.is_available(context)) {
            context.set_keep_going(true);
        }
        self.work(context);
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        self.is_finishing = true;
        match self.feed.take() {
            Some(mut feed) => feed.fail(error),
            None => context.fail_stage(error),
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        self.is_finishing = true;
        self.held = None;
        let draw = self.draw.take();
        if let Some(mut draw) = draw {
            draw.cancel(cause.clone());
        }
        // A flow takes elements until it says that it does not.
        if self.feed.is_none() || !self.is_running {
            context.cancel_stage(cause);
        }
    }
}

/// Sources that are started again.
///
/// ```
/// use std::time::Duration;
/// use atoll::stream::dsl::{FlowOps, Source};
/// use atoll::stream::operators::nested::{RestartSettings, RestartSource};
///
/// let settings = RestartSettings::new(Duration::from_millis(100), Duration::from_secs(10), 0.2);
/// let source = RestartSource::with_backoff(settings, || Source::from_iterator(|| 0..10).seal());
/// ```
pub struct RestartSource;

fn restart_source<T, M, P, F>(settings: RestartSettings, mut factory: F, only_failures: bool) -> Source<T>
where
    T: Send + 'static,
    M: 'static,
    P: Fusable<Out = T>,
    F: FnMut() -> Source<T, M, P> + Clone + Send + Sync + 'static,
{
    Source::from_stage(stage("restart", SourceShape::new(), move |outlet, setup| {
        let run: Run<(), T> = Box::new(move |_, substreams| substreams.run(factory()).map(Some));
        RestartLogic::new((None, Some(outlet)), run, settings, only_failures, setup)
    }))
}

impl RestartSource {
    /// Emits what the source of the factory emits, and runs a new one when it completes or fails.
    ///
    /// Emits and back-pressures as the source does, and while it waits. Completes, or fails, as the source does when no
    /// more restarts are allowed. Cancels the source when downstream cancels.
    pub fn with_backoff<T, M, P, F>(settings: RestartSettings, factory: F) -> Source<T>
    where
        T: Send + 'static,
        M: 'static,
        P: Fusable<Out = T>,
        F: FnMut() -> Source<T, M, P> + Clone + Send + Sync + 'static,
    {
        restart_source(settings, factory, false)
    }

    /// As [`RestartSource::with_backoff`], but completes when the source completes.
    pub fn on_failures_with_backoff<T, M, P, F>(settings: RestartSettings, factory: F) -> Source<T>
    where
        T: Send + 'static,
        M: 'static,
        P: Fusable<Out = T>,
        F: FnMut() -> Source<T, M, P> + Clone + Send + Sync + 'static,
    {
        restart_source(settings, factory, true)
    }
}

/// Flows that are started again.
pub struct RestartFlow;

fn restart_flow<I, O, M, P, F>(settings: RestartSettings, mut factory: F, only_failures: bool) -> Flow<I, O>
where
    I: Send + 'static,
    O: Send + 'static,
    M: 'static,
    P: Fusable<Out = O>,
    F: FnMut() -> Flow<I, O, M, P> + Clone + Send + Sync + 'static,
{
    Flow::from_stage(stage("restart", FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
        let run: Run<I, O> = Box::new(move |source, substreams| match source {
            Some(source) => substreams.run(source.via(factory())).map(Some),
            None => Ok(None),
        });
        RestartLogic::new((Some(inlet), Some(outlet)), run, settings, only_failures, setup)
    }))
}

impl RestartFlow {
    /// Passes elements through the flow of the factory, and runs a new one when it completes, fails or cancels.
    ///
    /// Emits and back-pressures as the flow does, and while it waits. When upstream completes, the flow is completed and
    /// not run again; when downstream cancels, it is cancelled and not run again. Elements that are in the flow when it
    /// ends are lost.
    pub fn with_backoff<I, O, M, P, F>(settings: RestartSettings, factory: F) -> Flow<I, O>
    where
        I: Send + 'static,
        O: Send + 'static,
        M: 'static,
        P: Fusable<Out = O>,
        F: FnMut() -> Flow<I, O, M, P> + Clone + Send + Sync + 'static,
    {
        restart_flow(settings, factory, false)
    }

    /// As [`RestartFlow::with_backoff`], but completes when the flow completes or cancels.
    pub fn on_failures_with_backoff<I, O, M, P, F>(settings: RestartSettings, factory: F) -> Flow<I, O>
    where
        I: Send + 'static,
        O: Send + 'static,
        M: 'static,
        P: Fusable<Out = O>,
        F: FnMut() -> Flow<I, O, M, P> + Clone + Send + Sync + 'static,
    {
        restart_flow(settings, factory, true)
    }
}

/// Sinks that are started again.
pub struct RestartSink;

impl RestartSink {
    /// Gives elements to the sink of the factory, and runs a new one when it cancels or fails.
    ///
    /// Back-pressures as the sink does, and while it waits. Cancels when no more restarts are allowed. Elements that are
    /// on their way to the sink when it ends are lost.
    pub fn with_backoff<T, M, F>(settings: RestartSettings, mut factory: F) -> Sink<T>
    where
        T: Send + 'static,
        M: 'static,
        F: FnMut() -> Sink<T, M> + Clone + Send + Sync + 'static,
    {
        Sink::from_stage(stage("restart", SinkShape::new(), move |inlet, setup| {
            let run: Run<T, ()> = Box::new(move |source, _| {
                let Some(source) = source else { return Ok(None) };
                run_here(source.to(factory())).map(|()| None)
            });
            RestartLogic::new((Some(inlet), None), run, settings, false, setup)
        }))
    }
}
