//! A bounded queue from one core to one other core.
//!
//! Called by the engine: one queue for each ordered pair of cores. Each slot carries its own sequence number, so that
//! an element of 56 bytes and its number are one cache line and passing the element moves exactly that line; larger
//! elements take whole further lines. Each end keeps its position to itself: the ends share nothing but the slots.
//!
//! Invariants. Let `p` be a position and `s` its slot (`p` modulo the capacity); the sequence of `s` is
//! - `2p`: free, only the producer may touch the value;
//! - `2p + 1`: full, only the consumer may touch the value;
//! - `2(p + capacity)`: free again for the next round;
//! - `CLOSED`: free for ever, the consumer is gone.
//!
//! So a slot holds a value exactly if its sequence is odd, whatever the ends did; that is what is dropped at the end.
//!
//! Each element is published on its own. Publishing once per turn would not be better: the sequence lies in the line
//! that has to travel anyway, so an extra pass over the slots would only touch each line twice and hold elements back.
//! (A queue with a shared tail gains from batches, but pays a second line, and half as much again in latency, for
//! each element that comes alone.)
#![allow(unsafe_code)]

use super::in_place::InPlace;
use super::sync::{Arc, AtomicBool, AtomicU64, Ordering, UnsafeCell, newest};
use core::{cell::Cell, fmt, marker::PhantomData, mem::MaybeUninit, ptr::NonNull};

/// The sequence of a slot that the departed consumer left free. Even, so that it never means "full"; a position that
/// could collide with it is out of reach.
const CLOSED: u64 = u64::MAX - 1;

#[repr(C, align(64))]
struct Slot<T> {
    sequence: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Ring<T> {
    slots: Box<[Slot<T>]>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: the ring gives out values of `T` on another thread than the one that put them in (T: Send), and never shares
// a `&T`. Which end may touch the value of a slot follows from the sequence, as the module says.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; all other fields are atomics, or never change after the construction.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if newest(&mut slot.sequence) & 1 == 1 {
                // SAFETY: odd means that the slot holds a value which nobody took. Both ends are gone (`&mut self`).
                slot.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
            }
        }
    }
}

/// What both ends know: the ring, and the way to its slots without a detour.
struct End<T> {
    ring: Arc<Ring<T>>,
    slots: NonNull<Slot<T>>,
    mask: u64,
    position: u64,
    not_sync: PhantomData<Cell<()>>,
}

impl<T> End<T> {
    fn new(ring: Arc<Ring<T>>) -> Self {
        let slots = NonNull::from(&*ring.slots).cast();
        let mask = ring.slots.len() as u64 - 1;
        End { ring, slots, mask, position: 0, not_sync: PhantomData }
    }

    #[inline]
    fn slot(&self) -> &Slot<T> {
        let index = (self.position & self.mask) as usize;
        // SAFETY: `index` is below the number of slots, which is `mask + 1`; `slots` points to the first one. The ring
        // outlives `self` by its reference count, its slots never move, and nobody has a `&mut` to them before both
        // ends are gone.
        unsafe { self.slots.add(index).as_ref() }
    }

    fn capacity(&self) -> u64 {
        self.mask + 1
    }
}

/// The end that pushes. May move to another thread, but not be shared.
pub struct Producer<T>(End<T>);

/// The end that pops. May move to another thread, but not be shared.
pub struct Consumer<T>(End<T>);

// SAFETY: an end is a counted reference to a ring that is Send and Sync for such a `T`, and a pointer into it that is
// valid as long as that reference, on any thread.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as for the producer.
unsafe impl<T: Send> Send for Consumer<T> {}

