//! The queue of one wire between two islands, which may run on two cores.
//!
//! Bounded and lock-free, with one producer and one consumer, used by the two stages of a boundary. Elements become
//! visible in batches ([`Producer::publish`]) and places become free in batches ([`Consumer::release`]), so the ends
//! exchange a cache line for a batch and not for each element. Demand is the number of free places; there is no message.
//!
//! Ends. Completion lets the consumer drain what was published. A failure is seen before the elements that were
//! published before it. A cancellation goes the other way, with its cause. An end that is dropped without a word is
//! `Gone`. Each of these is said once, after which its side does not touch the slots any more.
//!
//! Invariants. Positions only grow. Slots from `head` to `tail` hold elements that the consumer may take; those from
//! `tail` to the producer's own position hold elements that it has not published; the others are empty. The consumer
//! may be ahead of `head` by what it has not released, until it goes: then `head` is where it stopped. So each element
//! is taken, or dropped by the end that held it, or dropped with the ring: once.
//!
//! Waiting. A side that finds nothing to do registers a waker once, sets its flag, has a sequentially consistent fence,
//! and looks again; the other side publishes (or releases), has a fence, and reads the flag. One of the two fences comes
//! first, so no wake-up is lost. `tests/stream_loom.rs` checks this and the drops in all interleavings of small cases.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::task::Waker;

use crate::mesh::sync::{Arc, AtomicU64, Ordering, UnsafeCell, fence, newest};
use crate::stream::error::{Cancellation, StreamError};

/// Most places of a ring: as many as an input buffer may have.
pub const CAPACITY_MAX: usize = 1 << 16;

/// The side is awake and looks by itself.
const BUSY: u64 = 0;
/// The consumer has nothing to do and looks again and again: it is worth giving it an element alone.
const IDLE: u64 = 1;
/// The side has stopped looking and is to be woken.
const WAITS: u64 = 2;

const OPEN: u64 = 0;
/// Completed by the producer, cancelled by the consumer.
const DONE: u64 = 1;
const FAILED: u64 = 2;
const GONE: u64 = 3;

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Padded<T>(T);

/// What one side says about itself. The other side only reads it, apart from taking the flag back when it acts on it.
struct Side {
    /// [`BUSY`], [`IDLE`] or [`WAITS`].
    mood: AtomicU64,
    /// Whether `waker` is set.
    attached: AtomicU64,
    /// Written once, before `attached`.
    waker: UnsafeCell<Option<Waker>>,
}

impl Side {
    fn new() -> Side {
        Side { mood: AtomicU64::new(BUSY), attached: AtomicU64::new(0), waker: UnsafeCell::new(None) }
    }

