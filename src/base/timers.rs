//! The timers of one core: a hierarchical wheel.
//!
//! Called by the engine, which tells it the time. Deadlines are rounded up to ticks of 65.536 µs, so a timer never
//! fires early and, if [`TimerWheel::pop_expired`] is called in time, less than a tick late.
//!
//! A tick number is eight digits of six bits. A timer lies in the level of the highest digit in which its tick differs
//! from the present one, in the slot of that digit. So all timers of a level are due before those of the levels above,
//! lower slots before higher ones, and the earliest slot is found with two bit scans. When the present reaches the
//! start of a slot, its timers go to the pending list as a whole; taken from there they fire, or are linked again,
//! some level below. Eight digits are all that a [`Nanos`] has: no deadline lies outside.
//!
//! Invariants: insert and cancel take constant time and allocate only when there are more timers than ever before;
//! each call of `pop_expired` does a bounded number of steps; an id is good for one timer only. The number of timers
//! is bounded by what waits for them: mailboxes, asks and entities have their own limits.

use crate::base::Nanos;

/// A tick is 2^16 ns: a twentieth of the shortest timeouts that users set, in milliseconds.
const TICK_BITS: u32 = 16;
/// Six bits, so that the occupancy of a level is one word.
const DIGIT_BITS: u32 = 6;
const SLOTS: u32 = 1 << DIGIT_BITS;
/// With the bits of the tick these make the 64 bits of a [`Nanos`].
const LEVELS: u32 = (u64::BITS - TICK_BITS) / DIGIT_BITS;
const LAST_TICK: u64 = u64::MAX >> TICK_BITS;
/// The nodes below this number are the heads of the slots' lists.
const WHEEL_HEADS: u32 = LEVELS * SLOTS;
/// The head of the list of timers that left their slot and have yet to fire or to be linked again.
const PENDING: u32 = WHEEL_HEADS;
const FIRST_TIMER: u32 = PENDING + 1;
/// End of the list of unused nodes.
const NONE: u32 = u32::MAX;
/// Timers that one call links again, and slots that it empties, before it hands back: about a microsecond.
const STEPS_PER_CALL: usize = 128;

/// Names a timer, for [`TimerWheel::cancel`]. Worthless once the timer has fired or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// A head of a list or a timer; in both cases a member of a circular list.
#[derive(Clone, Copy)]
struct Node<K> {
    /// When to fire: a tick number, or more than the last one for "never".
    tick: u64,
    next: u32,
    previous: u32,
    /// How many timers this node has been before.
    generation: u32,
    /// `None` in heads and in unused nodes.
    key: Option<K>,
}

/// Timers with a key each, which is what a timer that fires gives back.
pub struct TimerWheel<K> {
    nodes: Vec<Node<K>>,
    /// For each level, which slots have timers.
    occupied: [u64; LEVELS as usize],
    /// Which levels have timers.
    levels: u32,
    /// The present, as far as it was worked off. No occupied slot starts at or before it.
    now_tick: u64,
    unused: u32,
    length: usize,
}

