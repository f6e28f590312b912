//! Operators that make a future of each element: `map_async` and its kin.
//!
//! Up to `parallelism` elements are under way, from the call of the function until the result is emitted. All of them
//! emit when a result is there that may go next, back-pressure when so many are under way, complete when upstream has
//! and everything is emitted, and cancel when downstream does; whatever is under way at the end is dropped, which is how
//! a future is cancelled. A future that fails fails the stream at once, whatever is still under way before it, unless the
//! supervision decider drops the element; the decider is asked once.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::task::Poll;

use super::flights::{Flights, PARALLELISM_MAX};
use crate::stream::attributes::Supervision;
use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{IllegalArgument, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::stage;
use crate::stream::stage::supervised::{Judged, judge};
use crate::stream::stage::{FlowPorts, FlowShape, Logic};

/// What decides which elements may be under way together.
trait Lanes<T>: 'static {
    /// The element may start; if it may not yet, it is kept.
    fn enter(&mut self, element: T, ticket: u64) -> Option<T>;

    /// What entered last is at this place.
    fn occupy(&mut self, place: usize);

    /// What entered last did not start. The element that may start instead.
    fn turn_back(&mut self) -> Option<(T, u64)>;

    /// What was at this place has ended. The element that may start instead.
    fn leave(&mut self, place: usize) -> Option<(T, u64)>;
}

/// Any elements.
struct Free;

impl<T> Lanes<T> for Free {
    #[inline]
    fn enter(&mut self, element: T, _: u64) -> Option<T> {
        Some(element)
    }

    fn occupy(&mut self, _: usize) {}

    fn turn_back(&mut self) -> Option<(T, u64)> {
        None
    }

    fn leave(&mut self, _: usize) -> Option<(T, u64)> {
        None
    }
}

/// One element of each key.
struct ByKey<T, K, G> {
    key: G,
    busy: HashSet<K>,
    /// The key of each place.
    keys: Vec<Option<K>>,
    entering: Option<K>,
    /// Elements whose key is busy, in their order.
    waiting: VecDeque<(K, T, u64)>,
}

impl<T, K: Clone + Eq + Hash, G> ByKey<T, K, G> {
    fn new(key: G) -> Self {
        ByKey { key, busy: HashSet::new(), keys: Vec::new(), entering: None, waiting: VecDeque::new() }
    }

    fn release(&mut self, key: Option<K>) -> Option<(T, u64)> {
        let key = key?;
        match self.waiting.iter().position(|(waiting, _, _)| *waiting == key) {
            Some(at) => {
                self.entering = Some(key);
                self.waiting.remove(at).map(|(_, element, ticket)| (element, ticket))
            }
            None => {
                self.busy.remove(&key);
                None
            }
        }
    }
}

impl<T: 'static, K, G> Lanes<T> for ByKey<T, K, G>
where
    K: Clone + Eq + Hash + 'static,
    G: FnMut(&T) -> K + 'static,
{
    fn enter(&mut self, element: T, ticket: u64) -> Option<T> {
        let key = (self.key)(&element);
        if self.busy.contains(&key) {
            self.waiting.push_back((key, element, ticket));
            return None;
        }
        self.busy.insert(key.clone());
        self.entering = Some(key);
        Some(element)
    }

    fn occupy(&mut self, place: usize) {
        if self.keys.len() <= place {
            self.keys.resize_with(place + 1, || None);
        }
        self.keys[place] = self.entering.take();
    }

    fn turn_back(&mut self) -> Option<(T, u64)> {
        let key = self.entering.take();
        self.release(key)
    }

    fn leave(&mut self, place: usize) -> Option<(T, u64)> {
        let key = self.keys[place].take();
        self.release(key)
    }
}

/// Where a result waits for its turn.
enum Turn<U> {
    Awaited,
    Done(U),
    /// The decider dropped the element.
    Dropped,
}

struct MapAsyncLogic<T, U, Fut: Future, F, L> {
    inlet: Inlet<T>,
    outlet: Outlet<U>,
    function: F,
    lanes: L,
    flights: Flights<Fut>,
    outcome: fn(Fut::Output) -> Result<U, StreamError>,
    supervision: Option<Supervision>,
    parallelism: usize,
    is_ordered: bool,
    /// Ordered: a turn for each element under way, in the order in which they came. Otherwise: the results.
    line: VecDeque<Turn<U>>,
    /// Ticket of the first turn of the line.
    first: u64,
    /// Tickets that were given out.
    tickets: u64,
    /// Ticket of what is at each place.
    ticket_of: Vec<u64>,
    /// Elements under way.
    used: usize,
}

