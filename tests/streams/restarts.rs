//! Streams that are started again, with a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use atoll::stream::StreamError;
use atoll::stream::dsl::{Flow, FlowOps, Sink, Source, keep};
use atoll::stream::operators::nested::{RestartFlow, RestartSettings, RestartSink, RestartSource};
use atoll::stream::operators::{BoundedQueue, ElementwiseOps, FanInOps, SelectionOps, TerminationOps};

use crate::hand::Hand;
use crate::running::Running;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn settings() -> RestartSettings {
    RestartSettings::new(ms(10), ms(1000), 0.0)
}

/// How often a factory was called.
#[derive(Clone, Default)]
struct Made(Arc<AtomicU32>);

impl Made {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

fn source_of(source: Source<u32>) -> Hand<u32, u32> {
    Hand::hold(Flow::from_sink_and_source_coupled(Sink::ignore(), source))
}

fn numbers(from: u32, to: u32) -> Source<u32> {
    Source::from_iterator(move || from..to).seal()
}

fn failing(elements: u32) -> Source<u32> {
    numbers(0, elements).concat(Source::failed(StreamError::text("boom")))
}

#[test]
fn a_source_that_runs_is_not_started_again() {
    let made = Made::default();
    let counted = made.clone();
    let hand = source_of(RestartSource::with_backoff(settings(), move || {
        counted.next();
        numbers(0, 100)
    }));
    hand.request(5).pass(1000);
    assert_eq!((hand.received(), made.count()), (vec![0, 1, 2, 3, 4], 1));
    hand.cancel().pass(1000);
    assert_eq!((made.count(), hand.host.islands()), (1, 0));
}

#[test]
fn a_source_is_started_again_after_completion_and_failure_with_growing_waits() {
    for fails in [false, true] {
        let made = Made::default();
        let counted = made.clone();
        let hand = source_of(RestartSource::with_backoff(settings(), move || {
            counted.next();
            if fails { failing(2) } else { numbers(0, 2) }
        }));
        hand.request(100);
        // A failure overtakes elements.
        let check = || assert!(fails || hand.received() == [0, 1]);
        check();
        for (restarts, wait) in [10, 20, 40, 80].into_iter().enumerate() {
            // The wait is doubled only if the stream does not run for as long as the first wait.
            hand.pass(wait - 1);
            assert_eq!(made.count() as usize, restarts + 1);
            hand.pass(1);
            assert_eq!(made.count() as usize, restarts + 2);
            check();
        }
        assert_eq!(hand.end(), None);
    }
}

#[test]
fn the_wait_has_a_maximum_and_begins_again_after_a_stream_that_ran_long() {
    let queues: Arc<std::sync::Mutex<Vec<BoundedQueue<u32>>>> = Arc::default();
    let shared = Arc::clone(&queues);
    let settings = RestartSettings::new(ms(10), ms(25), 0.0);
    let hand = source_of(RestartSource::with_backoff(settings, move || {
        let shared = Arc::clone(&shared);
        Source::queue(4).map_materialized_value(move |queue| shared.lock().unwrap().push(queue))
    }));
    hand.request(10);
    let ends = |number: usize| queues.lock().unwrap()[number].complete();
    let started = || queues.lock().unwrap().len();
    for (number, wait) in [10, 20, 25, 25].into_iter().enumerate() {
        ends(number);
        hand.settle();
        hand.pass(wait - 1);
        assert_eq!(started(), number + 1);
        hand.pass(1);
        assert_eq!(started(), number + 2);
    }
    hand.pass(10);
    ends(4);
    hand.settle();
    hand.pass(10);
    assert_eq!(started(), 6);
}

#[test]
fn a_random_part_makes_waits_longer_and_is_the_same_for_the_same_seed() {
    let wait_of = |seed| {
        let made = Made::default();
        let counted = made.clone();
        let settings = RestartSettings::new(ms(1000), ms(1000), 0.5).seed(seed);
        let hand = source_of(RestartSource::with_backoff(settings, move || {
            counted.next();
            Source::empty()
        }));
        let mut waited = 0;
        while made.count() < 2 {
            hand.pass(1);
            waited += 1;
        }
        waited
    };
    let waits: Vec<u64> = (1..20).map(wait_of).collect();
    assert_eq!(waits, (1..20).map(wait_of).collect::<Vec<_>>());
    assert!(waits.iter().all(|wait| (1000..=1500).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]));
}

