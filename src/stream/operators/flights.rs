//! Futures that a stage has under way.
//!
//! Each has a place whose memory and waker are reused, so that a future costs no allocation; a wake-up names the place,
//! so that only what was woken is polled. Invariants: a place is in the queue of woken ones at most once, so the queue
//! cannot overflow; a wake-up of a future that has ended finds the place empty, or polls another future once too often.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use crossbeam_queue::ArrayQueue;

/// Most futures of one stage at a time, whatever is asked for: each holds memory of a core.
pub const PARALLELISM_MAX: usize = 1 << 16;

struct Woken {
    places: ArrayQueue<u32>,
    stage: Waker,
}

struct PlaceWake {
    place: u32,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for PlaceWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Cleared before the poll, so a wake-up that finds it set is seen by that poll.
        if !self.queued.swap(true, Ordering::AcqRel) {
            let _ = self.woken.places.push(self.place);
            self.woken.stage.wake_by_ref();
        }
    }
}

struct Place<F> {
    future: Pin<Box<Option<F>>>,
    wake: Arc<PlaceWake>,
    waker: Waker,
}

/// The futures of a stage.
pub(crate) struct Flights<F> {
    places: Vec<Place<F>>,
    free: Vec<u32>,
    woken: Arc<Woken>,
}

impl<F: Future> Flights<F> {
    /// Room for so many; `stage` is woken when one of them is.
    pub fn new(parallelism: usize, stage: Waker) -> Self {
        let places = ArrayQueue::new(parallelism.clamp(1, PARALLELISM_MAX));
        Flights { places: Vec::new(), free: Vec::new(), woken: Arc::new(Woken { places, stage }) }
    }

    /// Takes a future, which has to be polled. There must be room.
    pub fn launch(&mut self, future: F) -> usize {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => {
                let woken = Arc::clone(&self.woken);
                let place = self.places.len() as u32;
                let wake = Arc::new(PlaceWake { place, queued: AtomicBool::new(false), woken });
                let waker = Waker::from(Arc::clone(&wake));
                self.places.push(Place { future: Box::pin(None), wake, waker });
                place as usize
            }
        };
        self.places[place].future.as_mut().set(Some(future));
        place
    }

    /// Polls what is at a place. After `Ready` the place is free.
    pub fn poll(&mut self, place: usize) -> Poll<F::Output> {
        let entry = &mut self.places[place];
        entry.wake.queued.swap(false, Ordering::AcqRel);
        let Some(future) = entry.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let poll = future.poll(&mut TaskContext::from_waker(&entry.waker));
        if poll.is_ready() {
            self.discard(place);
        }
        poll
    }

    /// Drops what is at a place.
    pub fn discard(&mut self, place: usize) {
        let mut future = self.places[place].future.as_mut();
        if future.is_some() {
            future.set(None);
            self.free.push(place as u32);
        }
    }

    /// How many places wait to be polled.
    pub fn woken(&self) -> usize {
        self.woken.places.len()
    }

    /// The next place that was woken.
    pub fn next_woken(&self) -> Option<usize> {
        self.woken.places.pop().map(|place| place as usize)
    }
}

/// One future at a time, in memory that is reused.
pub(crate) struct Flight<F> {
    future: Pin<Box<Option<F>>>,
    waker: Waker,
}

impl<F: Future> Flight<F> {
    pub fn new(waker: Waker) -> Self {
        Flight { future: Box::pin(None), waker }
    }

    pub fn is_flying(&self) -> bool {
        self.future.is_some()
    }

    /// Replaces the future.
    pub fn launch(&mut self, future: F) {
        self.future.as_mut().set(Some(future));
    }

    /// Polls; `Pending` if there is nothing, too.
    pub fn poll(&mut self) -> Poll<F::Output> {
        let Some(future) = self.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let poll = future.poll(&mut TaskContext::from_waker(&self.waker));
        if poll.is_ready() {
            self.discard();
        }
        poll
    }

    /// Drops the future.
    pub fn discard(&mut self) {
        self.future.as_mut().set(None);
    }
}