impl<K: Copy> TimerWheel<K> {
    /// An empty wheel with memory for `capacity` timers; it grows when there are more.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut nodes = Vec::with_capacity(FIRST_TIMER as usize + capacity);
        let head = |index| Node { tick: 0, next: index, previous: index, generation: 0, key: None };
        nodes.extend((0..FIRST_TIMER).map(head));
        TimerWheel { nodes, occupied: [0; LEVELS as usize], levels: 0, now_tick: 0, unused: NONE, length: 0 }
    }

    /// Starts a timer. One whose deadline has passed fires at the next [`pop_expired`](TimerWheel::pop_expired); one
    /// with [`Nanos::NEVER`] never does.
    #[inline]
    pub fn insert(&mut self, deadline: Nanos, key: K) -> TimerId {
        let tick = deadline.0.div_ceil(1 << TICK_BITS);
        let index = self.unused;
        let index = if index == NONE { self.grow() } else { index };
        let node = &mut self.nodes[index as usize];
        self.unused = node.next;
        node.tick = tick;
        node.key = Some(key);
        let generation = node.generation;
        self.length += 1;
        self.link(index, tick);
        TimerId { index, generation }
    }

    /// Stops a timer and gives its key back; `None` if it has fired or was cancelled.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<K> {
        let node = self.nodes.get(id.index as usize)?;
        if node.generation != id.generation {
            return None;
        }
        node.key?;
        self.unlink(id.index);
        self.release(id.index)
    }

    /// The key of a timer whose deadline is at or before `now`: earlier ticks first, within a tick in the order of
    /// their insertion, except for timers that were inserted after their deadline. `None` means that there is no
    /// further one, or that this call has done enough: as long as [`next_deadline`](TimerWheel::next_deadline) is not
    /// after `now`, there is more to do, in this turn or in the next one.
    pub fn pop_expired(&mut self, now: Nanos) -> Option<K> {
        let now_tick = now.0 >> TICK_BITS;
        for _ in 0..STEPS_PER_CALL {
            let first = self.nodes[PENDING as usize].next;
            if first == PENDING {
                match self.earliest_slot() {
                    Some((head, start)) if start <= now_tick => {
                        debug_assert!(start > self.now_tick, "a slot of the past has timers");
                        self.now_tick = start;
                        self.move_to_pending(head);
                        continue;
                    }
                    _ => {
                        self.now_tick = self.now_tick.max(now_tick);
                        return None;
                    }
                }
            }
            self.unlink(first);
            let tick = self.nodes[first as usize].tick;
            if tick <= self.now_tick {
                return self.release(first);
            }
            self.link(first, tick);
        }
        None
    }

    /// When to call [`pop_expired`](TimerWheel::pop_expired) next; `None` if no timer will ever fire. Not after the
    /// tick at which the earliest timer fires, but maybe before it.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let tick = if self.nodes[PENDING as usize].next == PENDING { self.earliest_slot()?.1 } else { self.now_tick };
        Some(Nanos(tick << TICK_BITS))
    }

    /// How many timers are running, those that never fire included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no timer is running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The head and the first tick of the earliest slot with timers.
    #[inline]
    fn earliest_slot(&self) -> Option<(u32, u64)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let slot = self.occupied[level as usize].trailing_zeros();
        let shift = level * DIGIT_BITS;
        let higher_digits = self.now_tick >> shift >> DIGIT_BITS << DIGIT_BITS;
        Some((level * SLOTS + slot, (higher_digits | u64::from(slot)) << shift))
    }

    /// Puts a node that is in no list where its tick belongs.
    #[inline]
    fn link(&mut self, index: u32, tick: u64) {
        if tick <= self.now_tick {
            return self.append(PENDING, index);
        }
        if tick > LAST_TICK {
            // Never: a list of its own.
            let node = &mut self.nodes[index as usize];
            (node.next, node.previous) = (index, index);
            return;
        }
        let level = (tick ^ self.now_tick).ilog2() / DIGIT_BITS;
        let slot = (tick >> (level * DIGIT_BITS)) as u32 % SLOTS;
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
        self.append(level * SLOTS + slot, index);
    }

    #[inline]
    fn append(&mut self, head: u32, index: u32) {
        let last = core::mem::replace(&mut self.nodes[head as usize].previous, index);
        self.nodes[last as usize].next = index;
        let node = &mut self.nodes[index as usize];
        (node.next, node.previous) = (head, last);
    }

    /// Takes a node out of its list.
    #[inline]
    fn unlink(&mut self, index: u32) {
        let Node { next, previous, .. } = self.nodes[index as usize];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        // Only a head has itself on both sides of the last timer.
        if next == previous && next < WHEEL_HEADS {
            self.mark_empty(next);
        }
    }

    #[inline]
    fn mark_empty(&mut self, head: u32) {
        let (level, slot) = (head / SLOTS, head % SLOTS);
        let occupied = &mut self.occupied[level as usize];
        *occupied &= !(1 << slot);
        if *occupied == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Moves the whole list of a slot that has timers to the pending list, which is empty.
    fn move_to_pending(&mut self, head: u32) {
        let Node { next: first, previous: last, .. } = self.nodes[head as usize];
        self.nodes[first as usize].previous = PENDING;
        self.nodes[last as usize].next = PENDING;
        let pending = &mut self.nodes[PENDING as usize];
        (pending.next, pending.previous) = (first, last);
        let slot = &mut self.nodes[head as usize];
        (slot.next, slot.previous) = (head, head);
        self.mark_empty(head);
    }

    /// Ends a timer that is in no list any more: its node is unused, its id worthless.
    #[inline]
    fn release(&mut self, index: u32) -> Option<K> {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = self.unused;
        self.unused = index;
        self.length -= 1;
        node.key.take()
    }

    /// Makes one more unused node, the only one.
    #[cold]
    fn grow(&mut self) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(Node { tick: 0, next: NONE, previous: NONE, generation: 0, key: None });
        index
    }
}

