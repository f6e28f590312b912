//! Open loop: the times of all sends are fixed before the first one, and a latency starts at the *intended* time.
//! So a server that stalls cannot slow the clock it is measured by (coordinated omission). Pure: times come in as
//! nanoseconds since the start of the schedule. The drive calls [`OpenLoop::next`] in its loop, the report asks for
//! the [`OpenLoop::verdict`].

use core::fmt;
use core::time::Duration;

use serde::Serialize;

/// A send this much after its intended time is late: a hundred round trips over loopback.
pub const LATE_NS: u64 = 1_000_000;
/// More late sends than this share, and the harness was the bottleneck.
pub const LATE_SHARE_MAX: f64 = 0.01;
/// Fewer sends than this share of the intended ones, and the harness was the bottleneck.
pub const ACHIEVED_SHARE_MIN: f64 = 0.99;
/// Highest rate that one schedule takes: one message each nanosecond.
pub const RATE_MAX: f64 = 1e9;

/// Equally spaced send times.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    interval_ns: f64,
    total: u64,
}

/// A rate that no schedule can have.
#[derive(Debug, PartialEq)]
pub struct RateError(f64);

impl fmt::Display for RateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a rate of {} per second cannot be scheduled; choose more than 0 and at most 1G", self.0)
    }
}

impl std::error::Error for RateError {}

impl Schedule {
    /// Sends at `rate_per_second`, the first at time 0, for as long as `duration`.
    pub fn constant(rate_per_second: f64, duration: Duration) -> Result<Self, RateError> {
        if !(rate_per_second > 0.0 && rate_per_second <= RATE_MAX) {
            return Err(RateError(rate_per_second));
        }
        let total = (rate_per_second * duration.as_secs_f64()).ceil() as u64;
        Ok(Self { interval_ns: 1e9 / rate_per_second, total })
    }

    /// When send `index` is intended.
    pub fn intended_ns(&self, index: u64) -> u64 {
        (index as f64 * self.interval_ns) as u64
    }

    /// How many sends are intended at or before `now_ns`.
    pub fn due(&self, now_ns: u64) -> u64 {
        let mut due = (now_ns as f64 / self.interval_ns) as u64;
        // The division and the multiplication round apart by one at most: intended_ns decides.
        while due > 0 && self.intended_ns(due) > now_ns {
            due -= 1;
        }
        while self.intended_ns(due + 1) <= now_ns {
            due += 1;
        }
        (due + 1).min(self.total)
    }

    /// Sends of the whole schedule.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// A send that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Its number, from 0.
    pub index: u64,
    /// When it was intended: hand it back to [`OpenLoop::latency_ns`] with the reply.
    pub intended_ns: u64,
}

/// Where a schedule stands: which sends are done, late, or held back by the subject.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    schedule: Schedule,
    sent: u64,
    /// The first send that counts.
    first: u64,
    late: u64,
    held_back: u64,
    held_back_below: u64,
    latest_ns: u64,
}

impl OpenLoop {
    /// Starts at the first send of `schedule`.
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, sent: 0, first: 0, late: 0, held_back: 0, held_back_below: 0, latest_ns: 0 }
    }

    /// How many sends are due at `now_ns` and not done.
    pub fn due(&self, now_ns: u64) -> u64 {
        self.schedule.due(now_ns).saturating_sub(self.sent)
    }

    /// When the next send is intended; nothing when all are done.
    pub fn next_at_ns(&self) -> Option<u64> {
        (self.sent < self.schedule.total).then(|| self.schedule.intended_ns(self.sent))
    }

    /// Takes the next send if it is due; the caller sends it now.
    pub fn next(&mut self, now_ns: u64) -> Option<Send> {
        let intended_ns = self.next_at_ns().filter(|intended| *intended <= now_ns)?;
        let index = self.sent;
        self.sent += 1;
        let lateness = now_ns - intended_ns;
        if lateness > LATE_NS && index >= self.first {
            if index < self.held_back_below {
                self.held_back += 1;
            } else {
                self.late += 1;
                self.latest_ns = self.latest_ns.max(lateness);
            }
        }
        Some(Send { index, intended_ns })
    }

    /// The subject takes no more at `now_ns` (back-pressure, or the bound on messages in flight): whatever is due by
    /// now is not the harness's fault. Its latency starts at the intended time all the same.
    pub fn held_back(&mut self, now_ns: u64) {
        self.held_back_below = self.held_back_below.max(self.schedule.due(now_ns));
    }

    /// Only sends that are intended after `now_ns` count from now on: those before were the warm-up.
    pub fn count_from(&mut self, now_ns: u64) {
        self.first = self.schedule.due(now_ns);
        (self.late, self.held_back, self.latest_ns) = (0, 0, 0);
    }

    /// The latency of a message whose reply came at `now_ns`.
    pub fn latency_ns(send: Send, now_ns: u64) -> u64 {
        now_ns.saturating_sub(send.intended_ns)
    }

    /// What happened until `end_ns`, the end of the sending.
    pub fn tally(&self, end_ns: u64) -> Tally {
        let intended = self.schedule.due(end_ns).saturating_sub(self.first);
        Tally {
            intended,
            sent: self.sent.saturating_sub(self.first),
            late_sends: self.late,
            held_back_sends: self.held_back,
            withheld_sends: self.held_back_below.saturating_sub(self.sent.max(self.first)),
            latest_ns: self.latest_ns,
        }
    }

    /// Whether the result may be used.
    pub fn verdict(&self, end_ns: u64) -> Result<(), Refused> {
        self.tally(end_ns).verdict()
    }
}