impl<T, U, Fut, F, L> MapAsyncLogic<T, U, Fut, F, L>
where
    T: 'static,
    U: 'static,
    Fut: Future + 'static,
    F: FnMut(T) -> Fut + 'static,
    L: Lanes<T>,
{
    /// Starts an element, and those that its end lets start. False if the stage has failed.
    fn start(&mut self, context: &mut Context, element: T, ticket: u64) -> bool {
        let mut next = Some((element, ticket));
        while let Some((element, ticket)) = next {
            let function = &mut self.function;
            next = match judge(self.supervision.as_ref(), || Ok(function(element))) {
                Judged::Value(future) => {
                    let place = self.flights.launch(future);
                    if self.ticket_of.len() <= place {
                        self.ticket_of.resize(place + 1, 0);
                    }
                    self.ticket_of[place] = ticket;
                    self.lanes.occupy(place);
                    match self.advance(context, place) {
                        Ok(next) => next,
                        Err(error) => return fail(context, error),
                    }
                }
                Judged::Dropped(_) => {
                    self.settle(ticket, None);
                    self.lanes.turn_back()
                }
                Judged::Failed(error) => return fail(context, error),
            };
        }
        true
    }

    /// Polls what is at a place. Gives the element that may start because it has ended.
    fn advance(&mut self, _: &mut Context, place: usize) -> Result<Option<(T, u64)>, StreamError> {
        let (flights, outcome) = (&mut self.flights, self.outcome);
        let polled = judge(self.supervision.as_ref(), || match flights.poll(place) {
            Poll::Pending => Ok(None),
            Poll::Ready(output) => outcome(output).map(Some),
        });
        let result = match polled {
            Judged::Value(None) => return Ok(None),
            Judged::Value(Some(result)) => Some(result),
            Judged::Dropped(_) => {
                // It may have panicked: then it is still there.
                self.flights.discard(place);
                None
            }
            Judged::Failed(error) => return Err(error),
        };
        self.settle(self.ticket_of[place], result);
        Ok(self.lanes.leave(place))
    }

    fn settle(&mut self, ticket: u64, result: Option<U>) {
        if self.is_ordered {
            self.line[(ticket - self.first) as usize] = result.map_or(Turn::Dropped, Turn::Done);
        } else if let Some(result) = result {
            self.line.push_back(Turn::Done(result));
        } else {
            self.used -= 1;
        }
    }

    /// Emits what may go next, asks for more, or ends.
    fn go_on(&mut self, context: &mut Context) {
        loop {
            match self.line.front() {
                Some(Turn::Dropped) => {
                    self.leave_line();
                }
                Some(Turn::Done(_)) if self.outlet.is_available(context) => {
                    if let Some(Turn::Done(result)) = self.leave_line() {
                        self.outlet.push(context, result);
                    }
                }
                _ => break,
            }
        }
        if self.inlet.is_closed(context) {
            if self.used == 0 && !self.inlet.is_available(context) {
                context.complete_stage();
            }
        } else if self.used < self.parallelism && !self.inlet.has_been_pulled(context) {
            self.inlet.pull(context);
        }
    }

    fn leave_line(&mut self) -> Option<Turn<U>> {
        self.first += 1;
        self.used -= 1;
        self.line.pop_front()
    }
}

fn fail(context: &mut Context, error: StreamError) -> bool {
    context.fail_and_log(error);
    false
}

