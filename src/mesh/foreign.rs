//! The inbox of a core for threads that are no cores: client handles, file work, signal handlers, tests.
//!
//! Called by those threads (`try_push`) and by the core's loop. Slower than the queues between cores, as it has many
//! senders, and each send looks at the doorbell at once, as such a thread has no turn whose end would do it.
//!
//! Invariants: bounded; an element that was accepted is popped, or dropped at the latest when the senders that
//! overlapped with `close` have returned; a push that begins after `close` fails.

use super::{
    doorbell::Doorbell,
    sync::{Arc, AtomicBool, Ordering},
};
use core::fmt;
use crossbeam_queue::ArrayQueue;

/// Elements from any thread for one core. Share it in an [`Arc`].
pub struct ForeignInbox<T> {
    queue: ArrayQueue<T>,
    closed: AtomicBool,
    doorbell: Arc<Doorbell>,
}

impl<T> ForeignInbox<T> {
    /// An inbox with room for `capacity` elements (at least one) of the core that `doorbell` wakes.
    #[must_use]
    pub fn new(capacity: usize, doorbell: Arc<Doorbell>) -> Self {
        ForeignInbox { queue: ArrayQueue::new(capacity.max(1)), closed: AtomicBool::new(false), doorbell }
    }

    /// Hands an element to the core, and wakes the core if it sleeps. An accepted element is dropped without being
    /// popped if the core stops at this moment.
    ///
    /// # Errors
    /// Gives the element back if the inbox is full (try again later), or [closed](ForeignInbox::is_closed) (give up).
    pub fn try_push(&self, element: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(element);
        }
        self.queue.push(element)?;
        self.doorbell.ring_if_sleeping();
        // The core may have closed and emptied the inbox before our element was in it. The fence of the doorbell and
        // the one of `close` leave two cases: we see the mark, or the core, which pops after it, sees the element.
        if self.is_closed() {
            while self.queue.pop().is_some() {}
        }
        Ok(())
    }

    /// Core: takes the oldest element, if there is one.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Core: whether nothing waits. Part of the second look before it parks.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Core: accepts nothing any more. What was accepted before can still be popped; an element whose push overlaps
    /// with this call is popped or dropped.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        super::sync::fence(Ordering::SeqCst);
    }

    /// Whether the core has stopped taking elements, for good.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for ForeignInbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignInbox").field("waiting", &self.queue.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mesh::Bell;
    use std::{sync::Arc as StdArc, thread};

    struct Silent;
    impl Bell for Silent {
        fn ring(&self) {}
    }
    fn inbox<T>(capacity: usize) -> (Arc<ForeignInbox<T>>, Arc<Doorbell>) {
        let doorbell = Arc::new(Doorbell::new(Silent));
        (Arc::new(ForeignInbox::new(capacity, doorbell.clone())), doorbell)
    }

    #[test]
    fn a_full_inbox_gives_the_element_back() {
        let (inbox, _) = inbox(1);
        assert!(inbox.is_empty());
        assert_eq!(inbox.try_push('a'), Ok(()));
        assert_eq!(inbox.try_push('b'), Err('b'));
        assert_eq!((inbox.pop(), inbox.pop()), (Some('a'), None));
        assert_eq!(inbox.try_push('b'), Ok(()));
    }

    #[test]
    fn the_first_push_to_a_sleeping_core_rings_at_once() {
        let (inbox, doorbell) = inbox(4);
        inbox.try_push('a').unwrap();
        assert_eq!(doorbell.rings(), 0);
        doorbell.announce_sleep();
        inbox.try_push('b').unwrap();
        inbox.try_push('c').unwrap();
        assert_eq!(doorbell.rings(), 1);
    }

    #[test]
    fn a_closed_inbox_takes_nothing_and_keeps_what_it_took() {
        let (inbox, _) = inbox(4);
        inbox.try_push('a').unwrap();
        inbox.close();
        assert!(inbox.is_closed());
        assert_eq!(inbox.try_push('b'), Err('b'));
        assert_eq!((inbox.pop(), inbox.pop()), (Some('a'), None));
    }

    #[test]
    fn no_element_stays_behind_when_the_core_stops_amid_pushes() {
        for _ in 0..if cfg!(miri) { 10 } else { 500 } {
            let (inbox, _) = inbox(2);
            let element = StdArc::new(());
            let senders = [(); 2].map(|()| {
                let (inbox, element) = (inbox.clone(), element.clone());
                thread::spawn(move || {
                    while !inbox.is_closed() {
                        drop(inbox.try_push(element.clone()));
                        thread::yield_now();
                    }
                })
            });
            thread::yield_now();
            inbox.close();
            while inbox.pop().is_some() {}
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert_eq!(StdArc::strong_count(&element), 1);
        }
    }
}
