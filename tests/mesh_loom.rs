//! The mesh in all interleavings (up to three preemptions) of small cases, stale loads included.
//!
//! Built and run only with `RUSTFLAGS="--cfg loom"`:
//! `cargo test --release --no-default-features --target-dir target/loom --test mesh_loom`.
//! A wake-up that is lost shows as a deadlock. The twins with a planted bug show that the models can fail.
#![cfg(loom)]
#![allow(unsafe_code)]

use atoll::mesh::{
    Bell, Consumer, Doorbell, ForeignInbox, Producer, WokenNode, WokenStack, channel,
    sync::{Arc, AtomicBool, AtomicPtr, Ordering, fence},
};
use core::{
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
};
use loom::{sync::Notify, thread};
use std::sync::Arc as StdArc;

fn model(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(case);
}

/// What a thread holds when a planted bug makes it wait for ever. The checker cannot drop such things while it unwinds.
struct Held<T>(ManuallyDrop<T>);
impl<T> Held<T> {
    fn new(value: T) -> Self {
        Held(ManuallyDrop::new(value))
    }
}
impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}
impl<T> Deref for Held<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
impl<T> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

// ---- the queue between two cores ----

type Push = fn(&mut Producer<Box<i32>>, i32) -> bool;
type Pop = fn(&mut Consumer<Box<i32>>) -> Option<i32>;

fn values_arrive_in_order(capacity: usize, push: Push, pop: Pop) {
    model(move || {
        let (mut producer, mut consumer) = channel(capacity);
        let sender = thread::spawn(move || {
            for number in 0..3 {
                while !producer.has_room() {
                    thread::yield_now();
                }
                assert!(push(&mut producer, number), "there is room until the next push");
            }
        });
        for expected in 0..3 {
            while !consumer.has_next() {
                thread::yield_now();
            }
            assert_eq!(pop(&mut consumer), Some(expected));
        }
        sender.join().unwrap();
        assert!(consumer.is_closed() && pop(&mut consumer).is_none());
    });
}

fn push_moved(producer: &mut Producer<Box<i32>>, number: i32) -> bool {
    producer.push(Box::new(number)).is_ok()
}

fn pop_moved(consumer: &mut Consumer<Box<i32>>) -> Option<i32> {
    consumer.pop().map(|number| *number)
}

#[test]
fn values_arrive_in_order_through_one_slot() {
    values_arrive_in_order(1, push_moved, pop_moved);
}

#[test]
fn values_arrive_in_order_through_two_slots() {
    values_arrive_in_order(2, push_moved, pop_moved);
}

#[test]
fn values_that_are_made_and_read_in_their_slot_arrive_in_order() {
    // SAFETY: the element is written.
    let push: Push = |producer, number| unsafe { producer.push_with(|slot| slot.write(Box::new(number))) }.is_ok();
    let pop: Pop = |consumer| consumer.pop_with(|element| **element);
    for capacity in [1, 2] {
        values_arrive_in_order(capacity, push, pop);
    }
}

#[test]
fn a_full_queue_gives_back_and_an_empty_one_gives_nothing() {
    model(|| {
        let (mut producer, mut consumer) = channel(2);
        let sender = thread::spawn(move || (0..3).filter(|number| producer.push(*number).is_ok()).collect::<Vec<_>>());
        let mut received: Vec<_> = (0..2).filter_map(|_| consumer.pop()).collect();
        let accepted = sender.join().unwrap();
        received.extend(core::iter::from_fn(|| consumer.pop()));
        assert_eq!(received, accepted);
        assert!(accepted.starts_with(&[0, 1]));
    });
}

#[test]
fn a_closed_queue_that_gives_nothing_is_finished() {
    model(|| {
        let (mut producer, mut consumer) = channel(2);
        let sender = thread::spawn(move || (0..2).for_each(|number| producer.push(number).unwrap()));
        let mut received = 0;
        loop {
            let closed = consumer.is_closed();
            match consumer.pop() {
                Some(number) => {
                    assert_eq!(number, received);
                    received += 1;
                }
                None if closed => break,
                None => thread::yield_now(),
            }
        }
        assert_eq!(received, 2);
        sender.join().unwrap();
    });
}

fn each_value_is_dropped_once(capacity: usize) {
    model(move || {
        let element = StdArc::new(());
        let (mut producer, mut consumer) = channel(capacity);
        let pushed = element.clone();
        let sender = thread::spawn(move || {
            for _ in 0..3 {
                drop(producer.push(pushed.clone()));
            }
            producer
        });
        consumer.pop();
        drop(consumer);
        let mut producer = sender.join().unwrap();
        assert!(producer.is_closed() && !producer.has_room());
        assert!(producer.push(element.clone()).is_err());
        drop(producer);
        assert_eq!(StdArc::strong_count(&element), 1, "capacity {capacity}");
    });
}