impl<T, U, Fut, F, L> Logic for MapAsyncLogic<T, U, Fut, F, L>
where
    T: 'static,
    U: 'static,
    Fut: Future + 'static,
    F: FnMut(T) -> Fut + 'static,
    L: Lanes<T>,
{
    fn pre_start(&mut self, context: &mut Context) {
        if self.parallelism == 0 {
            let what = "the parallelism must be at least 1";
            context.fail_stage(StreamError::new(IllegalArgument { operator: "map_async", what }));
        }
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let ticket = self.tickets;
        let lanes = &mut self.lanes;
        let entered = match judge(self.supervision.as_ref(), || Ok(lanes.enter(element, ticket))) {
            Judged::Value(entered) => entered,
            Judged::Dropped(_) => return self.go_on(context),
            Judged::Failed(error) => {
                fail(context, error);
                return;
            }
        };
        self.tickets += 1;
        self.used += 1;
        if self.is_ordered {
            self.line.push_back(Turn::Awaited);
        }
        if let Some(element) = entered
            && !self.start(context, element, ticket)
        {
            return;
        }
        self.go_on(context);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.go_on(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.used == 0 {
            context.complete_stage();
        }
    }

    fn on_wake(&mut self, context: &mut Context) {
        // Only what is woken now: a future that wakes itself comes again with the next call.
        for _ in 0..self.flights.woken() {
            let Some(place) = self.flights.next_woken() else { break };
            match self.advance(context, place) {
                Ok(None) => {}
                Ok(Some((element, ticket))) => {
                    if !self.start(context, element, ticket) {
                        return;
                    }
                }
                Err(error) => {
                    fail(context, error);
                    return;
                }
            }
        }
        self.go_on(context);
    }
}

fn append<S, U, Fut, F, L>(
    flow: S,
    name: &'static str,
    parallelism: usize,
    function: F,
    outcome: fn(Fut::Output) -> Result<U, StreamError>,
    is_ordered: bool,
    lanes: impl FnOnce() -> L + Clone + Send + Sync + 'static,
) -> Plain<S, U>
where
    S: FlowOps,
    U: 'static,
    Fut: Future + 'static,
    F: FnMut(S::Out) -> Fut + Clone + Send + Sync + 'static,
    L: Lanes<S::Out>,
{
    flow.via_stage(stage(name, FlowShape::new(), move |FlowPorts { inlet, outlet }, setup| {
        let parallelism = parallelism.min(PARALLELISM_MAX);
        MapAsyncLogic {
            inlet,
            outlet,
            function,
            lanes: lanes(),
            flights: Flights::new(parallelism, setup.waker()),
            outcome,
            supervision: setup.supervision(),
            parallelism,
            is_ordered,
            line: VecDeque::new(),
            first: 0,
            tickets: 0,
            ticket_of: Vec::new(),
            used: 0,
        }
    }))
}

/// Result of a function that may fail.
type Fallible<U> = Result<U, StreamError>;

/// Operators that make a future of each element.
pub trait MapAsyncOps: FlowOps {
    /// Emits what the futures give, in the order of the elements, with up to `parallelism` of them under way.
    ///
    /// Emits when the oldest future is done. Back-pressures when `parallelism` elements are under way or wait for an older
    /// one. Completes when upstream has and everything is emitted. Fails with
    /// [`IllegalArgument`] if `parallelism` is 0; more than [`PARALLELISM_MAX`] is
    /// taken as that.
    ///
    /// ```
    /// use atoll::stream::dsl::{Sink, Source};
    /// use atoll::stream::operators::MapAsyncOps;
    ///
    /// let graph = Source::from_iterator(|| 1..=3).map_async(2, async |n| n * 10).to_right(Sink::<i32, _>::seq());
    /// ```
    fn map_async<U: 'static, Fut, F>(self, parallelism: usize, function: F) -> Plain<Self, U>
    where
        Fut: Future<Output = U> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async", parallelism, function, Ok, true, || Free)
    }

    /// As [`MapAsyncOps::map_async`]; an `Err` fails the stream at once, or is what the supervision decider says.
    fn try_map_async<U: 'static, Fut, F>(self, parallelism: usize, function: F) -> Plain<Self, U>
    where
        Fut: Future<Output = Fallible<U>> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async", parallelism, function, std::convert::identity, true, || Free)
    }

    /// As [`MapAsyncOps::map_async`], in the order in which the futures are done.
    fn map_async_unordered<U: 'static, Fut, F>(self, parallelism: usize, function: F) -> Plain<Self, U>
    where
        Fut: Future<Output = U> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async_unordered", parallelism, function, Ok, false, || Free)
    }

    /// As [`MapAsyncOps::map_async_unordered`] with failures as in [`MapAsyncOps::try_map_async`].
    fn try_map_async_unordered<U: 'static, Fut, F>(self, parallelism: usize, function: F) -> Plain<Self, U>
    where
        Fut: Future<Output = Fallible<U>> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async_unordered", parallelism, function, std::convert::identity, false, || Free)
    }

    /// As [`MapAsyncOps::map_async`], with one future of each key at a time. Elements that wait for their key count as
    /// under way.
    fn map_async_partitioned<U, K, G, Fut, F>(self, parallelism: usize, key: G, function: F) -> Plain<Self, U>
    where
        U: 'static,
        K: Clone + Eq + Hash + 'static,
        G: FnMut(&Self::Out) -> K + Clone + Send + Sync + 'static,
        Fut: Future<Output = U> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async_partitioned", parallelism, function, Ok, true, || ByKey::new(key))
    }

    /// As [`MapAsyncOps::map_async_partitioned`] with failures as in [`MapAsyncOps::try_map_async`].
    fn try_map_async_partitioned<U, K, G, Fut, F>(self, parallelism: usize, key: G, function: F) -> Plain<Self, U>
    where
        U: 'static,
        K: Clone + Eq + Hash + 'static,
        G: FnMut(&Self::Out) -> K + Clone + Send + Sync + 'static,
        Fut: Future<Output = Fallible<U>> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async_partitioned", parallelism, function, std::convert::identity, true, || ByKey::new(key))
    }

    /// As [`MapAsyncOps::map_async_partitioned`], in the order in which the futures are done.
    fn map_async_partitioned_unordered<U, K, G, Fut, F>(self, parallelism: usize, key: G, function: F) -> Plain<Self, U>
    where
        U: 'static,
        K: Clone + Eq + Hash + 'static,
        G: FnMut(&Self::Out) -> K + Clone + Send + Sync + 'static,
        Fut: Future<Output = U> + 'static,
        F: FnMut(Self::Out) -> Fut + Clone + Send + Sync + 'static,
    {
        append(self, "map_async_partitioned_unordered", parallelism, function, Ok, false, || ByKey::new(key))
    }
}

impl<S: FlowOps> MapAsyncOps for S {}