    /// The side's own: whom to wake. Only the first call counts.
    fn attach(&self, waker: Waker) {
        if self.attached.load(Ordering::Relaxed) != 0 {
            return;
        }
        // SAFETY: the other side reads the cell only after it has read `attached` or a mood that is set later; both
        // are written after this. Only this side writes, from one thread at a time, and only once.
        self.waker.with_mut(|cell| unsafe { *cell = Some(waker) });
        self.attached.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The side's own: says how it is, before it looks once more.
    fn announce(&self, mood: u64) {
        self.mood.swap(mood, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The other side, after it has changed something that this side may wait for.
    #[inline]
    fn rouse(&self) {
        fence(Ordering::SeqCst);
        if self.mood.load(Ordering::Relaxed) != BUSY {
            self.rouse_slowly();
        }
    }

    #[cold]
    fn rouse_slowly(&self) {
        // Only a side with a waker waits.
        if self.mood.swap(BUSY, Ordering::AcqRel) == WAITS {
            self.wake();
        }
    }

    /// The other side, after it has said that it ends: wakes in any mood.
    fn rouse_for_end(&self) {
        fence(Ordering::SeqCst);
        if self.attached.load(Ordering::Acquire) != 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        self.waker.with(|cell| {
            // SAFETY: the cell was written before what the caller has read (with acquire), and is not written again.
            if let Some(waker) = unsafe { &*cell } {
                waker.wake_by_ref();
            }
        });
    }
}

struct Ring<T> {
    /// Up to here elements are published. Written by the producer.
    tail: Padded<AtomicU64>,
    /// Up to here places are free again. Written by the consumer.
    head: Padded<AtomicU64>,
    consumer: Padded<Side>,
    producer: Padded<Side>,
    /// What the producer has said: written once, with `failure` before it.
    end: Padded<AtomicU64>,
    /// What the consumer has said: written once, with `cause` before it.
    cancelled: AtomicU64,
    failure: UnsafeCell<Option<StreamError>>,
    cause: UnsafeCell<Option<Cancellation>>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: values of `T`, failures and wakers go to another thread than the one that put them in, and all of them are
// Send. Who may touch a slot or cell, and when, follows from the positions and states, as the module says.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; no `&T` is ever shared. `&StreamError`, `&Cancellation` and `&Waker` are, and these are Sync.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        let index = position as usize & (self.slots.len() - 1);
        // SAFETY: the number of slots is a power of two and not 0, so the index is below it.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// # Safety
    /// The slot of this position holds an element, no other thread may touch it, and the caller counts it as empty from
    /// now on.
    #[inline(always)]
    unsafe fn read(&self, position: u64) -> T {
        // SAFETY: by the contract above.
        self.slot(position).with(|slot| unsafe { (*slot).assume_init_read() })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (mut head, tail) = (newest(&mut self.head.0), newest(&mut self.tail.0));
        while head != tail {
            // SAFETY: both ends are gone (`&mut self`), so `head` is where the consumer stopped and these slots hold
            // published elements that nobody took. What was not published the producer has dropped.
            drop(unsafe { self.read(head) });
            head += 1;
        }
    }
}

/// The end that gives elements.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    /// Up to here elements are written.
    position: u64,
    published: u64,
    /// The last `head` that was read.
    head: u64,
    ended: bool,
}

/// The end that takes elements.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    /// Up to here elements are taken.
    position: u64,
    released: u64,
    /// The last `tail` that was read.
    tail: u64,
    /// So many places are released at once.
    batch: u64,
    ended: bool,
}

/// What the producer has said.
#[derive(Clone, Debug)]
pub enum End {
    /// Nothing: there may be more elements.
    Open,
    /// What is published is all.
    Completed,
    /// It failed. What is in the ring does not count any more.
    Failed(StreamError),
    /// It went without a word.
    Gone,
}

/// A ring with at least so many places: the next power of two, up to [`CAPACITY_MAX`].
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.clamp(1, CAPACITY_MAX).next_power_of_two();
    let ring = Arc::new(Ring {
        tail: Padded(AtomicU64::new(0)),
        head: Padded(AtomicU64::new(0)),
        consumer: Padded(Side::new()),
        producer: Padded(Side::new()),
        end: Padded(AtomicU64::new(OPEN)),
        cancelled: AtomicU64::new(OPEN),
        failure: UnsafeCell::new(None),
        cause: UnsafeCell::new(None),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    let producer = Producer { ring: ring.clone(), position: 0, published: 0, head: 0, ended: false };
    let batch = (capacity as u64 / 2).max(1);
    (producer, Consumer { ring, position: 0, released: 0, tail: 0, batch, ended: false })
}

impl<T> Producer<T> {
    /// Whom the consumer wakes: at a release if this end waits, and when it ends. Only the first call counts.
    pub fn attach(&mut self, waker: Waker) {
        self.ring.producer.0.attach(waker);
    }

    /// How many elements the ring holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Whether there is a free place: the next [`write`](Producer::write) is accepted.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        let capacity = self.ring.slots.len() as u64;
        if self.position - self.head < capacity {
            return true;
        }
        // Acquire: the consumer has taken the elements before it released their places.
        self.head = self.ring.head.0.load(Ordering::Acquire);
        self.position - self.head < capacity
    }

    /// Appends an element that the consumer cannot see before [`publish`](Producer::publish).
    ///
    /// # Errors
    /// Gives the element back if there is no free place, or after the end.
    #[inline]
    pub fn write(&mut self, element: T) -> Result<(), T> {
        if self.ended || !self.has_room() {
            return Err(element);
        }
        // SAFETY: the place is free: the consumer has released it (or it was never used), it holds no element, and the
        // consumer does not touch it before it is published.
        self.ring.slot(self.position).with_mut(|slot| unsafe { (*slot).write(element) });
        self.position += 1;
        Ok(())
    }

    /// How many elements are written and not published.
    #[inline]
    #[must_use]
    pub fn unpublished(&self) -> u64 {
        self.position - self.published
    }

    /// Whether the consumer has nothing to do: then an element should not wait for others. One load.
    #[inline]
    #[must_use]
    pub fn is_consumer_idle(&self) -> bool {
        self.ring.consumer.0.mood.load(Ordering::Relaxed) != BUSY
    }

    /// Shows the consumer what is written, and wakes it if it waits.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.position {
            self.show();
            self.ring.consumer.0.rouse();
        }
    }

    #[inline]
    fn show(&mut self) {
        self.published = self.position;
        self.ring.tail.0.store(self.position, Ordering::Release);
    }

    /// Says that it waits for a free place or for the end of the consumer: the waker is woken then. False if there is
    /// one already. Everything must be published.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        self.ring.producer.0.announce(WAITS);
        if self.has_room() || self.ring.cancelled.load(Ordering::Acquire) != OPEN {
            self.ring.producer.0.announce(BUSY);
            return false;
        }
        true
    }

    /// Why the consumer takes no more, if it does not. `Some(None)` if it went without a word.
    #[inline]
    #[must_use]
    pub fn cancellation(&self) -> Option<Option<Cancellation>> {
        // Acquire: the cause was written before.
        match self.ring.cancelled.load(Ordering::Acquire) {
            OPEN => None,
            // SAFETY: written before the state, never again.
            DONE => Some(self.ring.cause.with(|cause| unsafe { (*cause).clone() })),
            _ => Some(None),
        }
    }

    /// Publishes everything and says that this is all.
    pub fn complete(&mut self) {
        if !self.ended {
            self.show();
            self.end(DONE);
        }
    }

    /// Says that it failed: the consumer learns it before all elements that it has not taken. What is not published is
    /// dropped.
    pub fn fail(&mut self, error: StreamError) {
        if !self.ended {
            // SAFETY: the consumer reads it only after the state that is set below; `ended` says that this happens once.
            self.ring.failure.with_mut(|failure| unsafe { *failure = Some(error) });
            self.end(FAILED);
            self.drop_unpublished();
        }
    }

    fn end(&mut self, state: u64) {
        self.ended = true;
        self.ring.end.0.store(state, Ordering::Release);
        if self.ring.cancelled.load(Ordering::Acquire) == OPEN {
            self.ring.consumer.0.rouse_for_end();
        }
    }

    fn drop_unpublished(&mut self) {
        while self.position != self.published {
            // Counted as empty before its drop runs, which may panic.
            self.position -= 1;
            // SAFETY: written by this end and not published, so nobody else knows of it.
            drop(unsafe { self.ring.read(self.position) });
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(GONE);
        }
        self.drop_unpublished();
    }
}