#[test]
fn each_value_is_dropped_once_when_the_consumer_goes_first() {
    each_value_is_dropped_once(1);
    each_value_is_dropped_once(2);
}

// ---- the doorbell ----

/// The bell of a core in the model; it remembers a ring, as an eventfd does.
#[derive(Clone)]
struct Park(StdArc<Notify>);
impl Bell for Park {
    fn ring(&self) {
        self.0.notify();
    }
}

/// The steps of the protocol, so that a twin can have a bug in one.
trait Protocol: Send + Sync + 'static {
    fn new(park: Park) -> Self;
    fn announce_sleep(&self);
    fn cancel_sleep(&self);
    fn ring_if_sleeping(&self);
    const LOOKS_AGAIN: bool = true;
}

impl Protocol for Doorbell {
    fn new(park: Park) -> Self {
        Doorbell::new(park)
    }
    fn announce_sleep(&self) {
        self.announce_sleep();
    }
    fn cancel_sleep(&self) {
        self.cancel_sleep();
    }
    fn ring_if_sleeping(&self) {
        self.ring_if_sleeping();
    }
}

/// The doorbell with one of its parts left out.
struct Twin<const SENDER_FENCE: bool, const CONSUMER_FENCE: bool, const SECOND_LOOK: bool> {
    sleeping: AtomicBool,
    park: Park,
}
impl<const SENDER_FENCE: bool, const CONSUMER_FENCE: bool, const SECOND_LOOK: bool> Protocol
    for Twin<SENDER_FENCE, CONSUMER_FENCE, SECOND_LOOK>
{
    fn new(park: Park) -> Self {
        Twin { sleeping: AtomicBool::new(false), park }
    }
    fn announce_sleep(&self) {
        self.sleeping.swap(true, Ordering::AcqRel);
        if CONSUMER_FENCE {
            fence(Ordering::SeqCst);
        }
    }
    fn cancel_sleep(&self) {
        self.sleeping.swap(false, Ordering::AcqRel);
    }
    fn ring_if_sleeping(&self) {
        if SENDER_FENCE {
            fence(Ordering::SeqCst);
        }
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.park.ring();
        }
    }
    const LOOKS_AGAIN: bool = SECOND_LOOK;
}

/// A core that takes `count` elements, and sleeps whenever there is none.
fn receive<P: Protocol>(doorbell: &P, park: &Park, inboxes: &mut [Consumer<u32>], mut count: u32) {
    loop {
        for inbox in &mut *inboxes {
            while inbox.pop().is_some() {
                count -= 1;
            }
        }
        if count == 0 {
            return;
        }
        doorbell.announce_sleep();
        if P::LOOKS_AGAIN && inboxes.iter().any(Consumer::has_next) {
            doorbell.cancel_sleep();
            continue;
        }
        park.0.wait();
        doorbell.cancel_sleep();
    }
}

fn a_core_hears_of_everything<P: Protocol>(senders: usize, turns: u32) {
    model(move || {
        let park = Held::new(Park(StdArc::new(Notify::new())));
        let doorbell = Held::new(Arc::new(P::new(park.clone())));
        let mut inboxes = Held::new(Vec::new());
        for _ in 0..senders {
            let (mut producer, consumer) = channel(2);
            inboxes.push(consumer);
            let doorbell = doorbell.clone();
            thread::spawn(move || {
                for turn in 0..turns {
                    producer.push(turn).unwrap();
                    doorbell.ring_if_sleeping();
                }
            });
        }
        receive(&**doorbell, &park, &mut inboxes, senders as u32 * turns);
    });
}

#[test]
fn no_wake_up_of_one_sender_is_lost() {
    a_core_hears_of_everything::<Doorbell>(1, 2);
}

#[test]
fn no_wake_up_of_two_senders_is_lost() {
    a_core_hears_of_everything::<Doorbell>(2, 1);
}

#[test]
fn the_twin_without_a_bug_loses_nothing() {
    a_core_hears_of_everything::<Twin<true, true, true>>(1, 1);
}

#[test]
#[should_panic = "deadlock"]
fn planted_bug_the_sender_has_no_fence() {
    a_core_hears_of_everything::<Twin<false, true, true>>(1, 1);
}

#[test]
#[should_panic = "deadlock"]
fn planted_bug_the_consumer_has_no_fence() {
    a_core_hears_of_everything::<Twin<true, false, true>>(1, 1);
}

#[test]
#[should_panic = "deadlock"]
fn planted_bug_the_consumer_does_not_look_again() {
    a_core_hears_of_everything::<Twin<true, true, false>>(1, 1);
}

