//! The credit of a lane: how many bytes of requests one side may have open at the other.
//!
//! A [`Link`](super::link::Link) has an [`Outgoing`] and an [`Incoming`] for each lane. Both are sums that only grow, but
//! for bodies that are given up before they are complete, so a grant is one number and may come twice. Invariants: what
//! is open at the receiver is at most its window (for [`Incoming::begin`]: and one request); no lane looks at another.

use core::cell::Cell;

/// Number of lanes.
pub(super) const LANES: usize = 4;

/// What this side sends on a lane.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    sent: Cell<u64>,
    /// Up to which sum it may send.
    credit: Cell<u64>,
}

impl Outgoing {
    /// Whether a request may begin whose length is not known yet. It may exceed the credit by that length.
    #[inline]
    pub fn may_begin(&self) -> bool {
        self.sent.get() < self.credit.get()
    }

    /// Bytes that may be sent now.
    pub fn available(&self) -> u64 {
        self.credit.get().saturating_sub(self.sent.get())
    }

    /// A request was sent, or is going to be.
    #[inline]
    pub fn add(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// A request is not sent after all, or not to its end.
    pub fn take_back(&self, bytes: u64) {
        self.sent.set(self.sent.get() - bytes);
    }

    /// The peer grants bytes up to a sum.
    pub fn grant(&self, sum: u64) {
        self.credit.set(self.credit.get().max(sum));
    }
}

/// What the peer sends on a lane.
#[derive(Debug)]
pub(super) struct Incoming {
    window: u64,
    /// How much there must be to grant before it is announced.
    step: u64,
    taken: Cell<u64>,
    released: Cell<u64>,
    granted: Cell<u64>,
}

impl Incoming {
    /// A lane on which `window` bytes may be open. New credit is announced in steps of at least `step` bytes.
    pub const fn new(window: u64, step: u64) -> Incoming {
        Incoming { window, step, taken: Cell::new(0), released: Cell::new(0), granted: Cell::new(window) }
    }

    /// A request came whose sender did not know its length when it looked at the credit. False if there was none.
    #[inline]
    #[must_use]
    pub fn begin(&self, bytes: u64) -> bool {
        let within = self.taken.get() <= self.granted.get();
        self.taken.set(self.taken.get() + bytes);
        within
    }

    /// A request is coming whose sender knows its length. False if it has not so much credit; nothing is taken then.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> bool {
        let after = self.taken.get() + bytes;
        let within = after <= self.granted.get();
        if within {
            self.taken.set(after);
        }
        within
    }

    /// The peer does not send the rest of a request for which bytes were reserved.
    pub fn take_back(&self, bytes: u64) {
        self.taken.set(self.taken.get() - bytes);
    }

    /// A request is answered: the new grant, if it is time to announce one.
    pub fn release(&self, bytes: u64) -> Option<u64> {
        self.released.set((self.released.get() + bytes).min(self.taken.get()));
        let grant = self.released.get() + self.window;
        if grant < self.granted.get() + self.step {
            return None;
        }
        self.granted.set(grant);
        Some(grant)
    }

    /// One of so many requests is answered whose lengths were not kept: it releases its part of what is open, the last one
    /// all of it.
    #[inline]
    pub fn release_one_of(&self, requests: u32) -> Option<u64> {
        self.release(self.open() / u64::from(requests))
    }

    /// Bytes of requests that are not answered.
    #[inline]
    pub fn open(&self) -> u64 {
        self.taken.get() - self.released.get()
    }

    /// Bytes that may be open.
    #[inline]
    pub fn window(&self) -> u64 {
        self.window
    }
}