impl<K: Copy> Default for TimerWheel<K> {
    fn default() -> Self {
        TimerWheel::with_capacity(0)
    }
}

impl<K> core::fmt::Debug for TimerWheel<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TimerWheel").field("timers", &self.length).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TICK: Duration = Duration::from_nanos(1 << TICK_BITS);

    /// Pops as a core does: for ever, as long as the wheel says that there is more to do.
    fn fired<K: Copy>(wheel: &mut TimerWheel<K>, now: Nanos) -> Vec<K> {
        let mut keys = Vec::new();
        while wheel.next_deadline().is_some_and(|at| at <= now) {
            keys.extend(wheel.pop_expired(now));
        }
        assert!(wheel.pop_expired(now).is_none(), "nothing is due when the next deadline is in the future");
        keys
    }

    #[test]
    fn a_timer_fires_within_a_tick_after_its_deadline_and_not_before() {
        for deadline in [1, 65_535, 65_536, 65_537, 1_000_000, 1 << 40, (1 << 52) + 12_345, u64::MAX >> 1] {
            let (mut wheel, deadline) = (TimerWheel::default(), Nanos(deadline));
            wheel.insert(deadline, 'a');
            assert!(fired(&mut wheel, Nanos(deadline.0 - 1)).is_empty());
            assert_eq!(fired(&mut wheel, deadline + TICK), ['a']);
            assert!(wheel.is_empty());
        }
    }

    #[test]
    fn a_cancelled_timer_does_not_fire_and_its_id_is_worthless() {
        let mut wheel = TimerWheel::with_capacity(1);
        let old = wheel.insert(Nanos(10), 'a');
        assert_eq!(wheel.cancel(old), Some('a'));
        assert_eq!(wheel.cancel(old), None);
        let new = wheel.insert(Nanos(20), 'b');
        assert_eq!(wheel.cancel(old), None, "the memory was given to another timer");
        assert_eq!(fired(&mut wheel, Nanos::ZERO + TICK), ['b']);
        assert_eq!(wheel.cancel(new), None);
    }

    #[test]
    fn never_is_never() {
        let mut wheel = TimerWheel::default();
        let never = wheel.insert(Nanos::NEVER, 'n');
        assert_eq!((wheel.next_deadline(), wheel.len()), (None, 1));
        assert!(fired(&mut wheel, Nanos::NEVER).is_empty());
        assert_eq!(wheel.cancel(never), Some('n'));
        assert!(wheel.is_empty());
    }

    #[test]
    fn many_timers_of_one_slot_fire_over_several_bounded_calls() {
        let mut wheel = TimerWheel::default();
        let count = STEPS_PER_CALL as u64 * 3;
        let day = Duration::from_secs(86_400);
        for key in 0..count {
            wheel.insert(Nanos::ZERO + day, key);
        }
        assert_eq!(fired(&mut wheel, Nanos::ZERO + day + TICK), (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn memory_is_used_again() {
        let mut wheel = TimerWheel::with_capacity(8);
        let before = wheel.nodes.capacity();
        for round in 0..1000_u64 {
            let ids = [1, 2, 3].map(|plus| wheel.insert(Nanos(round * 1_000_000 + plus * 500_000), round));
            wheel.cancel(ids[1]);
            fired(&mut wheel, Nanos(round * 1_000_000));
        }
        assert_eq!(wheel.nodes.capacity(), before);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { after: u64 },
        InsertAt { deadline: u64 },
        Cancel { which: usize },
        Pass { nanos: u64 },
        PopOnce,
    }

    /// Spans of all magnitudes: a uniform number of bits, then a uniform number.
    fn span(bits: core::ops::Range<u32>) -> impl Strategy<Value = u64> {
        (bits, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => span(0..56).prop_map(|after| Step::Insert { after }),
            1 => prop_oneof![any::<u64>(), Just(u64::MAX), Just(u64::MAX - 65_535)]
                .prop_map(|deadline| Step::InsertAt { deadline }),
            2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
            3 => span(0..54).prop_map(|nanos| Step::Pass { nanos }),
            1 => Just(Step::PopOnce),
        ]
    }

    /// What should be running: by key, the deadline and the id.
    #[derive(Default)]
    struct Oracle {
        running: BTreeMap<u32, (Nanos, TimerId)>,
        ended: Vec<TimerId>,
        next_key: u32,
    }

    impl Oracle {
        fn insert(&mut self, wheel: &mut TimerWheel<u32>, deadline: Nanos) {
            let id = wheel.insert(deadline, self.next_key);
            assert!(self.running.values().all(|(_, other)| *other != id) && !self.ended.contains(&id));
            self.running.insert(self.next_key, (deadline, id));
            self.next_key += 1;
        }

        fn cancel(&mut self, wheel: &mut TimerWheel<u32>, which: usize) {
            if let Some(key) = self.running.keys().copied().nth(which % self.running.len().max(1)) {
                let (_, id) = self.running.remove(&key).unwrap();
                assert_eq!(wheel.cancel(id), Some(key));
                self.ended.push(id);
            }
            if !self.ended.is_empty() {
                assert_eq!(wheel.cancel(self.ended[which % self.ended.len()]), None);
            }
        }

        fn fires(&mut self, key: u32, now: Nanos) {
            let (deadline, id) = self.running.remove(&key).expect("fires once, and not when cancelled");
            assert!(deadline <= now, "fires early");
            self.ended.push(id);
        }

        /// After everything due was popped.
        fn agrees(&self, wheel: &TimerWheel<u32>, now: Nanos) {
            assert_eq!(wheel.len(), self.running.len());
            let earliest = self.running.values().map(|(deadline, _)| *deadline).min().unwrap_or(Nanos::NEVER);
            assert!(earliest + TICK > now || earliest + TICK == Nanos::NEVER, "fires more than a tick late");
            match wheel.next_deadline() {
                Some(next) => assert!(next > now && next.0.saturating_sub(TICK.as_nanos() as u64) < earliest.0),
                None => assert!(earliest + TICK == Nanos::NEVER),
            }
        }
    }

    fn follow(steps: Vec<Step>, start: u64) {
        let (mut wheel, mut oracle, mut now) = (TimerWheel::default(), Oracle::default(), Nanos(start));
        for step in steps {
            match step {
                Step::Insert { after } => oracle.insert(&mut wheel, now + Duration::from_nanos(after)),
                Step::InsertAt { deadline } => oracle.insert(&mut wheel, Nanos(deadline)),
                Step::Cancel { which } => oracle.cancel(&mut wheel, which),
                Step::PopOnce => {
                    if let Some(key) = wheel.pop_expired(now) {
                        oracle.fires(key, now);
                    }
                }
                Step::Pass { nanos } => {
                    now = now + Duration::from_nanos(nanos);
                    let keys = fired(&mut wheel, now);
                    keys.into_iter().for_each(|key| oracle.fires(key, now));
                    oracle.agrees(&wheel, now);
                }
            }
        }
        fired(&mut wheel, Nanos::NEVER).into_iter().for_each(|key| oracle.fires(key, Nanos::NEVER));
        oracle.agrees(&wheel, Nanos::NEVER);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 1000 }, failure_persistence: None, ..Default::default() })]
        #[test]
        fn the_wheel_does_what_a_sorted_map_would(
            steps in prop::collection::vec(step(), 1..if cfg!(miri) { 30 } else { 120 }),
            start in prop_oneof![Just(0), span(0..62)],
        ) {
            follow(steps, start);
        }

        /// Time in small steps, so that every level's boundary is crossed one tick at a time.
        #[test]
        fn each_timer_fires_in_its_own_tick(
            deadlines in prop::collection::vec(0_u64..300, 1..20),
            start in span(0..40),
        ) {
            let mut wheel = TimerWheel::default();
            let tick = TICK.as_nanos() as u64;
            let start = start * tick;
            for deadline in &deadlines {
                wheel.insert(Nanos(start + deadline * tick), *deadline);
            }
            for passed in 0..300 {
                let mut expected = deadlines.clone();
                expected.retain(|deadline| *deadline == passed);
                prop_assert_eq!(fired(&mut wheel, Nanos(start + passed * tick)), expected);
            }
        }
    }
}
