//! The ring between two islands in all interleavings (up to three preemptions) of small cases, stale loads included.
//!
//! Built and run only with `RUSTFLAGS="--cfg loom"`:
//! `cargo test --release --no-default-features --target-dir target/loom --test stream_loom`.
//! A wake-up that is lost shows as a deadlock, a wrong access as a data race, an element that is dropped twice or never
//! by its count. The twins with a planted bug show that the models can fail.
#![cfg(loom)]
#![allow(unsafe_code)]

use std::sync::Arc as StdArc;
use std::task::{Wake, Waker};

use atoll::mesh::sync::{Arc, AtomicU64, Ordering, UnsafeCell, fence};
use atoll::stream::boundary::ring::{Consumer, End, Producer, ring};
use atoll::stream::{Cancellation, StreamError};
use loom::{sync::Notify, thread};

fn model(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(case);
}

/// An island that sleeps; it remembers a wake-up.
struct Park(Notify);

impl Wake for Park {
    fn wake(self: StdArc<Self>) {
        self.0.notify();
    }
}

fn park() -> (StdArc<Park>, Waker) {
    let park = StdArc::new(Park(Notify::new()));
    (park.clone(), Waker::from(park))
}

/// A deadlocked thread is not unwound, so what it holds is leaked: fine in a test that is meant to fail.
type Element = StdArc<u64>;

// ---- the two sides ----

/// Gives as many elements as it can, sleeping when there is no room. False if the consumer has gone.
fn produce(producer: &mut Producer<Element>, elements: impl Iterator<Item = Element>, batch: u64) -> bool {
    let (park, waker) = park();
    producer.attach(waker);
    for element in elements {
        while !producer.has_room() {
            producer.publish();
            if producer.cancellation().is_some() {
                return false;
            }
            if producer.wait() {
                park.0.wait();
            }
        }
        if producer.cancellation().is_some() {
            return false;
        }
        assert!(producer.write(element).is_ok());
        if producer.unpublished() >= batch || producer.is_consumer_idle() {
            producer.publish();
        }
    }
    producer.publish();
    true
}

