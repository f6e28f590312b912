//! Operators on futures: how many are under way, in which order their results go, and how failures and ends spread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use atoll::stream::StreamError;
use atoll::stream::attributes::{Directive, Supervision};
use atoll::stream::completion::{Completion, Promise, completion};
use atoll::stream::dsl::{Flow, FlowOps, Sink, Source};
use atoll::stream::operators::{AsyncAccumulatingOps, ElementwiseOps, MapAsyncOps};

use crate::drive::{always, panic_of, run};
use crate::hand::Hand;
use crate::running::{Running, collect, outcome};

/// Futures that the test ends.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<Vec<Option<Promise<u32>>>>>);

impl Gates {
    fn open(&self, _: u32) -> Completion<u32> {
        let (promise, value) = completion();
        self.0.lock().unwrap().push(Some(promise));
        value
    }

    fn started(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn take(&self, index: usize) -> Promise<u32> {
        self.0.lock().unwrap()[index].take().unwrap()
    }

    fn done(&self, index: usize, value: u32) {
        self.take(index).succeed(value);
    }

    fn fails(&self, index: usize, text: &str) {
        self.take(index).fail(StreamError::text(text));
    }
}

/// By hand on both ends of a flow whose futures end by hand.
fn held(make: impl FnOnce(Flow<u32, u32>, Gates) -> Flow<u32, u32>) -> (Hand<u32, u32>, Gates) {
    let gates = Gates::default();
    (Hand::hold(make(Flow::new(), gates.clone())), gates)
}

fn ordered(flow: Flow<u32, u32>, gates: Gates) -> Flow<u32, u32> {
    flow.try_map_async(3, move |n| gates.open(n))
}

fn unordered(flow: Flow<u32, u32>, gates: Gates) -> Flow<u32, u32> {
    flow.try_map_async_unordered(3, move |n| gates.open(n))
}

fn settle<A: Send + 'static, B: Send + 'static>(hand: &Hand<A, B>) {
    crate::drive::settle(&hand.host);
}

fn numbers(to: u32) -> Source<u32> {
    Source::from_iterator(move || 0..to).seal()
}

#[test]
fn results_keep_the_order_of_the_elements() {
    let (hand, gates) = held(ordered);
    hand.request(3).give_all([0, 1, 2, 3]);
    gates.done(2, 2);
    gates.done(1, 1);
    settle(&hand);
    assert!(hand.received().is_empty());
    gates.done(0, 0);
    settle(&hand);
    assert_eq!(hand.received(), [0, 1, 2]);
}

#[test]
fn unordered_results_go_as_they_come() {
    let (hand, gates) = held(unordered);
    hand.request(10).give_all([0, 1, 2]);
    for index in [2, 0, 1] {
        gates.done(index, index as u32);
        settle(&hand);
        assert_eq!(hand.received(), [index as u32]);
    }
}

#[test]
fn no_more_futures_than_the_parallelism_are_under_way() {
    for make in [ordered, unordered] {
        let (hand, gates) = held(make);
        assert!(!hand.is_asked(), "nothing starts without demand");
        hand.request(1).give_all([0, 1, 2, 3, 4]);
        assert_eq!(gates.started(), 3);
        assert_eq!(hand.waiting(), 2);
        gates.done(0, 0);
        settle(&hand);
        assert_eq!((hand.received(), gates.started()), (vec![0], 4));
        // There is no demand: results take the places.
        gates.done(1, 1);
        gates.done(2, 2);
        gates.done(3, 3);
        settle(&hand);
        assert_eq!((hand.received(), gates.started()), (vec![], 4));
        hand.request(1);
        assert_eq!((hand.received(), gates.started()), (vec![1], 5));
    }
}

#[test]
fn a_failed_future_fails_the_stream_at_once_from_any_position() {
    for make in [ordered, unordered] {
        for index in 0..3 {
            let (hand, gates) = held(make);
            hand.request(3).give_all([0, 1, 2]);
            gates.fails(index, "boom");
            settle(&hand);
            assert_eq!(hand.end().as_deref(), Some("boom"));
            assert!(hand.cancelled().is_some());
        }
    }
}

#[test]
fn a_failed_future_is_skipped_if_the_decider_resumes_and_asked_about_once() {
    type Make = fn(Flow<u32, u32>, Gates) -> Flow<u32, u32>;
    for (make, expected) in [(ordered as Make, [0, 2]), (unordered as Make, [2, 0])] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let (hand, gates) = held(move |flow, gates| {
            make(flow, gates).supervised(Supervision::new(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
                Directive::Resume
            }))
        });
        hand.request(5).give_all([0, 1, 2]);
        gates.fails(1, "boom");
        settle(&hand);
        gates.done(2, 2);
        settle(&hand);
        gates.done(0, 0);
        hand.complete();
        assert_eq!(hand.received(), expected);
        assert_eq!(hand.end().as_deref(), Some("complete"));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn failures_of_a_whole_stream_may_be_dropped() {
    for parallelism in [1, 2, 7] {
        let odd = |n: u32| async move { if n.is_multiple_of(2) { Err(StreamError::text("even")) } else { Ok(n) } };
        let resumed = numbers(10).try_map_async(parallelism, odd).supervised(always(Directive::Resume));
        assert_eq!(collect(resumed), [1, 3, 5, 7, 9]);
        let none = numbers(10)
            .try_map_async_unordered(parallelism, |_| async { Err::<u32, _>(StreamError::text("no")) })
            .supervised(always(Directive::Restart));
        assert!(collect(none).is_empty());
    }
}

#[test]
fn panics_of_the_function_and_of_the_future_are_failures() {
    let in_function = |n: u32| {
        assert!(n != 1, "in the function");
        async move { n }
    };
    let in_future = |n: u32| async move {
        assert!(n != 1, "in the future");
        n
    };
    for parallelism in [1, 4] {
        assert_eq!(panic_of(outcome(numbers(3).map_async(parallelism, in_function))), "in the function");
        assert_eq!(panic_of(outcome(numbers(3).map_async(parallelism, in_future))), "in the future");
        let resumes = || always(Directive::Resume);
        assert_eq!(collect(numbers(3).map_async(parallelism, in_function).supervised(resumes())), [0, 2]);
        assert_eq!(collect(numbers(3).map_async_unordered(parallelism, in_future).supervised(resumes())), [0, 2]);
        let by_key = numbers(6).map_async_partitioned(parallelism, |n| n % 2, in_future).supervised(resumes());
        assert_eq!(collect(by_key), [0, 2, 3, 4, 5]);
    }
}

#[test]
fn completion_waits_for_what_is_under_way_and_needs_no_further_demand() {
    for make in [ordered, unordered] {
        let (hand, gates) = held(make);
        hand.request(2).give_all([0, 1]).complete();
        assert_eq!(hand.end(), None);
        gates.done(0, 0);
        settle(&hand);
        assert_eq!(hand.end(), None);
        gates.done(1, 1);
        settle(&hand);
        assert_eq!(hand.end().as_deref(), Some("complete"));
        assert_eq!(hand.received(), [0, 1]);
    }
    for parallelism in [1, 2] {
        assert_eq!(collect(numbers(100).map_async(parallelism, async |n| n)), (0..100).collect::<Vec<_>>());
        assert!(collect(numbers(0).map_async(parallelism, async |n| n)).is_empty());
    }
}

#[test]
fn cancellation_and_failure_drop_what_is_under_way() {
    let (hand, gates) = held(ordered);
    hand.request(1).give_all([0, 1]);
    hand.cancel();
    assert!(hand.cancelled().is_some());
    assert_eq!(hand.host.islands(), 0);
    drop(gates);
    let (hand, _gates) = held(ordered);
    hand.request(1).give_all([0, 1]).fail("upstream");
    assert_eq!(hand.end().as_deref(), Some("upstream"));
}

#[test]
fn the_parallelism_must_not_be_zero() {
    let error = outcome(numbers(3).map_async(0, async |n| n)).unwrap_err();
    assert!(error.to_string().contains("parallelism"), "{error}");
}

#[test]
fn one_future_of_a_key_is_under_way() {
    let (hand, gates) = held(|flow, gates| {
        let key = |n: &u32| n % 10;
        let by_key = flow.map_async_partitioned_unordered(4, key, move |n| {
            let gate = gates.open(n);
            async move { gate.await.unwrap() }
        });
        by_key.seal()
    });
    hand.request(10).give_all([1, 11, 2, 21, 3]);
    assert_eq!(gates.started(), 2, "1 and 2; 11 and 21 wait for 1, and there is no place for 3");
    gates.done(1, 2);
    settle(&hand);
    assert_eq!((hand.received(), gates.started()), (vec![2], 3));
    gates.done(0, 1);
    settle(&hand);
    gates.done(3, 11);
    settle(&hand);
    gates.done(4, 21);
    gates.done(2, 3);
    hand.complete();
    assert_eq!(hand.received(), [1, 11, 21, 3]);
    assert_eq!(hand.end().as_deref(), Some("complete"));
    let ordered = numbers(1000).map_async_partitioned(8, |n| n % 3, async |n| n);
    assert_eq!(collect(ordered), (0..1000).collect::<Vec<_>>());
}

/// Ready when it was polled so many times; it wakes itself.
async fn after_yields(mut yields: u32) {
    std::future::poll_fn(move |task| {
        if yields == 0 {
            return std::task::Poll::Ready(());
        }
        yields -= 1;
        task.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[test]
fn futures_that_wake_themselves_get_on() {
    let slow = |n: u32| async move {
        after_yields(n * 7 % 5).await;
        n
    };
    assert_eq!(collect(numbers(500).map_async(16, slow)), (0..500).collect::<Vec<_>>());
    let mut unordered = collect(numbers(500).map_async_unordered(16, slow));
    unordered.sort_unstable();
    assert_eq!(unordered, (0..500).collect::<Vec<_>>());
}

#[test]
fn a_future_is_a_source_of_one_element() {
    assert_eq!(collect(Source::future(|| async { 7 })), [7]);
    assert_eq!(collect(Source::lazy_future(|| async { 7 })), [7]);
    let failed = || Source::try_future(|| async { Err::<u32, _>(StreamError::text("boom")) });
    assert_eq!(outcome(failed()).unwrap_err().to_string(), "boom");
    let lazy = Source::try_lazy_future(|| async { Err::<u32, _>(StreamError::text("boom")) });
    assert_eq!(outcome(lazy).unwrap_err().to_string(), "boom");
    // Without demand the one has begun, and its failure spreads; the other has not.
    let running = Running::new();
    let mut end = running.start(&failed().to_right(Sink::never()));
    running.settle();
    assert!(end.try_take().unwrap().is_err());
    let lazy = Source::try_lazy_future(|| async { Err::<u32, _>(StreamError::text("boom")) });
    let mut end = running.start(&lazy.to_right(Sink::never()));
    running.settle();
    assert!(end.try_take().is_none());
}

#[test]
fn unfolding_by_futures_ends_when_they_say_so() {
    let source = Source::unfold_async(0, |n| async move {
        after_yields(2).await;
        (n < 4).then_some((n + 1, n * n))
    });
    assert_eq!(collect(source), [0, 1, 4, 9]);
    let fails = Source::try_unfold_async(0, |n: u32| async move {
        if n == 2 { Err(StreamError::text("two")) } else { Ok(Some((n + 1, n))) }
    });
    assert_eq!(outcome(fails).unwrap_err().to_string(), "two");
}

#[test]
fn accumulating_by_futures() {
    let add = |sum: u32, n: u32| async move {
        after_yields(n % 3).await;
        sum + n
    };
    assert_eq!(collect(numbers(5).scan_async(100, add)), [100, 100, 101, 103, 106, 110]);
    assert_eq!(collect(numbers(0).scan_async(100, add)), [100]);
    assert_eq!(collect(numbers(5).fold_async(100, add)), [110]);
    assert_eq!(collect(numbers(0).fold_async(100, add)), [100]);
    assert_eq!(run(&numbers(5).to_right(Sink::fold_async(0, add))).unwrap(), 10);
    let but_two = |sum: u32, n: u32| async move { if n == 2 { Err(StreamError::text("two")) } else { Ok(sum + n) } };
    assert!(outcome(numbers(5).try_scan_async(0, but_two)).is_err());
    for (directive, scanned, folded) in
        [(Directive::Resume, vec![0, 0, 1, 4, 8], 8), (Directive::Restart, vec![0, 0, 1, 0, 3, 7], 7)]
    {
        assert_eq!(collect(numbers(5).try_scan_async(0, but_two).supervised(always(directive))), scanned);
        assert_eq!(collect(numbers(5).try_fold_async(0, but_two).supervised(always(directive))), [folded]);
    }
}

#[test]
fn a_sink_waits_for_a_future_of_each_element() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&seen);
    let each = Sink::for_each_async(2, move |n: u32| {
        let shared = Arc::clone(&shared);
        async move {
            after_yields(n % 2).await;
            shared.lock().unwrap().push(n);
        }
    });
    run(&numbers(20).to_right(each)).unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    let fails = Sink::try_for_each_async(2, |_: u32| async { Err(StreamError::text("no")) });
    assert_eq!(run(&numbers(3).to_right(fails)).unwrap_err().to_string(), "no");
}

/// A stream of another library.
struct Countdown(u32);

impl futures_core::Stream for Countdown {
    type Item = u32;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        task: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<u32>> {
        if self.0 == 0 {
            return std::task::Poll::Ready(None);
        }
        self.0 -= 1;
        task.waker().wake_by_ref();
        std::task::Poll::Ready(Some(self.0))
    }
}

#[test]
fn foreign_streams_come_in_and_streams_go_out() {
    assert_eq!(collect(Source::from_stream(|| Countdown(4))), [3, 2, 1, 0]);
    let running = Running::new();
    let mut stream = running.start(&Source::from_stream(|| Countdown(100)).map(|n| n + 1).into_stream());
    let mut got = Vec::new();
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        running.settle();
        match futures_core::Stream::poll_next(std::pin::Pin::new(&mut stream), &mut task) {
            std::task::Poll::Ready(Some(element)) => got.push(element.unwrap()),
            std::task::Poll::Ready(None) => break,
            std::task::Poll::Pending => {}
        }
    }
    assert_eq!(got, (1..=100).rev().collect::<Vec<_>>());
}