/// The sends of an open loop, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Sends that were intended in the time measured.
    pub intended: u64,
    /// Sends that were done.
    pub sent: u64,
    /// Sends that the harness did more than [`LATE_NS`] after their intended time.
    pub late_sends: u64,
    /// Sends that the subject held back and took later than [`LATE_NS`]: it was saturated.
    pub held_back_sends: u64,
    /// Sends that the subject had not taken at the end.
    pub withheld_sends: u64,
    /// The worst lateness of the harness.
    pub latest_ns: u64,
}

impl Tally {
    /// Adds the counts of another thread or round.
    pub fn merge(&mut self, other: &Self) {
        self.intended += other.intended;
        self.sent += other.sent;
        self.late_sends += other.late_sends;
        self.held_back_sends += other.held_back_sends;
        self.withheld_sends += other.withheld_sends;
        self.latest_ns = self.latest_ns.max(other.latest_ns);
    }

    /// Whether the result may be used, or the harness was the bottleneck itself.
    pub fn verdict(&self) -> Result<(), Refused> {
        if self.intended == 0 {
            return Ok(());
        }
        let late_share = self.late_sends as f64 / self.intended as f64;
        if late_share > LATE_SHARE_MAX {
            return Err(Refused::LateSends {
                late_sends: self.late_sends,
                share: late_share,
                latest_ns: self.latest_ns,
            });
        }
        // What the subject held back is its own failure and no reason to refuse.
        let achieved = (self.sent + self.withheld_sends) as f64 / self.intended as f64;
        if achieved < ACHIEVED_SHARE_MIN {
            return Err(Refused::RateNotReached { intended: self.intended, sent: self.sent, share: achieved });
        }
        Ok(())
    }
}