/// Takes up to so many elements, sleeping when there is none. Gives the end that it has seen.
fn consume(consumer: &mut Consumer<Element>, most: u64, taken: &mut Vec<u64>) -> Option<End> {
    let (park, waker) = park();
    consumer.attach(waker);
    while (taken.len() as u64) < most {
        let end = consumer.end();
        if let End::Failed(_) | End::Gone = end {
            return Some(end);
        }
        match consumer.take() {
            Some(element) => taken.push(*element),
            None if matches!(end, End::Completed) => return Some(end),
            None => {
                consumer.release();
                if consumer.wait() {
                    park.0.wait();
                }
            }
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Completes,
    Fails,
    Goes,
}

/// One stream: order, no lost wake-up, the right end, each element dropped once.
fn a_stream_ends(capacity: usize, count: u64, batch: u64, ending: Ending) {
    model(move || {
        let live = StdArc::new(0);
        let (mut producer, mut consumer) = ring::<Element>(capacity);
        let elements: Vec<Element> = (0..count).map(StdArc::new).collect();
        let watched: Vec<_> = elements.iter().map(StdArc::downgrade).collect();
        let held = StdArc::clone(&live);
        let sender = thread::spawn(move || {
            assert!(produce(&mut producer, elements.into_iter(), batch));
            match ending {
                Ending::Completes => producer.complete(),
                Ending::Fails => producer.fail(StreamError::text("source")),
                Ending::Goes => drop(producer),
            }
            drop(held);
        });
        let mut taken = Vec::new();
        let end = consume(&mut consumer, u64::MAX, &mut taken);
        assert_eq!(taken, (0..taken.len() as u64).collect::<Vec<_>>());
        match (ending, end) {
            (Ending::Completes, Some(End::Completed)) => assert_eq!(taken.len() as u64, count),
            (Ending::Fails, Some(End::Failed(_))) | (Ending::Goes, Some(End::Gone)) => {}
            (_, end) => panic!("{end:?}"),
        }
        drop(consumer);
        sender.join().unwrap();
        assert!(watched.iter().all(|element| element.strong_count() == 0), "each element is dropped");
        assert_eq!(StdArc::strong_count(&live), 1);
    });
}

#[test]
fn all_elements_come_before_the_completion_through_one_place() {
    a_stream_ends(1, 3, 1, Ending::Completes);
}

#[test]
fn all_elements_come_before_the_completion_in_batches() {
    a_stream_ends(2, 3, 2, Ending::Completes);
}

#[test]
fn a_failure_overtakes() {
    a_stream_ends(2, 2, 1, Ending::Fails);
    a_stream_ends(2, 2, 2, Ending::Fails);
}

#[test]
fn a_producer_that_goes_is_missed() {
    a_stream_ends(2, 2, 2, Ending::Goes);
    a_stream_ends(1, 2, 1, Ending::Goes);
}

/// The consumer stops after some elements, while the producer gives more, waits for room, or ends.
fn a_consumer_ends(capacity: usize, count: u64, taken_before: u64, says_why: bool) {
    model(move || {
        let (mut producer, mut consumer) = ring::<Element>(capacity);
        let elements: Vec<Element> = (0..count).map(StdArc::new).collect();
        let watched: Vec<_> = elements.iter().map(StdArc::downgrade).collect();
        let sender = thread::spawn(move || {
            let all = produce(&mut producer, elements.into_iter(), 1);
            if all {
                producer.complete();
            }
            let cancellation = producer.cancellation();
            drop(producer);
            (all, cancellation)
        });
        let mut taken = Vec::new();
        consume(&mut consumer, taken_before, &mut taken);
        if says_why {
            consumer.cancel(Cancellation::StageWasCompleted);
        }
        drop(consumer);
        let (all, cancellation) = sender.join().unwrap();
        match cancellation {
            None => assert!(all),
            Some(Some(Cancellation::StageWasCompleted)) => assert!(says_why),
            Some(cause) => assert!(cause.is_none() && !says_why),
        }
        assert!(watched.iter().all(|element| element.strong_count() == 0), "each element is dropped");
    });
}

#[test]
fn a_cancellation_reaches_a_producer_that_waits() {
    a_consumer_ends(1, 3, 1, true);
    a_consumer_ends(2, 4, 0, true);
}

#[test]
fn a_consumer_that_goes_is_missed() {
    a_consumer_ends(1, 3, 1, false);
    a_consumer_ends(2, 3, 1, false);
}

/// Both say at the same time that they end.
#[test]
fn both_may_end_at_once() {
    for ending in [Ending::Completes, Ending::Fails, Ending::Goes] {
        model(move || {
            let (mut producer, mut consumer) = ring::<Element>(2);
            let element = StdArc::new(0);
            let watched = StdArc::downgrade(&element);
            producer.attach(park().1);
            consumer.attach(park().1);
            assert!(producer.write(element).is_ok());
            let sender = thread::spawn(move || match ending {
                Ending::Completes => producer.complete(),
                Ending::Fails => producer.fail(StreamError::text("source")),
                Ending::Goes => drop(producer),
            });
            consumer.cancel(Cancellation::NoMoreElementsNeeded);
            drop(consumer);
            sender.join().unwrap();
            assert_eq!(watched.strong_count(), 0);
        });
    }
}

// ---- twins of the protocol of waiting, with a bug in one part ----

/// One place and the way to wait for what lies in it, as the ring has it.
struct Twin<
    const PUBLISHES_WITH_FENCE: bool,
    const WAITS_WITH_FENCE: bool,
    const LOOKS_AGAIN: bool,
    const RELEASES: bool,
> {
    tail: AtomicU64,
    waits: AtomicU64,
    value: UnsafeCell<u64>,
}

// SAFETY: the value is written before `tail` and read after it; where a planted bug breaks that, the model fails.
unsafe impl<const A: bool, const B: bool, const C: bool, const D: bool> Sync for Twin<A, B, C, D> {}

fn a_value_crosses<const A: bool, const B: bool, const C: bool, const D: bool>() {
    model(|| {
        let twin = Arc::new(Twin::<A, B, C, D> {
            tail: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            value: UnsafeCell::new(0),
        });
        let (park, waker) = park();
        let there = std::mem::ManuallyDrop::new(twin.clone());
        thread::spawn(move || {
            // SAFETY: written once, before `tail`.
            there.value.with_mut(|value| unsafe { *value = 7 });
            there.tail.store(1, if D { Ordering::Release } else { Ordering::Relaxed });
            if A {
                fence(Ordering::SeqCst);
            }
            if there.waits.load(Ordering::Relaxed) != 0 && there.waits.swap(0, Ordering::AcqRel) != 0 {
                waker.wake_by_ref();
            }
            drop(std::mem::ManuallyDrop::into_inner(there));
        });
        let twin = std::mem::ManuallyDrop::new(twin);
        while twin.tail.load(Ordering::Acquire) == 0 {
            twin.waits.swap(1, Ordering::AcqRel);
            if B {
                fence(Ordering::SeqCst);
            }
            if !C || twin.tail.load(Ordering::Acquire) == 0 {
                park.0.wait();
            }
        }
        // SAFETY: read after `tail` says that it was written.
        assert_eq!(twin.value.with(|value| unsafe { *value }), 7);
        drop(std::mem::ManuallyDrop::into_inner(twin));
    });
}

#[test]
fn the_twin_without_a_bug_loses_nothing() {
    a_value_crosses::<true, true, true, true>();
}

#[test]
#[should_panic = "deadlock"]
fn planted_bug_the_publisher_has_no_fence() {
    a_value_crosses::<false, true, true, true>();
}

#[test]
#[should_panic = "deadlock"]
fn planted_bug_the_waiting_side_has_no_fence() {
    a_value_crosses::<true, false, true, true>();
}

#[test]
#[should_panic = "deadlock"]
fn planted_bug_the_waiting_side_does_not_look_again() {
    a_value_crosses::<true, true, false, true>();
}

#[test]
#[should_panic]
fn planted_bug_publishing_does_not_release() {
    a_value_crosses::<true, true, true, false>();
}
