//! The rate sweep: an open loop at rising rates up to the knee, and once more, longer, at half of it. [`crate::run`] calls
//! it with a function that measures one scenario.
//!
//! The knee is the highest rate at which the median answer takes at most twice as long as with one ask in flight. For a
//! single server that is where throughput over response time is greatest (Kleinrock, "Power and deterministic rules of
//! thumb", ICC 1979); the median instead of the mean, since the mean is the machine's pauses.

use core::fmt;

use anyhow::Context;
use serde::Serialize;

use crate::report::{Report, quantity, time};
use crate::scenario::{Operation, Pace, Place, Scenario, Setting};

/// The knee: this many times the unloaded median.
const KNEE_FACTOR: f64 = 2.0;
/// From one rate to the next.
const STEP_FACTOR: f64 = 1.4;
/// Rates that are tried: from 10 per second the last one is beyond what a schedule takes.
const STEPS_MAX: usize = 48;
/// Rounds of a step; only its median counts.
const STEP_ROUNDS: u32 = 3;
/// Least rounds at half of the knee, where the 99th percentile counts.
const HALF_ROUNDS: u32 = 15;
/// At half of the knee p99 is to be at most this many times the p99 of one ask in flight.
const P99_FACTOR: f64 = 2.0;

/// What a sweep found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// The highest rate before the knee; nothing if the first rate was beyond it.
    pub knee_rate_per_second: Option<f64>,
    /// Percentiles of one ask in flight.
    pub unloaded_p50_ns: u64,
    /// Of its slowest hundredth.
    pub unloaded_p99_ns: u64,
    /// The slowest hundredth at half of the knee.
    pub half_knee_p99_ns: Option<u64>,
    /// That over the p99 of one ask in flight.
    pub p99_ratio: Option<f64>,
    /// The same over the p99 of the bare ring under the same schedule.
    pub floor_ratio_p99: Option<f64>,
}

/// Measures up to the knee and at half of it; the reports in the order in which they were made.
pub fn sweep(
    base: &Scenario,
    first_rate: f64,
    setting: &Setting,
    measure: &mut dyn FnMut(&Scenario, &Setting) -> anyhow::Result<Report>,
) -> anyhow::Result<(Vec<Report>, Sweep)> {
    let alone = Scenario { pace: Pace::Closed { outstanding: 1 }, ..base.clone() };
    let at = |rate_per_second| Scenario { pace: Pace::Open { rate_per_second }, ..base.clone() };
    let steps = Setting { rounds: STEP_ROUNDS, floor: false, ..setting.clone() };
    let longer = Setting { rounds: setting.rounds.max(HALF_ROUNDS), ..setting.clone() };
    let unloaded = measure(&alone, &longer).context("one ask in flight")?;
    let (unloaded_p50_ns, unloaded_p99_ns) = (unloaded.latency_ns.p50, unloaded.latency_ns.p99);
    let mut reports = vec![unloaded];
    let (mut rate, mut knee) = (first_rate, None);
    for _ in 0..STEPS_MAX {
        let report = measure(&at(rate), &steps)?;
        let within = is_before_knee(&report, unloaded_p50_ns);
        reports.push(report);
        if !within {
            break;
        }
        knee = Some(rate);
        rate = (rate * STEP_FACTOR).round();
    }
    let half = knee.map(|knee| measure(&at((knee / 2.0).round()), &longer)).transpose()?;
    let half_knee_p99_ns = half.as_ref().map(|half| half.latency_ns.p99);
    let found = Sweep {
        knee_rate_per_second: knee,
        unloaded_p50_ns,
        unloaded_p99_ns,
        half_knee_p99_ns,
        p99_ratio: half_knee_p99_ns.map(|p99| p99 as f64 / unloaded_p99_ns.max(1) as f64),
        floor_ratio_p99: half.as_ref().and_then(|half| half.floor_ratio_p99),
    };
    reports.extend(half);
    Ok((reports, found))
}

fn is_before_knee(report: &Report, unloaded_p50_ns: u64) -> bool {
    report.refused.is_none() && report.latency_ns.p50 as f64 <= KNEE_FACTOR * unloaded_p50_ns as f64
}