/// Why a result is refused: it says more about the harness than about the subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refused {
    /// Too many sends left the harness late.
    LateSends {
        /// How many.
        late_sends: u64,
        /// Their share of the intended sends.
        share: f64,
        /// The worst lateness.
        latest_ns: u64,
    },
    /// The harness did not reach the rate.
    RateNotReached {
        /// Sends intended.
        intended: u64,
        /// Sends done.
        sent: u64,
        /// Their share.
        share: f64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LateSends { late_sends, share, latest_ns } => write!(
                formatter,
                "refused: the harness was the bottleneck: {late_sends} sends ({:.1} %) left more than {} ms late, the \
                 worst {:.1} ms. Give the client a processor of its own (--client-cpu) or lower --rate",
                share * 100.0,
                LATE_NS / 1_000_000,
                *latest_ns as f64 / 1e6,
            ),
            Self::RateNotReached { intended, sent, share } => write!(
                formatter,
                "refused: the harness was the bottleneck: it sent {sent} of {intended} ({:.1} %). Lower --rate",
                share * 100.0,
            ),
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Latencies;

    const MS: u64 = 1_000_000;

    fn schedule(rate: f64, duration: Duration) -> Schedule {
        Schedule::constant(rate, duration).unwrap()
    }

    #[test]
    fn times_are_equally_spaced_and_end_with_the_duration() {
        let schedule = schedule(1_000.0, Duration::from_secs(2));
        assert_eq!(schedule.total(), 2_000);
        assert_eq!(
            (schedule.intended_ns(0), schedule.intended_ns(1), schedule.intended_ns(1_999)),
            (0, MS, 1_999 * MS)
        );
        assert_eq!(
            (schedule.due(0), schedule.due(MS - 1), schedule.due(MS), schedule.due(u64::MAX / 4)),
            (1, 1, 2, 2_000)
        );
    }

    #[test]
    fn due_counts_exactly_the_intended_times_that_have_passed() {
        for rate in [3.0, 7.0, 333.3, 99_991.0, 1.7e6] {
            let schedule = schedule(rate, Duration::from_secs(1));
            for index in (0..schedule.total()).step_by(1 + schedule.total() as usize / 97) {
                let at = schedule.intended_ns(index);
                assert!(schedule.due(at) > index, "rate {rate}, send {index} is due at its own time");
                if at > 0 && schedule.intended_ns(index.saturating_sub(1)) < at {
                    assert!(schedule.due(at - 1) <= index, "rate {rate}, send {index} is not due before");
                }
            }
        }
    }

    #[test]
    fn impossible_rates_are_refused_with_a_reason() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
            let error = Schedule::constant(rate, Duration::from_secs(1)).unwrap_err();
            assert!(error.to_string().contains("per second"), "{error}");
        }
    }

    #[test]
    fn a_send_is_taken_once_and_not_before_its_time() {
        let mut open = OpenLoop::new(schedule(1_000.0, Duration::from_millis(3)));
        assert_eq!(open.next(0), Some(Send { index: 0, intended_ns: 0 }));
        assert_eq!(open.next(MS - 1), None);
        assert_eq!(open.due(2 * MS), 2);
        assert_eq!(open.next(2 * MS), Some(Send { index: 1, intended_ns: MS }));
        assert_eq!(open.next(2 * MS), Some(Send { index: 2, intended_ns: 2 * MS }));
        assert_eq!((open.next(9 * MS), open.next_at_ns()), (None, None));
    }

    /// A server that answers in 10 µs, but stands still from 400 to 600 ms. The virtual client sends on schedule.
    fn stalled(measure_from_send: bool) -> Latencies {
        let mut open = OpenLoop::new(schedule(1_000.0, Duration::from_secs(1)));
        let mut latencies = Latencies::new();
        let mut now = 0;
        while let Some(next) = open.next_at_ns() {
            now = now.max(next);
            let send = open.next(now).unwrap();
            let answered = if (400 * MS..600 * MS).contains(&now) { 600 * MS } else { now } + 10_000;
            if measure_from_send {
                // The planted bug: a closed loop that waits for the answer and measures from the actual send.
                latencies.record(answered - now);
                now = answered;
            } else {
                latencies.record(OpenLoop::latency_ns(send, answered));
            }
        }
        latencies
    }

    #[test]
    fn a_stall_of_the_server_shows_in_the_percentiles() {
        let honest = stalled(false).percentiles();
        assert!(honest.p90 > 90 * MS, "a fifth of the sends fell into the stall: {honest:?}");
        assert!(honest.p99 > 180 * MS && honest.p50 < MS, "{honest:?}");
        let omitting = stalled(true).percentiles();
        assert!(
            omitting.p99 < MS,
            "the planted coordinated omission hides it, which is why we do otherwise: {omitting:?}"
        );
    }

    #[test]
    fn a_slow_harness_is_refused_with_a_typed_reason() {
        let mut open = OpenLoop::new(schedule(1_000.0, Duration::from_secs(1)));
        for now in (0..1_000 * MS).step_by(50 * MS as usize) {
            while open.next(now).is_some() {}
        }
        assert!(matches!(open.verdict(950 * MS), Err(Refused::LateSends { late_sends, .. }) if late_sends > 800));
    }

    #[test]
    fn a_harness_that_leaves_sends_out_is_refused() {
        let mut open = OpenLoop::new(schedule(1_000.0, Duration::from_secs(1)));
        for now in (0..900 * MS).step_by(MS as usize) {
            open.next(now);
        }
        assert!(matches!(open.verdict(999 * MS), Err(Refused::RateNotReached { intended: 1_000, sent: 900, .. })));
    }

    #[test]
    fn what_the_subject_holds_back_is_no_reason_to_refuse() {
        let mut open = OpenLoop::new(schedule(1_000.0, Duration::from_secs(1)));
        for now in (0..1_000 * MS).step_by(MS as usize) {
            if (200 * MS..500 * MS).contains(&now) {
                open.held_back(now);
                continue;
            }
            while open.next(now).is_some() {}
        }
        let tally = open.tally(999 * MS);
        assert_eq!((tally.late_sends, tally.sent), (0, 1_000));
        assert!(tally.held_back_sends > 290, "{tally:?}");
        assert_eq!(tally.verdict(), Ok(()));
    }

    #[test]
    fn what_happened_before_the_count_does_not_count() {
        let mut open = OpenLoop::new(schedule(1_000.0, Duration::from_secs(1)));
        let send_due = |open: &mut OpenLoop, now| while open.next(now).is_some() {};
        send_due(&mut open, 300 * MS);
        assert_eq!(open.tally(300 * MS).late_sends, 299);
        open.count_from(350 * MS);
        // What stood in line at that time leaves late, and is none of those that count.
        send_due(&mut open, 352 * MS);
        for now in (353..1_000).map(|ms| ms * MS) {
            send_due(&mut open, now);
        }
        let tally = open.tally(999 * MS);
        assert_eq!((tally.intended, tally.sent, tally.late_sends, tally.withheld_sends), (649, 649, 0, 0));
        assert_eq!(tally.verdict(), Ok(()));
    }

    #[test]
    fn on_time_is_accepted() {
        let mut open = OpenLoop::new(schedule(10_000.0, Duration::from_secs(1)));
        for now in (0..1_000 * MS).step_by(50_000) {
            while open.next(now).is_some() {}
        }
        assert_eq!(open.verdict(1_000 * MS), Ok(()));
        assert_eq!(open.tally(1_000 * MS).late_sends, 0);
    }
}