#[test]
fn cancellation_during_the_wait_ends_the_stream() {
    let made = Made::default();
    let counted = made.clone();
    let hand = source_of(RestartSource::with_backoff(settings(), move || {
        counted.next();
        numbers(0, 1)
    }));
    hand.request(5).cancel().pass(1000);
    assert_eq!((made.count(), hand.host.islands()), (1, 0));
}

#[test]
fn restarts_may_be_for_failures_only_for_some_failures_and_limited() {
    let run = |settings: RestartSettings, only_failures: bool, source: Source<u32>| {
        let made = Made::default();
        let counted = made.clone();
        let factory = move || {
            counted.next();
            source.clone()
        };
        let restarting = match only_failures {
            true => RestartSource::on_failures_with_backoff(settings, factory),
            false => RestartSource::with_backoff(settings, factory),
        };
        let hand = source_of(restarting);
        hand.request(1000);
        for _ in 0..20 {
            hand.pass(100);
        }
        (made.count(), hand.end())
    };
    let complete = || Some("complete".to_owned());
    let boom = || Some("boom".to_owned());
    let limited = || settings().restarts_max(2, Duration::from_secs(60));
    assert_eq!(run(settings(), true, numbers(0, 3)), (1, complete()));
    assert_eq!(run(limited(), false, numbers(0, 3)), (3, complete()));
    assert_eq!(run(limited(), false, failing(3)), (3, boom()));
    assert_eq!(run(limited(), true, failing(3)), (3, boom()));
    let never = settings().restart_on(|error| error.to_string() != "boom");
    assert_eq!(run(never, false, failing(1)), (1, boom()));
    assert_eq!(run(settings().restarts_max(0, ms(1)), false, numbers(0, 1)), (1, complete()));
    // The count begins again when a stream has run for so long: here, at once.
    let (count, end) = run(settings().restarts_max(1, ms(0)), false, numbers(0, 1));
    assert!(count > 5 && end.is_none());
}

#[test]
fn the_last_element_comes_before_the_completion() {
    let settings = settings().restarts_max(0, ms(1));
    let hand = source_of(RestartSource::with_backoff(settings, || numbers(0, 1)));
    hand.pass(10);
    assert_eq!(hand.end(), None);
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![0], Some("complete")));
}

type Received = Arc<std::sync::Mutex<Vec<u32>>>;

/// A sink that cancels after two elements.
fn pairs(received: &Received) -> Sink<u32> {
    let received = Arc::clone(received);
    let seen = Flow::<u32, u32>::new().map(move |n| received.lock().unwrap().push(n)).take(2);
    seen.to(Sink::ignore())
}