/// A queue with room for `capacity_power_of_two` elements.
///
/// # Panics
/// If the capacity is no power of two.
#[must_use]
pub fn channel<T: Send>(capacity_power_of_two: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity_power_of_two.is_power_of_two(), "the capacity of a queue between cores is a power of two");
    let free = |position| Slot {
        sequence: AtomicU64::new(2 * position as u64),
        value: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let ring = Arc::new(Ring {
        slots: (0..capacity_power_of_two).map(free).collect(),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    (Producer(End::new(ring.clone())), Consumer(End::new(ring)))
}

impl<T> Producer<T> {
    /// Appends an element; the consumer can see it at once (ring its doorbell at the end of the turn).
    ///
    /// # Errors
    /// Gives the element back if the queue is full, or if the consumer is gone. An element that was accepted while the
    /// consumer went is dropped with this end.
    #[inline]
    pub fn push(&mut self, element: T) -> Result<(), T> {
        let end = &mut self.0;
        let slot = end.slot();
        // Acquire: the consumer has read the previous value before it freed the slot.
        if slot.sequence.load(Ordering::Acquire) != 2 * end.position {
            return Err(element);
        }
        // SAFETY: the slot is free for this position: it holds no value, and only the one producer may touch it until
        // the store below. (A consumer that goes meanwhile marks the slot closed, but leaves the value alone.)
        slot.value.with_mut(|value| unsafe { (*value).write(element) });
        slot.sequence.store(2 * end.position + 1, Ordering::Release);
        end.position += 1;
        Ok(())
    }

    /// As [`push`](Producer::push), of an element that `write` makes in its slot, so that no more lines travel than it
    /// writes.
    ///
    /// # Errors
    /// Gives `write` back, uncalled, if the queue is full or the consumer is gone.
    ///
    /// # Safety
    /// `write` initialises the element that its pointer leads to.
    #[inline]
    pub unsafe fn push_with<W: FnOnce(*mut T)>(&mut self, write: W) -> Result<(), W> {
        let end = &mut self.0;
        let slot = end.slot();
        // Acquire: as in `push`.
        if slot.sequence.load(Ordering::Acquire) != 2 * end.position {
            return Err(write);
        }
        // The slot is free as in `push`, and stays so if `write` panics; else it holds an element by the caller's promise.
        slot.value.with_mut(|value| write(value.cast()));
        slot.sequence.store(2 * end.position + 1, Ordering::Release);
        end.position += 1;
        Ok(())
    }

    /// Whether the next push will be accepted. "Yes" stays true until that push or until the consumer goes.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.slot().sequence.load(Ordering::Acquire) == 2 * self.0.position
    }

    /// Whether the consumer is gone: nothing that is pushed from now on will ever be received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.ring.consumer_gone.load(Ordering::Acquire)
    }

    /// How many elements the queue holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity() as usize
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.0.ring.producer_gone.store(true, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest element, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let capacity = self.0.capacity();
        let end = &mut self.0;
        let slot = end.slot();
        // Acquire: the value was written before the slot was marked full.
        if slot.sequence.load(Ordering::Acquire) != 2 * end.position + 1 {
            return None;
        }
        // SAFETY: the slot is full for this position: it holds a value, which only the one consumer may touch until
        // the store below, after which the slot counts as empty: the value is moved out exactly once.
        let element = slot.value.with(|value| unsafe { (*value).assume_init_read() });
        slot.sequence.store(2 * (end.position + capacity), Ordering::Release);
        end.position += 1;
        Some(element)
    }

    /// Hands the oldest element to `take` where it lies, if there is one: what `take` does not read need not travel. Its
    /// slot is free when `take` is done.
    #[inline]
    pub fn pop_with<R>(&mut self, take: impl FnOnce(InPlace<'_, T>) -> R) -> Option<R> {
        /// Frees the slot, also if `take` panics: the element is gone then as well.
        struct Free<'a, T>(&'a mut End<T>);
        impl<T> Drop for Free<'_, T> {
            fn drop(&mut self) {
                let free = 2 * (self.0.position + self.0.capacity());
                self.0.slot().sequence.store(free, Ordering::Release);
                self.0.position += 1;
            }
        }
        // Acquire: as in `pop`.
        if self.0.slot().sequence.load(Ordering::Acquire) != 2 * self.0.position + 1 {
            return None;
        }
        let end = Free(&mut self.0);
        // SAFETY: the slot is full for this position: it holds a value, which only the one consumer may touch until `end`
        // frees the slot, after which the slot counts as empty: the value has one owner, which cannot outlive the closure.
        Some(end.0.slot().value.with_mut(|value| take(unsafe { InPlace::new(value.cast()) })))
    }

    /// Whether [`pop`](Consumer::pop) would give an element: one load.
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.0.slot().sequence.load(Ordering::Acquire) == 2 * self.0.position + 1
    }

    /// Whether the producer is gone. What it pushed before can still be popped, and is visible once this says true: a
    /// closed queue whose next `pop` gives nothing is finished.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.ring.producer_gone.load(Ordering::Acquire)
    }
}

