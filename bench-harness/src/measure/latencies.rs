//! Latencies in a histogram of fixed size, its percentiles, and the choice of which operations are timed.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency that is kept apart; longer ones count as this long.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Three digits: a bucket is at most 0.1 % wide.
const DIGITS: u8 = 3;

/// A histogram of nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// Percentiles in nanoseconds; all 0 when nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of the operations took at most this long.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p99_9: u64,
    /// The longest.
    pub max: u64,
}

impl Latencies {
    /// An empty histogram; about 200 KiB, allocated at once so that recording never allocates.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("constant bounds are valid");
        Self { histogram }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Records the same latency `count` times.
    #[inline]
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns, count);
    }

    /// Adds what another thread recorded.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms here have the same bounds");
    }

    /// Forgets everything, at the end of the warm-up.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Latencies recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The percentiles that every report shows.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        if self.histogram.is_empty() {
            return Percentiles::default();
        }
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max: self.histogram.max() }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Chooses every n-th operation for timing: two clock readings around each would add a third to the fastest ones.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    every: u64,
    count: u64,
}

impl Sampler {
    /// Times one operation in `every`.
    pub fn one_in(every: u64) -> Self {
        Self { every, count: 0 }
    }

    /// The usual choice in memory. Prime numbers: whatever a subject does at every 2^n-th operation is seen as often as
    /// it happens, neither always nor never.
    pub fn for_local(outstanding: u32) -> Self {
        Self::one_in(if outstanding == 1 { 17 } else { 31 })
    }

    /// The usual choice over a network: the bare ring times one in 16 from 16 in flight on, so this is what its own
    /// measurement may cost the subject. Prime, as there.
    pub fn for_remote(outstanding: u32) -> Self {
        Self::one_in(if outstanding >= 16 { 17 } else { 1 })
    }

    /// Whether the operation that starts now is timed.
    #[inline]
    pub fn pick(&mut self) -> bool {
        self.count += 1;
        if self.count < self.every {
            return false;
        }
        self.count = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_recorded_values() {
        let mut latencies = Latencies::new();
        (1..=10_000).for_each(|ns| latencies.record(ns));
        let found = latencies.percentiles();
        for (found, exact) in [(found.p50, 5_000.0), (found.p90, 9_000.0), (found.p99, 9_900.0), (found.p99_9, 9_990.0)]
        {
            assert!((found as f64 / exact - 1.0).abs() < 0.002, "{found} is not {exact}");
        }
        assert!(found.max.abs_diff(10_000) <= 10);
    }

    #[test]
    fn merging_equals_recording_in_one() {
        let (mut one, mut left, mut right) = (Latencies::new(), Latencies::new(), Latencies::new());
        for ns in 1..1_000_u64 {
            one.record(ns * ns);
            if ns % 3 == 0 { left.record(ns * ns) } else { right.record(ns * ns) }
        }
        left.merge(&right);
        assert_eq!((left.percentiles(), left.count()), (one.percentiles(), one.count()));
    }

    #[test]
    fn a_value_beyond_the_range_is_kept_at_its_end() {
        let mut latencies = Latencies::new();
        latencies.record(u64::MAX);
        assert!(latencies.percentiles().max >= LATENCY_NS_MAX);
    }

    #[test]
    fn nothing_recorded_gives_zeros() {
        assert_eq!(Latencies::new().percentiles(), Percentiles::default());
    }

    #[test]
    fn a_sampler_picks_its_share() {
        let mut sampler = Sampler::one_in(31);
        assert_eq!((0..3_100).filter(|_| sampler.pick()).count(), 100);
    }
}
