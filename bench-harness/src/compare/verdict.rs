//! Better, worse, noise, or not comparable: one verdict for each scenario of two runs.

use core::fmt;

use serde::Serialize;
use serde_json::Value;

use super::noise::{Change, drift, enough};
use super::read::{Measured, RunFile};
use crate::report::Machine;
use crate::rounds::median;

/// Two runs of the very same program differ by this much through where memory lies and what else runs on the host: a
/// smaller change says nothing, however well the rounds of each run agree.
const BAND_LEAST: f64 = 0.05;

/// One scenario of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowChange {
    /// Its name.
    pub scenario: String,
    /// Operations per second.
    pub operations_per_second: Option<Change>,
    /// Median latency.
    pub p50: Option<Change>,
    /// 99th percentile of the latencies.
    pub p99: Option<Change>,
    /// The ratio to the floor.
    pub floor_ratio: Option<Change>,
    /// What to make of it.
    pub verdict: Verdict,
}

/// What to make of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verdict {
    /// Something is better beyond the noise, and nothing worse.
    Better {
        /// Which figures.
        figures: Vec<&'static str>,
    },
    /// Something is worse beyond the noise.
    Worse {
        /// Which figures.
        figures: Vec<&'static str>,
        /// Which are better at the same time.
        better: Vec<&'static str>,
    },
    /// Nothing left its noise band.
    WithinNoise,
    /// The two were not measured alike, or one must not be used.
    NotComparable {
        /// What differs.
        reason: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Better { figures } => write!(formatter, "better: {}", figures.join(", ")),
            Self::Worse { figures, better } if better.is_empty() => write!(formatter, "WORSE: {}", figures.join(", ")),
            Self::Worse { figures, better } => {
                write!(formatter, "WORSE: {}; better: {}", figures.join(", "), better.join(", "))
            }
            Self::WithinNoise => formatter.write_str("within noise"),
            Self::NotComparable { reason } => write!(formatter, "not comparable: {reason}"),
        }
    }
}

/// One row for each scenario of either run, in the order of the first.
pub(super) fn rows(before: &RunFile, after: &RunFile) -> Vec<RowChange> {
    let find = |run: &RunFile, name: &str| run.rows.iter().position(|row| row.name == name);
    let machine = other_machine(&before.machine, &after.machine);
    let clock_ns = before.machine.clock_ns.max(after.machine.clock_ns);
    let both = before.rows.iter().map(|row| match find(after, &row.name) {
        Some(at) => compare(row, &after.rows[at], machine.clone(), clock_ns),
        None => alone(row, "only in A"),
    });
    let new = after.rows.iter().filter(|row| find(before, &row.name).is_none()).map(|row| alone(row, "only in B"));
    both.chain(new).collect()
}

fn alone(row: &Measured, reason: &str) -> RowChange {
    RowChange {
        scenario: row.name.clone(),
        operations_per_second: None,
        p50: None,
        p99: None,
        floor_ratio: None,
        verdict: Verdict::NotComparable { reason: reason.to_owned() },
    }
}

/// What differs between two machines, if anything that moves figures does.
fn other_machine(before: &Machine, after: &Machine) -> Option<String> {
    let differs = |what: &str, before: &str, after: &str| {
        (before != after).then(|| format!("{what} ({before} in A, {after} in B)"))
    };
    let kind = |machine: &Machine| if machine.virtual_machine { "virtual" } else { "physical" };
    let build = |machine: &Machine| if machine.optimised { "optimised" } else { "not optimised" };
    let differences: Vec<String> = [
        differs("processor", &before.processor, &after.processor),
        differs("number of processors", &before.processors.to_string(), &after.processors.to_string()),
        differs("machine", kind(before), kind(after)),
        differs("kernel", &before.kernel, &after.kernel),
        differs("build", build(before), build(after)),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!differences.is_empty()).then(|| format!("other {}", differences.join(", ")))
}