#[test]
fn one_sleep_is_ended_by_one_ring() {
    model(|| {
        let doorbell = Arc::new(Doorbell::new(Park(StdArc::new(Notify::new()))));
        doorbell.announce_sleep();
        let other = doorbell.clone();
        let sender = thread::spawn(move || other.ring_if_sleeping());
        let here = doorbell.ring_if_sleeping();
        let there = sender.join().unwrap();
        assert!(here ^ there);
        assert!(doorbell.cancel_sleep());
        assert_eq!(doorbell.rings(), 1);
    });
}

// ---- the inbox for foreign threads (its queue is not modelled: each of its operations is one step) ----

#[test]
fn a_stopping_core_leaves_no_element_behind() {
    model(|| {
        let doorbell = Arc::new(Doorbell::new(Park(StdArc::new(Notify::new()))));
        let inbox = Arc::new(ForeignInbox::new(2, doorbell));
        let element = StdArc::new(());
        let (there, pushed) = (inbox.clone(), element.clone());
        let sender = thread::spawn(move || _ = there.try_push(pushed));
        inbox.close();
        while inbox.pop().is_some() {}
        sender.join().unwrap();
        assert_eq!(StdArc::strong_count(&element), 1);
        assert!(inbox.try_push(element).is_err());
    });
}

// ---- the stack of woken tasks ----

struct Task {
    number: u32,
    queued: AtomicBool,
    next: AtomicPtr<Task>,
}
// SAFETY: it is always the same field, which nothing here touches otherwise.
unsafe impl WokenNode for Task {
    fn next_woken(&self) -> &AtomicPtr<Task> {
        &self.next
    }
}
fn task(number: u32) -> StdArc<Task> {
    StdArc::new(Task { number, queued: AtomicBool::new(false), next: AtomicPtr::new(ptr::null_mut()) })
}
fn wake(stack: &WokenStack<Task>, task: &StdArc<Task>) -> bool {
    if task.queued.swap(true, Ordering::AcqRel) {
        return false;
    }
    let node = NonNull::new(StdArc::into_raw(task.clone()).cast_mut()).unwrap();
    // SAFETY: the reference that goes with it keeps the task alive; `queued` says that it is in no stack; a task can
    // be shared between threads, and is never borrowed mutably.
    unsafe { stack.push(node) }
}
fn woken(node: NonNull<Task>) -> u32 {
    // SAFETY: `wake` has handed over this reference.
    let task = unsafe { StdArc::from_raw(node.as_ptr()) };
    // Before the task runs, so that a wake-up from now on queues it again, and one before now is seen by the run.
    task.queued.swap(false, Ordering::AcqRel);
    task.number
}

/// Two threads wake two tasks each, and ring only if the stack was empty; the owner sleeps when there is none.
#[test]
fn no_woken_task_is_lost_though_only_the_first_push_rings() {
    model(|| {
        let park = Park(StdArc::new(Notify::new()));
        let shared = Arc::new((WokenStack::new(), Doorbell::new(park.clone())));
        for (thread, tasks) in [(0, 2), (1, 1)] {
            let shared = shared.clone();
            thread::spawn(move || {
                for number in 0..tasks {
                    if wake(&shared.0, &task(thread * 10 + number)) {
                        shared.1.ring_if_sleeping();
                    }
                }
            });
        }
        let mut numbers = Vec::new();
        while numbers.len() < 3 {
            numbers.extend(shared.0.take_all().map(woken));
            if numbers.len() == 3 {
                break;
            }
            shared.1.announce_sleep();
            if shared.0.is_empty() {
                park.0.wait();
            }
            shared.1.cancel_sleep();
        }
        assert!(numbers.iter().position(|n| *n == 0) < numbers.iter().position(|n| *n == 1), "in order");
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 10]);
    });
}

/// A wake-up while the task is being taken is either part of this run or queues the task again.
#[test]
fn a_task_that_is_woken_again_comes_out_again() {
    model(|| {
        let (stack, task) = (Arc::new(WokenStack::new()), task(7));
        wake(&stack, &task);
        let (there, again) = (stack.clone(), task.clone());
        let news = Arc::new(AtomicBool::new(false));
        let told = news.clone();
        let waker = thread::spawn(move || {
            told.store(true, Ordering::Relaxed);
            wake(&there, &again);
        });
        let mut seen = false;
        for node in stack.take_all() {
            woken(node);
            seen |= news.load(Ordering::Relaxed);
        }
        waker.join().unwrap();
        let came_again = stack.take_all().map(woken).count() == 1;
        assert!(seen || came_again);
        assert_eq!(StdArc::strong_count(&task), 1);
    });
}