impl<T> Drop for Consumer<T> {
    /// Drops what is left and closes each slot, so that the next push fails without looking at anything else. A push
    /// that has found its slot free already wins over the mark; its value is dropped with the ring.
    fn drop(&mut self) {
        self.0.ring.consumer_gone.store(true, Ordering::Release);
        for _ in 0..self.0.capacity() {
            let slot = self.0.slot();
            // AcqRel: see the value if there is one; and the producer, should it ever read the mark, is after us.
            if slot.sequence.swap(CLOSED, Ordering::AcqRel) == 2 * self.0.position + 1 {
                // SAFETY: the slot was full for this position, so it holds a value that only we may touch; with the
                // mark it counts as empty, so nobody drops it again.
                slot.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
            }
            self.0.position += 1;
        }
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("pushed", &self.0.position).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("popped", &self.0.position).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::VecDeque, sync::Arc as StdArc, thread};

    #[test]
    fn a_slot_is_one_or_two_cache_lines() {
        assert_eq!((size_of::<Slot<[u64; 7]>>(), align_of::<Slot<[u64; 7]>>()), (64, 64));
        assert_eq!((size_of::<Slot<[u64; 15]>>(), align_of::<Slot<[u64; 15]>>()), (128, 64));
        assert_eq!((size_of::<Slot<u8>>(), align_of::<Slot<u8>>()), (64, 64));
    }

    #[test]
    fn an_end_may_move_to_another_thread_but_not_be_shared() {
        fn is_send<E: Send>() {}
        is_send::<Producer<u8>>();
        is_send::<Consumer<u8>>();
        // Were an end Sync, both implementations would fit and this would not compile.
        trait NotSync<Marker> {
            fn holds() {}
        }
        impl<E> NotSync<()> for E {}
        impl<E: Sync> NotSync<u8> for E {}
        <Producer<u8> as NotSync<_>>::holds();
        <Consumer<u8> as NotSync<_>>::holds();
    }

    #[test]
    #[should_panic = "power of two"]
    fn the_capacity_is_a_power_of_two() {
        let _ = channel::<u8>(3);
    }

    #[test]
    fn what_is_left_when_the_producer_goes_can_be_popped() {
        let (mut producer, mut consumer) = channel(4);
        producer.push(1).unwrap();
        assert!(!consumer.is_closed());
        drop(producer);
        assert!(consumer.is_closed());
        assert_eq!((consumer.pop(), consumer.pop()), (Some(1), None));
    }

    #[test]
    fn what_is_left_when_the_consumer_goes_is_dropped_and_pushes_fail() {
        for popped in 0..4 {
            let element = StdArc::new(());
            let (mut producer, mut consumer) = channel(4);
            for _ in 0..4 {
                producer.push(element.clone()).unwrap();
            }
            for _ in 0..popped {
                consumer.pop().unwrap();
            }
            assert_eq!(StdArc::strong_count(&element), 5 - popped);
            assert!(!producer.is_closed());
            drop(consumer);
            assert_eq!(StdArc::strong_count(&element), 1);
            assert!(producer.is_closed() && !producer.has_room());
            assert!(producer.push(element.clone()).is_err());
        }
    }

