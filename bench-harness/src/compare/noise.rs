//! How far a figure moves by itself, from the rounds of two runs.
//!
//! The band is what the rank test of Mann and Whitney (also called Wilcoxon's) allows: of all ratios of a round of one run
//! to a round of the other, the smallest and the largest are cut as far as chance explains them in 1 % of comparisons,
//! and the change counts only if all that is left lies on one side of 1. The test assumes no shape of the noise, and one
//! bad round does not move it. It needs about five rounds on each side: with fewer, chance explains everything.
//!
//! Rounds of one run share its memory layout and its neighbours on the machine, so two runs differ by more than their
//! rounds do. `least` is for that.

use core::fmt;

use serde::Serialize;

use crate::rounds::median;

/// How often chance may call two runs of the same thing different.
const DOUBT: f64 = 0.01;
/// The same as a distance from the middle, in standard deviations, for many rounds.
const DOUBT_DEVIATIONS: f64 = 2.576;
/// Up to so many rounds in both runs the test is counted exactly.
const EXACT_ROUNDS_MAX: usize = 60;

/// A change of a figure, and how much of it noise explains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The median before.
    pub before: f64,
    /// The median after.
    pub after: f64,
    /// The change as a share: 0.1 is 10 % more.
    pub change: f64,
    /// The noise band as a share: a smaller change, up or down, says nothing.
    pub band: f64,
}

impl Change {
    /// The change of the median over rounds. Nothing if a run has no positive figures, or both too few rounds. The band
    /// is at least `least`.
    pub fn of(before: &[f64], after: &[f64], least: f64) -> Option<Self> {
        let (before, after) = (usable(before), usable(after));
        let (middle_before, middle_after) = (median(before.iter().copied())?, median(after.iter().copied())?);
        let ratio = middle_after / middle_before;
        let (low, high) = interval(&before, &after)?;
        // Chosen so that the change is beyond the band exactly where the interval does not contain 1.
        let band = if ratio > 1.0 {
            ratio / low - 1.0
        } else if ratio < 1.0 {
            1.0 - ratio / high
        } else {
            (high - 1.0).max(1.0 - low)
        };
        Some(Self { before: middle_before, after: middle_after, change: ratio - 1.0, band: band.max(least).max(0.0) })
    }

    /// Whether it is more than noise.
    pub fn counts(&self) -> bool {
        self.change.abs() > self.band
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:+.1} % ±{:.1}", 100.0 * self.change, 100.0 * self.band)
    }
}

/// Whether so many rounds can tell anything.
pub(super) fn enough(before: usize, after: usize) -> bool {
    cut(before, after).is_some()
}

/// By which share two figures differ, whichever is the larger; 0 where one is missing.
pub(super) fn drift(before: &[f64], after: &[f64]) -> f64 {
    match (median(usable(before)), median(usable(after))) {
        (Some(before), Some(after)) => (after / before).max(before / after) - 1.0,
        _ => 0.0,
    }
}

fn usable(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite() && *value > 0.0).collect()
}

/// Between which ratios chance leaves the true one.
fn interval(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    let cut = cut(before.len(), after.len())?;
    let mut ratios: Vec<f64> = after.iter().flat_map(|after| before.iter().map(move |before| after / before)).collect();
    ratios.sort_by(f64::total_cmp);
    Some((*ratios.get(cut)?, *ratios.get(ratios.len().checked_sub(cut + 1)?)?))
}

/// How many ratios are cut at each end: as many as chance reaches in at most half of [`DOUBT`]. Nothing if even no ratio
/// at all is too many.
fn cut(before: usize, after: usize) -> Option<usize> {
    if before == 0 || after == 0 {
        return None;
    }
    if before + after > EXACT_ROUNDS_MAX {
        let (n, m) = (before as f64, after as f64);
        let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
        let reached = n * m / 2.0 - DOUBT_DEVIATIONS * deviation;
        return (reached >= 1.0).then(|| reached as usize - 1);
    }
    let counts = arrangements(before, after);
    let all: f64 = counts.iter().map(|count| *count as f64).sum();
    let mut reached = 0.0;
    let likely = counts.iter().position(|count| {
        reached += *count as f64;
        reached / all > DOUBT / 2.0
    });
    likely?.checked_sub(1)
}