/// What is swept: remote asks.
pub fn scenario(entities: u32, payload_bytes: u32) -> Scenario {
    Scenario { entities, payload_bytes, ..Scenario::closed(Operation::Ask, Place::Remote, 1) }
}

impl fmt::Display for Sweep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(knee), Some(p99), Some(ratio)) = (self.knee_rate_per_second, self.half_knee_p99_ns, self.p99_ratio)
        else {
            return writeln!(
                formatter,
                "knee: below the first rate, where the median is already above {KNEE_FACTOR:.0} × that of one ask in \
                 flight ({}); choose a lower --from",
                time(self.unloaded_p50_ns as f64)
            );
        };
        writeln!(
            formatter,
            "knee: {}/s, the highest rate with a median within {KNEE_FACTOR:.0} × of one ask in flight",
            quantity(knee)
        )?;
        write!(
            formatter,
            "at half of it p99 is {}: {ratio:.2} × the p99 of one ask in flight ({}; the aim is {P99_FACTOR:.0} ×)",
            time(p99 as f64),
            time(self.unloaded_p99_ns as f64)
        )?;
        if let Some(ratio) = self.floor_ratio_p99 {
            write!(formatter, ", {ratio:.2} × the bare ring's under the same schedule")?;
        }
        writeln!(formatter)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::measure::{Latencies, Sample, Usage};
    use crate::rounds::Round;
    use crate::scenario::Spin;

    fn setting() -> Setting {
        Setting {
            pods: Vec::new(),
            pod_cpu: 0,
            client_cpu: 1,
            spin: Spin::Always,
            rounds: 5,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            floor: false,
        }
    }

    /// A server whose median grows as that of a queue with one server of `capacity` per second.
    fn queue(capacity: f64) -> impl FnMut(&Scenario, &Setting) -> anyhow::Result<Report> {
        move |scenario, setting| {
            let utilisation = match scenario.pace {
                Pace::Open { rate_per_second } => rate_per_second / capacity,
                Pace::Closed { .. } => 0.0,
            };
            let ns = if utilisation < 1.0 { 10_000.0 / (1.0 - utilisation) } else { 1e9 };
            let mut latencies = Latencies::new();
            latencies.record_many(ns as u64, 1000);
            let sample = Sample::new(1000, Duration::from_secs(1), latencies, Usage::default());
            let rounds = vec![Round { floor: None, subject: sample, repeats: 0 }; setting.rounds as usize];
            Ok(Report::new(scenario, setting, None, &rounds))
        }
    }

    #[test]
    fn the_knee_of_a_queue_is_at_half_of_its_capacity() {
        let (reports, found) = sweep(&scenario(1000, 64), 10_000.0, &setting(), &mut queue(1e6)).unwrap();
        let knee = found.knee_rate_per_second.unwrap();
        assert!((500_000.0 / STEP_FACTOR..=500_000.0).contains(&knee), "{knee}");
        let last = reports.last().unwrap();
        assert!(last.scenario.contains(&format!("rate-{:.0}", knee / 2.0)), "{}", last.scenario);
        assert_eq!(last.rounds.len(), HALF_ROUNDS as usize);
        assert!((1.0..1.4).contains(&found.p99_ratio.unwrap()), "a quarter of the capacity: {found:?}");
        assert!(found.to_string().contains("knee: "));
    }

    #[test]
    fn a_first_rate_beyond_the_knee_is_said() {
        let (reports, found) = sweep(&scenario(1000, 64), 10_000.0, &setting(), &mut queue(12_000.0)).unwrap();
        assert_eq!((reports.len(), found.knee_rate_per_second, found.p99_ratio), (2, None, None));
        assert!(found.to_string().contains("--from"), "{found}");
    }

    #[test]
    fn a_server_without_a_knee_ends_the_sweep() {
        let mut tried = 0;
        let mut measure = |scenario: &Scenario, setting: &Setting| {
            tried += 1;
            queue(f64::INFINITY)(scenario, setting)
        };
        sweep(&scenario(1000, 64), 10.0, &setting(), &mut measure).unwrap();
        assert_eq!(tried, STEPS_MAX + 2);
    }
}