#[test]
fn a_sink_is_started_again_when_it_cancels() {
    let received = Received::default();
    let made = Made::default();
    let (counted, shared) = (made.clone(), Arc::clone(&received));
    let running = Running::new();
    let sink = RestartSink::with_backoff(settings(), move || {
        counted.next();
        pairs(&shared)
    });
    let queue = running.start(&Source::queue(100).to_mat(sink, keep::left));
    let mut running = running;
    running.settle();
    for n in 0..20 {
        assert!(queue.offer(n).is_enqueued());
    }
    running.settle();
    assert_eq!(made.count(), 1);
    for restarts in 1..4 {
        running.pass(ms(100));
        assert_eq!(made.count(), restarts + 1);
    }
    let got = received.lock().unwrap().clone();
    assert_eq!(got.len(), 8);
    assert!(got.is_sorted() && got[..2] == [0, 1], "what is on its way at a cancellation is lost: {got:?}");
    queue.complete();
    for _ in 0..100 {
        running.pass(ms(1000));
    }
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn a_sink_that_may_not_be_started_again_cancels() {
    let received = Received::default();
    let shared = Arc::clone(&received);
    let settings = settings().restarts_max(1, Duration::from_secs(60));
    let flow = Flow::<u32, u32>::from_sink_and_source(
        RestartSink::with_backoff(settings, move || pairs(&shared)),
        Source::never(),
    );
    let hand = Hand::hold(flow);
    for n in 0..20 {
        hand.give(n).pass(50);
    }
    assert!(hand.cancelled().is_some());
    assert_eq!(received.lock().unwrap().len(), 4);
}

#[test]
fn a_sink_gets_everything_and_the_end() {
    for fails in [false, true] {
        let received = Received::default();
        let shared = Arc::clone(&received);
        let ended = Made::default();
        let counted = ended.clone();
        let sink = RestartSink::with_backoff(settings(), move || {
            let (shared, counted) = (Arc::clone(&shared), counted.clone());
            Flow::<u32, u32>::new()
                .map(move |n| shared.lock().unwrap().push(n))
                .to(Sink::on_complete(move |_| _ = counted.next()))
        });
        let mut running = Running::new();
        let source = if fails { failing(50) } else { numbers(0, 50) };
        running.start(&source.to(sink));
        running.pass(ms(1000));
        assert!(fails || *received.lock().unwrap() == (0..50).collect::<Vec<_>>());
        assert_eq!((ended.count(), running.host.islands()), (1, 0));
    }
}

#[test]
fn a_flow_passes_elements_and_ends_with_either_side() {
    let flow = || RestartFlow::with_backoff(settings(), || Flow::<u32, u32>::new().map(|n| n * 2));
    let hand = Hand::hold(flow());
    hand.request(10).give_all([1, 2, 3]);
    assert_eq!(hand.received(), [2, 4, 6]);
    hand.give(4).complete().pass(1000);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![8], Some("complete")));
    assert_eq!(hand.host.islands(), 0);
    let hand = Hand::hold(flow());
    hand.request(1).cancel().pass(1000);
    assert!(hand.cancelled().is_some());
    assert_eq!(hand.host.islands(), 0);
    let hand = Hand::hold(flow());
    hand.request(1).fail("upstream").pass(1000);
    assert_eq!(hand.end().as_deref(), Some("upstream"));
    assert_eq!(hand.host.islands(), 0);
}

/// A flow that fails at 13, completes at 7, and cancels at 5.
fn moody() -> Flow<u32, u32> {
    Flow::<u32, u32>::new().map(|n| if n == 13 { panic!("thirteen") } else { n }).take_while(|n| *n != 7).seal()
}

#[test]
fn a_flow_is_started_again_when_either_of_its_ends_is() {
    for bad in [7, 13] {
        let made = Made::default();
        let counted = made.clone();
        let hand = Hand::hold(RestartFlow::with_backoff(settings(), move || {
            counted.next();
            moody()
        }));
        hand.request(10).give_all([1, 2, bad]);
        assert_eq!((hand.received(), made.count()), (vec![1, 2], 1));
        hand.pass(100);
        assert_eq!(made.count(), 2);
        hand.give_all([3, bad]).pass(1000);
        assert_eq!((hand.received(), made.count()), (vec![3], 3));
        hand.give(4).complete().pass(1000);
        assert_eq!((hand.received(), hand.end().as_deref()), (vec![4], Some("complete")));
    }
    // Its inlet is cancelled, and its outlet stays open.
    let made = Made::default();
    let counted = made.clone();
    let hand = Hand::<u32, u32>::hold(RestartFlow::with_backoff(settings(), move || {
        counted.next();
        Flow::from_sink_and_source(Sink::cancelled(), Source::never())
    }));
    hand.request(1).pass(49);
    assert_eq!(made.count(), 1, "a failure may still come");
    hand.pass(1).pass(10);
    assert_eq!(made.count(), 2);
}

#[test]
fn a_flow_may_be_started_again_after_failures_only() {
    let made = Made::default();
    let counted = made.clone();
    let hand = Hand::hold(RestartFlow::on_failures_with_backoff(settings(), move || {
        counted.next();
        moody()
    }));
    hand.request(10).give_all([1, 13]).pass(100).give_all([2, 13]).pass(100);
    assert_eq!((hand.received(), made.count(), hand.end()), (vec![1, 2], 3, None));
    hand.give_all([3, 7]).pass(100);
    assert_eq!((hand.received(), made.count(), hand.end().as_deref()), (vec![3], 3, Some("complete")));
    assert!(hand.cancelled().is_some());
}

#[test]
fn what_runs_inside_ends_with_the_stage() {
    let running = Running::new();
    let source = RestartSource::with_backoff(settings(), Source::<u32>::never);
    let mut end = running.start(&source.watch_termination(keep::right).to(Sink::ignore()));
    running.settle();
    running.host.abort();
    assert!(end.try_take().unwrap().is_err());
    assert_eq!(running.host.islands(), 0);
}
