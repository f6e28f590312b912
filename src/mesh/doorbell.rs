//! Wakes a core that sleeps.
//!
//! Called by every thread that hands work to a core, and by the core's loop. Waking a thread costs its sender
//! microseconds, so nobody rings for a core that is awake, and a sleep is ended by one ring, however many send.
//!
//! The protocol (each step matters; the model in `tests/mesh_loom.rs` fails if one is left out):
//!
//! | consumer | sender, once per turn |
//! |---|---|
//! | [`Doorbell::announce_sleep`] | push to inboxes |
//! | look into **all** inboxes again | [`Doorbell::ring_if_sleeping`] |
//! | work found: [`Doorbell::cancel_sleep`], go on | |
//! | else park until the bell, then `cancel_sleep` | |
//!
//! Why no wake-up is lost: between writing the announcement and reading the inboxes the consumer has a sequentially
//! consistent fence, and so has the sender between writing an inbox and reading the announcement. One of the two
//! fences comes first: either the consumer's second look sees the element, or the sender sees the announcement and
//! rings. The bell must remember a ring that comes before the consumer waits for it (an eventfd does).

use super::sync::{AtomicBool, Ordering, fence};
use core::{fmt, sync::atomic::AtomicU64};

/// What wakes the parked thread. The shell implements it, by writing to the core's eventfd.
pub trait Bell: Send + Sync {
    /// Ends the present or the next park of the core. Called on the thread of the sender; must not block or panic.
    fn ring(&self);
}

/// The announcement of one core that it sleeps, and the bell that wakes it.
///
/// The type of the bell is erased: it is only called when a core has to be woken, which costs a thousand times more,
/// and so the senders need not name it.
// Senders read `sleeping` each turn, so it shares its lines with nothing that changes while the core is awake.
#[repr(align(128))]
pub struct Doorbell {
    sleeping: AtomicBool,
    /// A statistic that orders nothing, hence always the plain atomic.
    rings: AtomicU64,
    bell: Box<dyn Bell>,
}

impl Doorbell {
    /// The doorbell of a core that is awake.
    #[must_use]
    pub fn new(bell: impl Bell + 'static) -> Self {
        Doorbell { sleeping: AtomicBool::new(false), rings: AtomicU64::new(0), bell: Box::new(bell) }
    }

    /// Consumer: says that it is about to sleep. It has to look into all its inboxes after this and before it parks.
    #[inline]
    pub fn announce_sleep(&self) {
        // A swap like all other changes of it, so that these are one chain in which each knows what went before.
        self.sleeping.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Consumer: says that it is awake again, because it found work or because its park has ended. Tells whether
    /// someone has rung, or is about to, since the announcement: then the bell may end one later park for nothing.
    #[inline]
    pub fn cancel_sleep(&self) -> bool {
        !self.sleeping.swap(false, Ordering::AcqRel)
    }

    /// Sender: wakes the consumer if it sleeps and nobody else has woken it. Call it once after the pushes of a turn.
    /// Tells whether it rang.
    #[inline]
    pub fn ring_if_sleeping(&self) -> bool {
        fence(Ordering::SeqCst);
        if !self.sleeping.load(Ordering::Relaxed) {
            return false;
        }
        self.ring_once()
    }

    #[cold]
    fn ring_once(&self) -> bool {
        // Only the one that ends the announcement rings.
        if !self.sleeping.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.rings.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        self.bell.ring();
        true
    }

    /// How often the bell was rung so far.
    #[must_use]
    pub fn rings(&self) -> u64 {
        self.rings.load(core::sync::atomic::Ordering::Relaxed)
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("rings", &self.rings()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mesh::sync::Arc;

    struct Counting(Arc<AtomicU64>);
    impl Bell for Counting {
        fn ring(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn doorbell() -> (Doorbell, Arc<AtomicU64>) {
        let rung = Arc::new(AtomicU64::new(0));
        (Doorbell::new(Counting(rung.clone())), rung)
    }

    #[test]
    fn a_core_that_is_awake_is_not_rung() {
        let (doorbell, rung) = doorbell();
        assert!(!doorbell.ring_if_sleeping());
        doorbell.announce_sleep();
        assert!(!doorbell.cancel_sleep());
        assert!(!doorbell.ring_if_sleeping());
        assert_eq!((rung.load(Ordering::Relaxed), doorbell.rings()), (0, 0));
    }

    #[test]
    fn one_sleep_is_ended_by_one_ring() {
        let (doorbell, rung) = doorbell();
        for sleeps in 1..=3 {
            doorbell.announce_sleep();
            assert!(doorbell.ring_if_sleeping());
            assert!(!doorbell.ring_if_sleeping());
            assert!(doorbell.cancel_sleep());
            assert_eq!((rung.load(Ordering::Relaxed), doorbell.rings()), (sleeps, sleeps));
        }
    }
}
