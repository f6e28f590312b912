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

/// A step of the distribution: so many latencies were at most this long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The longest of them, in nanoseconds.
    pub ns: u64,
    /// The share that the step stands for, 0 to 1.
    pub quantile: f64,
    /// Latencies of at most `ns`.
    pub count: u64,
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

    /// The distribution from the shortest to the longest, with `per_half` steps (at least 1) for each halving of the
    /// share that is longer. Empty when nothing was recorded.
    pub fn distribution(&self, per_half: u32) -> impl Iterator<Item = Step> {
        let steps = (!self.histogram.is_empty()).then(|| self.histogram.iter_quantiles(per_half.max(1)));
        steps.into_iter().flatten().scan(0, |count, step| {
            *count += step.count_since_last_iteration();
            Some(Step { ns: step.value_iterated_to(), quantile: step.quantile_iterated_to(), count: *count })
        })
    }

    /// Mean and standard deviation in nanoseconds; 0 when nothing was recorded.
    pub fn mean_and_deviation(&self) -> (f64, f64) {
        (self.histogram.mean(), self.histogram.stdev())
    }

    /// Buckets of the histogram, and what each is divided into.
    pub fn buckets(&self) -> (u8, u32) {
        // Twice what the digits need: the lower half of a bucket is the one below it.
        (self.histogram.buckets(), (2 * 10_u32.pow(self.histogram.sigfig().into())).next_power_of_two())
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
    fn the_distribution_ends_with_all_latencies_at_the_longest() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|ns| latencies.record(ns));
        let steps: Vec<Step> = latencies.distribution(5).collect();
        assert!(steps.is_sorted_by(|a, b| a.ns <= b.ns && a.quantile <= b.quantile && a.count <= b.count));
        let last = steps.last().unwrap();
        assert_eq!((last.quantile, last.count), (1.0, 100_000));
        let at_p99 = steps.iter().find(|step| step.quantile >= 0.99).unwrap();
        assert!((at_p99.count as f64 / 99_000.0 - 1.0).abs() < 0.01, "{at_p99:?}");
        // Without more steps for each halving the tail would have one.
        assert!(steps.iter().filter(|step| step.quantile > 0.999).count() > 10);
    }

    #[test]
    fn nothing_recorded_gives_zeros() {
        assert_eq!(Latencies::new().percentiles(), Percentiles::default());
        assert_eq!(Latencies::new().distribution(5).count(), 0);
    }

    #[test]
    fn a_sampler_picks_its_share() {
        let mut sampler = Sampler::one_in(31);
        assert_eq!((0..3_100).filter(|_| sampler.pick()).count(), 100);
    }
}