/// In how many orders of two runs' rounds exactly `u` pairs are in the wrong order, for each `u`: the coefficients of the
/// Gaussian binomial, by multiplying with (1 − q^(m+i)) and dividing by (1 − q^i).
fn arrangements(n: usize, m: usize) -> Vec<i128> {
    let mut counts = vec![0_i128; n * m + 1];
    counts[0] = 1;
    for i in 1..=n {
        for u in (m + i..counts.len()).rev() {
            counts[u] -= counts[u - (m + i)];
        }
        for u in i..counts.len() {
            counts[u] += counts[u - i];
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same count by trying all orders.
    fn tried(n: usize, m: usize) -> Vec<i128> {
        let mut counts = vec![0; n * m + 1];
        for order in 0_u32..1 << (n + m) {
            if order.count_ones() as usize == n {
                let is_first = |at: usize| order >> at & 1 == 1;
                let wrong = (0..n + m)
                    .map(|at| if is_first(at) { (0..at).filter(|before| !is_first(*before)).count() } else { 0 });
                counts[wrong.sum::<usize>()] += 1;
            }
        }
        counts
    }

    #[test]
    fn orders_are_counted_as_they_are() {
        for (n, m) in [(1, 1), (2, 3), (5, 5), (4, 6), (7, 2)] {
            assert_eq!(arrangements(n, m), tried(n, m), "{n} and {m}");
        }
        assert_eq!(arrangements(30, 30).iter().sum::<i128>(), 118_264_581_564_861_424);
    }

    #[test]
    fn five_rounds_on_each_side_are_just_enough() {
        // 2 of the 252 orders are the extreme ones: less than 1 %. Of 126 it would be more.
        assert_eq!((cut(5, 5), cut(4, 5), cut(4, 6), cut(1, 1_000)), (Some(0), None, Some(0), None));
        // A table of critical values (two-sided, 1 %): 16 for ten and ten, 105 for twenty and twenty.
        assert_eq!((cut(10, 10), cut(20, 20)), (Some(16), Some(105)));
        // The approximation continues what is counted.
        let (counted, approximated) = (cut(30, 30).unwrap() as f64, cut(30, 31).unwrap() as f64);
        assert!((approximated / counted - 1.0).abs() < 0.06, "{counted} and {approximated}");
    }

    /// Numbers that look random, the same in each run.
    fn noise(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as f64 / (1_u64 << 31) as f64
    }

    fn rounds(count: usize, level: f64, seed: &mut u64) -> Vec<f64> {
        // Skewed, as times are: now and then one is much longer.
        (0..count).map(|_| level * (1.0 + 0.05 * noise(seed) + 0.3 * noise(seed).powi(8))).collect()
    }

    #[test]
    fn runs_of_the_same_thing_differ_in_one_of_a_hundred_comparisons() {
        for count in [5, 9] {
            let mut seed = 7;
            let alarms = (0..5_000)
                .filter(|_| {
                    let change = Change::of(&rounds(count, 100.0, &mut seed), &rounds(count, 100.0, &mut seed), 0.0);
                    change.unwrap().counts()
                })
                .count();
            // A band that is never left would find nothing at all.
            assert!((10..=65).contains(&alarms), "{count} rounds: {alarms} of 5,000");
        }
    }

    #[test]
    fn a_change_beyond_the_noise_is_found() {
        let mut seed = 11;
        for _ in 0..200 {
            let (before, after) = (rounds(5, 100.0, &mut seed), rounds(5, 150.0, &mut seed));
            let change = Change::of(&before, &after, 0.05).unwrap();
            assert!(change.counts() && change.change > 0.2, "{change}: {before:?} {after:?}");
            let back = Change::of(&after, &before, 0.05).unwrap();
            assert!(back.counts() && back.change < -0.1, "{back}");
        }
    }

    #[test]
    fn a_change_counts_exactly_where_the_rounds_are_apart() {
        let before = [100.0, 101.0, 102.0, 103.0, 104.0];
        assert!(Change::of(&before, &[104.5, 106.0, 107.0, 108.0, 109.0], 0.0).unwrap().counts());
        assert!(!Change::of(&before, &[103.9, 106.0, 107.0, 108.0, 109.0], 0.0).unwrap().counts());
        assert!(!Change::of(&before, &[104.5, 106.0, 107.0, 108.0, 109.0], 0.06).unwrap().counts());
        assert!(Change::of(&before, &[99.5, 98.0, 97.0, 96.0, 95.0], 0.0).unwrap().counts());
    }

    #[test]
    fn what_is_no_figure_gives_no_change() {
        let good = [1.0; 5];
        for bad in [vec![], vec![0.0; 5], vec![f64::NAN; 5], vec![f64::INFINITY; 5], vec![-1.0; 5], vec![1.0; 3]] {
            assert_eq!(Change::of(&good, &bad, 0.0), None, "{bad:?}");
            assert_eq!(Change::of(&bad, &good, 0.0), None, "{bad:?}");
        }
        assert_eq!((drift(&[100.0], &[50.0]), drift(&[50.0], &[100.0]), drift(&[], &[1.0])), (1.0, 1.0, 0.0));
    }

    #[test]
    fn many_rounds_have_a_narrow_band() {
        let mut seed = 3;
        let few = Change::of(&rounds(5, 100.0, &mut seed), &rounds(5, 100.0, &mut seed), 0.0).unwrap();
        let many = Change::of(&rounds(200, 100.0, &mut seed), &rounds(200, 100.0, &mut seed), 0.0).unwrap();
        assert!(many.band < few.band / 2.0, "{few} and {many}");
    }
}