fn other_setting(before: &Measured, after: &Measured) -> Option<String> {
    let value = |row: &Measured, key: &str| {
        row.circumstances.iter().find(|(name, _)| name == key).map_or(Value::Null, |(_, value)| value.clone())
    };
    let mut keys: Vec<&str> = before.circumstances.iter().chain(&after.circumstances).map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.dedup();
    let differences: Vec<String> = keys
        .into_iter()
        .filter(|key| value(before, key) != value(after, key))
        .map(|key| format!("{key} ({} in A, {} in B)", value(before, key), value(after, key)))
        .collect();
    (!differences.is_empty()).then(|| format!("other setting: {}", differences.join(", ")))
}

/// What keeps the figures of two rows from being compared.
fn not_comparable(before: &Measured, after: &Measured, machine: Option<String>) -> Option<String> {
    let refused = match (before.refused, after.refused) {
        (false, false) => None,
        (true, false) => Some("refused in A: the harness was the bottleneck".to_owned()),
        (false, true) => Some("refused in B: the harness was the bottleneck".to_owned()),
        (true, true) => Some("refused in both: the harness was the bottleneck".to_owned()),
    };
    let (rounds_before, rounds_after) = (before.rounds.count, after.rounds.count);
    let few = (!enough(rounds_before, rounds_after))
        .then(|| format!("too few rounds ({rounds_before} in A, {rounds_after} in B; five of each are enough)"));
    machine.or_else(|| other_setting(before, after)).or(refused).or(few)
}

fn compare(before: &Measured, after: &Measured, machine: Option<String>, clock_ns: f64) -> RowChange {
    let (a, b) = (&before.rounds, &after.rounds);
    // A floor of another kind says nothing of how the machine drifted, nor is its ratio the same figure.
    let same_floor = before.floor == after.floor;
    let drifted = |before: &[f64], after: &[f64]| if same_floor { drift(before, after) } else { 0.0 };
    // A latency contains one reading of the clock.
    let clock = |rounds: &[f64]| median(rounds.iter().copied()).filter(|ns| *ns > 0.0).map_or(0.0, |ns| clock_ns / ns);
    let least = |drift: f64, clock: f64| BAND_LEAST.max(drift).max(if clock.is_finite() { clock } else { 0.0 });
    let rate_least = least(drifted(&a.floor_operations_per_second, &b.floor_operations_per_second), 0.0);
    let p50_least = least(drifted(&a.floor_p50, &b.floor_p50), clock(&a.p50).max(clock(&b.p50)));
    let p99_least = least(drifted(&a.floor_p99, &b.floor_p99), clock(&a.p99).max(clock(&b.p99)));
    let row = RowChange {
        scenario: before.name.clone(),
        operations_per_second: Change::of(&a.operations_per_second, &b.operations_per_second, rate_least),
        p50: Change::of(&a.p50, &b.p50, p50_least),
        p99: Change::of(&a.p99, &b.p99, p99_least),
        floor_ratio: Change::of(&a.floor_ratio, &b.floor_ratio, BAND_LEAST).filter(|_| same_floor),
        verdict: Verdict::WithinNoise,
    };
    let verdict = match not_comparable(before, after, machine) {
        Some(reason) => Verdict::NotComparable { reason },
        None => row.judge(before.errors == 0 && after.errors > 0),
    };
    RowChange { verdict, ..row }
}

impl RowChange {
    fn judge(&self, has_new_errors: bool) -> Verdict {
        let (mut better, mut worse) = (Vec::new(), Vec::new());
        for (figure, change, more_is_better) in [
            ("ops/s", self.operations_per_second, true),
            ("p50", self.p50, false),
            ("p99", self.p99, false),
            ("floor ratio", self.floor_ratio, false),
        ] {
            match change {
                Some(change) if change.counts() && (change.change > 0.0) == more_is_better => better.push(figure),
                Some(change) if change.counts() => worse.push(figure),
                _ => {}
            }
        }
        if has_new_errors {
            worse.push("errors");
        }
        match (worse.is_empty(), better.is_empty()) {
            (true, true) => Verdict::WithinNoise,
            (true, false) => Verdict::Better { figures: better },
            (false, _) => Verdict::Worse { figures: worse, better },
        }
    }
}