    #[test]
    fn an_element_that_is_read_in_its_slot_has_one_owner_even_in_a_panic() {
        let element = StdArc::new(());
        let (mut producer, mut consumer) = channel(1);
        for keeps in [true, false] {
            for panics in [true, false] {
                // SAFETY: the element is written.
                assert!(unsafe { producer.push_with(|slot: *mut StdArc<()>| slot.write(element.clone())) }.is_ok());
                // SAFETY: as above, were it called.
                assert!(unsafe { producer.push_with(|_| panic!("there is no room")) }.is_err());
                let popped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    consumer.pop_with(|element| {
                        let kept = keeps.then(|| element.into_inner());
                        assert!(!panics, "as intended");
                        kept
                    })
                }));
                assert_eq!(popped.is_err(), panics);
                let kept = popped.ok().flatten().flatten();
                assert_eq!(StdArc::strong_count(&element), 1 + usize::from(kept.is_some()));
                assert!(producer.has_room() && consumer.pop_with(|_| ()).is_none());
            }
        }
    }

    #[test]
    fn values_arrive_in_order_between_threads() {
        let count = if cfg!(miri) { 200 } else { 200_000 };
        for capacity in [1, 2, 64] {
            let (mut producer, mut consumer) = channel(capacity);
            let sender = thread::spawn(move || {
                for number in 0..count {
                    let mut element = Box::new(number);
                    while let Err(back) = producer.push(element) {
                        element = back;
                        thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < count {
                match consumer.pop() {
                    Some(number) => {
                        assert_eq!(*number, expected);
                        expected += 1;
                    }
                    None => thread::yield_now(),
                }
            }
            sender.join().unwrap();
            assert!(consumer.pop().is_none() && consumer.is_closed());
        }
    }

    #[test]
    fn each_value_is_dropped_once_whenever_the_consumer_goes() {
        for round in 0..if cfg!(miri) { 20 } else { 2000 } {
            let element = StdArc::new(());
            let (mut producer, mut consumer) = channel(2);
            let pushed = element.clone();
            let sender = thread::spawn(move || while !producer.is_closed() && producer.push(pushed.clone()).is_ok() {});
            for _ in 0..round % 5 {
                consumer.pop();
            }
            drop(consumer);
            sender.join().unwrap();
            assert_eq!(StdArc::strong_count(&element), 1);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 10 } else { 500 }, failure_persistence: None, ..Default::default() })]
        #[test]
        fn it_is_a_bounded_queue(
            exponent in 0_u32..4,
            pushes in prop::collection::vec(any::<bool>(), 0..if cfg!(miri) { 40 } else { 200 }),
        ) {
            let capacity = 1 << exponent;
            let (mut producer, mut consumer) = channel(capacity);
            prop_assert_eq!(producer.capacity(), capacity);
            let (mut model, mut next) = (VecDeque::new(), 0);
            for push in pushes {
                prop_assert_eq!(producer.has_room(), model.len() < capacity);
                prop_assert_eq!(consumer.has_next(), !model.is_empty());
                if push {
                    next += 1;
                    let accepted = producer.push(next);
                    prop_assert_eq!(accepted, if model.len() < capacity { Ok(()) } else { Err(next) });
                    accepted.into_iter().for_each(|()| model.push_back(next));
                } else {
                    prop_assert_eq!(consumer.pop(), model.pop_front());
                }
            }
        }
    }

    #[test]
    fn elements_may_borrow_and_own() {
        let text = String::from("borrowed");
        let (mut producer, mut consumer) = channel::<(&str, Vec<u8>)>(2);
        producer.push((&text, vec![1, 2])).unwrap();
        assert_eq!(consumer.pop(), Some(("borrowed", vec![1, 2])));
    }
}
