//! How long a starved side of a boundary looks by itself before it has itself woken.
//!
//! Looking costs some nanoseconds each time and sees news after a hundred; being woken costs the other side as
//! much as dozens of elements, and microseconds if the core sleeps. So a side that expects news soon looks; one that
//! was disappointed looks less the next time.

use core::time::Duration;

use crate::base::Nanos;

/// Looks in a row, at most: with the cost of one, about the time of [`TIME_MAX`]. Bounds it where the clock stands still.
const LOOKS_MAX: u32 = 4096;
/// Looks in a row of a side whose news never came in time.
const LOOKS_MIN: u32 = 64;
/// After so many looks the consumer asks for elements one by one. A producer that gives 16 elements in this time stays
/// with batches, which are cheaper for it.
const LOOKS_BEFORE_IDLE: u32 = 32;
/// About what it takes to wake a core that sleeps: looking for longer costs more than it can save.
const TIME_MAX: Duration = Duration::from_micros(50);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    Look,
    /// Say that there is nothing to do, and look.
    SayIdle,
    Wait,
}

#[derive(Debug)]
pub(super) struct Patience {
    looks: u32,
    looks_max: u32,
    since: Nanos,
    waited: bool,
}

impl Patience {
    pub fn new() -> Patience {
        Patience { looks: 0, looks_max: LOOKS_MAX, since: Nanos::ZERO, waited: false }
    }

    /// There was nothing again.
    pub fn disappointed(&mut self, now: Nanos) -> Advice {
        if self.looks == 0 {
            self.since = now;
        }
        self.looks = self.looks.saturating_add(1);
        if self.waited || self.looks > self.looks_max || now.since(self.since) > TIME_MAX {
            self.waited = true;
            return Advice::Wait;
        }
        if self.looks == LOOKS_BEFORE_IDLE { Advice::SayIdle } else { Advice::Look }
    }

    /// There was something.
    #[inline(always)]
    pub fn rewarded(&mut self, now: Nanos) {
        if self.looks != 0 {
            self.start_again(now);
        }
    }

    #[cold]
    fn start_again(&mut self, now: Nanos) {
        self.looks = 0;
        if std::mem::replace(&mut self.waited, false) {
            // Would it have come while looking?
            let in_time = now.since(self.since) <= TIME_MAX;
            self.looks_max = if in_time { LOOKS_MAX } else { (self.looks_max / 2).max(LOOKS_MIN) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn looks_until_wait(patience: &mut Patience, now: Nanos) -> u32 {
        (0..).find(|_| patience.disappointed(now) == Advice::Wait).unwrap()
    }

    #[test]
    fn looking_ends_even_if_the_clock_stands_still() {
        assert_eq!(looks_until_wait(&mut Patience::new(), Nanos(7)), LOOKS_MAX);
    }

    #[test]
    fn looking_ends_when_its_time_is_over() {
        let mut patience = Patience::new();
        assert_eq!(patience.disappointed(Nanos(1)), Advice::Look);
        assert_eq!(patience.disappointed(Nanos(1) + TIME_MAX), Advice::Look);
        assert_eq!(patience.disappointed(Nanos(2) + TIME_MAX), Advice::Wait);
    }

    #[test]
    fn idleness_is_said_once_after_a_while() {
        let mut patience = Patience::new();
        let advice: Vec<_> = (0..2 * LOOKS_BEFORE_IDLE).map(|_| patience.disappointed(Nanos(0))).collect();
        let said: Vec<_> = (0..advice.len()).filter(|at| advice[*at] == Advice::SayIdle).collect();
        assert_eq!(said, [LOOKS_BEFORE_IDLE as usize - 1]);
    }

    #[test]
    fn late_news_shorten_the_looking_and_early_ones_restore_it() {
        let mut patience = Patience::new();
        for round in 1..20 {
            let now = Nanos(round * 1_000_000);
            let looks = looks_until_wait(&mut patience, now);
            assert_eq!(looks, (LOOKS_MAX >> (round - 1).min(31)).max(LOOKS_MIN));
            patience.rewarded(now + TIME_MAX * 2);
        }
        let now = Nanos(1_000_000_000);
        looks_until_wait(&mut patience, now);
        patience.rewarded(now + TIME_MAX);
        assert_eq!(looks_until_wait(&mut patience, now), LOOKS_MAX);
    }
}
