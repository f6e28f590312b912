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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Send { lane: usize, bytes: u64 },
        GiveUp { lane: usize },
        Answer { lane: usize, at: usize },
        Grant { lane: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let lane = 0..3_usize;
        prop_oneof![
            4 => (lane.clone(), 1..60_u64).prop_map(|(lane, bytes)| Step::Send { lane, bytes }),
            1 => lane.clone().prop_map(|lane| Step::GiveUp { lane }),
            3 => (lane.clone(), any::<usize>()).prop_map(|(lane, at)| Step::Answer { lane, at }),
            2 => lane.prop_map(|lane| Step::Grant { lane }),
        ]
    }

    const WINDOWS: [u64; 3] = [100, 70, 130];

    /// One lane on both sides; those with lengths known before, and in the order in which they were sent.
    struct Both {
        outgoing: Outgoing,
        incoming: Incoming,
        open: Vec<u64>,
        /// Grants on their way.
        grants: std::collections::VecDeque<u64>,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// A lane is stalled while its requests are not answered or its grants are on their way, and the others are not.
        #[test]
        fn lanes_do_not_see_one_another(steps in proptest::collection::vec(step(), 1..120)) {
            let lanes = WINDOWS.map(|window| {
                let outgoing = Outgoing::default();
                outgoing.grant(window);
                Both { outgoing, incoming: Incoming::new(window, window / 4), open: Vec::new(), grants: Default::default() }
            });
            let mut lanes = Vec::from(lanes);
            for step in steps {
                let before: Vec<u64> = lanes.iter().map(|lane| lane.outgoing.available()).collect();
                let of = match step {
                    Step::Send { lane: at, bytes } => {
                        let lane = &mut lanes[at];
                        let is_open: u64 = lane.open.iter().sum();
                        if lane.outgoing.available() >= bytes {
                            lane.outgoing.add(bytes);
                            prop_assert!(lane.incoming.reserve(bytes), "who sees credit has it");
                            lane.open.push(bytes);
                        } else {
                            // What is missing is open, on its way back, or not worth a frame yet.
                            let back = lane.grants.len() as u64 * WINDOWS[at] + WINDOWS[at] / 4;
                            prop_assert!(is_open + bytes + back > WINDOWS[at]);
                        }
                        at
                    }
                    Step::GiveUp { lane: at } => {
                        let lane = &mut lanes[at];
                        if let Some(bytes) = lane.open.pop() {
                            lane.outgoing.take_back(bytes);
                            lane.incoming.take_back(bytes);
                        }
                        at
                    }
                    Step::Answer { lane: at, at: which } => {
                        let lane = &mut lanes[at];
                        if !lane.open.is_empty() {
                            let bytes = lane.open.remove(which % lane.open.len());
                            lane.grants.extend(lane.incoming.release(bytes));
                        }
                        at
                    }
                    Step::Grant { lane: at } => {
                        let lane = &mut lanes[at];
                        lane.grants.pop_front().into_iter().for_each(|grant| lane.outgoing.grant(grant));
                        at
                    }
                };
                for (at, lane) in lanes.iter().enumerate() {
                    let open = lane.open.iter().sum::<u64>();
                    prop_assert_eq!(lane.incoming.open(), open);
                    prop_assert!(open <= WINDOWS[at], "lane {} has {} open", at, open);
                    prop_assert!(at == of || lane.outgoing.available() == before[at], "a lane moved another");
                }
            }
            // Nothing is lost: with everything answered and every grant delivered, all but a step may be sent again.
            for (at, lane) in lanes.iter_mut().enumerate() {
                while let Some(bytes) = lane.open.pop() {
                    lane.grants.extend(lane.incoming.release(bytes));
                }
                lane.grants.drain(..).for_each(|grant| lane.outgoing.grant(grant));
                prop_assert!(lane.outgoing.available() > WINDOWS[at] - WINDOWS[at] / 4);
            }
        }
    }

    #[test]
    fn who_sends_without_credit_is_found_out() {
        let lane = Incoming::new(100, 25);
        assert!(!lane.reserve(101));
        assert!(lane.reserve(100));
        assert!(!lane.reserve(1));
        assert_eq!(lane.release(24), None, "too little for a frame");
        assert!(!lane.reserve(24), "what was not announced is not granted");
        assert_eq!(lane.release(1), Some(125));
        assert!(lane.reserve(25));
    }
}