impl<T> Consumer<T> {
    /// Whom the producer wakes: at a publication if this end waits, and when it ends. Only the first call counts.
    pub fn attach(&mut self, waker: Waker) {
        self.ring.consumer.0.attach(waker);
    }

    /// Whether the producer has not ended yet.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.ring.end.0.load(Ordering::Acquire) == OPEN
    }

    /// Whether the producer has ended, and how. Read it before [`take`](Consumer::take): a completed ring that then gives
    /// nothing is finished.
    #[inline]
    #[must_use]
    pub fn end(&self) -> End {
        // Acquire: what was published before, and the failure, are visible.
        match self.ring.end.0.load(Ordering::Acquire) {
            OPEN => End::Open,
            DONE => End::Completed,
            FAILED => self.failure(),
            _ => End::Gone,
        }
    }

    #[cold]
    fn failure(&self) -> End {
        // SAFETY: written before the state, never again.
        let failure = self.ring.failure.with(|failure| unsafe { (*failure).clone() });
        failure.map_or(End::Gone, End::Failed)
    }

    /// Whether [`take`](Consumer::take) would give an element.
    #[inline]
    #[must_use]
    pub fn has_next(&mut self) -> bool {
        if self.position == self.tail && !self.ended {
            // Acquire: the elements were written before they were published.
            self.tail = self.ring.tail.0.load(Ordering::Acquire);
        }
        self.position != self.tail
    }

    /// Takes the oldest element that is published. Its place is free after the next release, which happens by itself
    /// when half of the ring was taken.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: published and not taken; the producer does not touch the slot before it is released.
        let element = unsafe { self.ring.read(self.position) };
        self.position += 1;
        if self.position - self.released >= self.batch {
            self.release();
        }
        Some(element)
    }

    /// Frees the places of what was taken, and wakes the producer if it waits.
    #[inline]
    pub fn release(&mut self) {
        if self.released != self.position {
            self.released = self.position;
            self.ring.head.0.store(self.position, Ordering::Release);
            self.ring.producer.0.rouse();
        }
    }

    /// Says that it has nothing to do, but still looks: the producer need not gather a batch.
    pub fn announce_idle(&mut self) {
        self.ring.consumer.0.mood.swap(IDLE, Ordering::AcqRel);
    }

    /// Says that it waits for elements or for the end of the producer: the waker is woken then. False if there is
    /// something already. Everything that was taken must be released.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        self.ring.consumer.0.announce(WAITS);
        if self.has_next() || self.ring.end.0.load(Ordering::Acquire) != OPEN {
            self.ring.consumer.0.announce(BUSY);
            return false;
        }
        true
    }

    /// Says why it takes no more, and drops what is in the ring.
    pub fn cancel(&mut self, cause: Cancellation) {
        if !self.ended {
            // SAFETY: the producer reads it only after the state that is set next; `ended` says that this happens once.
            self.ring.cause.with_mut(|cell| unsafe { *cell = Some(cause) });
            self.close(DONE);
        }
    }

    fn close(&mut self, state: u64) {
        self.ring.cancelled.store(state, Ordering::Release);
        if self.ring.end.0.load(Ordering::Acquire) == OPEN {
            self.ring.producer.0.rouse_for_end();
        }
        self.tail = self.ring.tail.0.load(Ordering::Acquire);
        self.ended = true;
        // From here on `head` is where this end stands: what is not taken is dropped with the ring.
        self.ring.head.0.store(self.position, Ordering::Release);
        while self.position != self.tail {
            // SAFETY: published and not taken. It counts as taken before its drop runs, which may panic.
            let element = unsafe { self.ring.read(self.position) };
            self.position += 1;
            self.ring.head.0.store(self.position, Ordering::Release);
            drop(element);
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.close(GONE);
        }
    }
}
