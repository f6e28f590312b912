//! Prints the table, and says what to do.

use crate::baseline::{Baseline, FILE};
use crate::callgrind::{Counted, profile_of};
use crate::judge::{Verdict, judge};

/// Prints the table. False if the check fails; `all` says that every operation was counted.
pub fn print(baseline: &Baseline, counted: &Counted, all: bool) -> bool {
    let width = counted.operations.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    println!("{:<width$}  {:>10}  {:>10}  {:>8}  verdict", "instructions of one", "recorded", "now", "change");
    let mut found = Vec::new();
    for (name, now) in &counted.operations {
        let known = baseline.operations.iter().find(|known| known.name == *name);
        let tolerance = known.and_then(|known| known.tolerance_percent).unwrap_or(baseline.tolerance_percent);
        let recorded = known.map(|known| known.instructions);
        let verdict = judge(recorded, *now, tolerance);
        found.push((*name, verdict));
        let change = recorded.map(|recorded| format!("{:+.1} %", (now / recorded - 1.0) * 100.0)).unwrap_or_default();
        let recorded = recorded.map(|recorded| format!("{recorded:.1}")).unwrap_or_else(|| "none".to_owned());
        let verdict = match verdict {
            Verdict::Same => "ok".to_owned(),
            Verdict::Dearer => format!("DEARER by more than {tolerance} %"),
            Verdict::Cheaper => "cheaper".to_owned(),
            Verdict::Unrecorded => "NOT RECORDED".to_owned(),
        };
        println!("{name:<width$}  {recorded:>10}  {now:>10.1}  {change:>8}  {verdict}");
    }
    let gone: Vec<_> = baseline.operations.iter().map(|known| known.name.as_str()).collect();
    let gone = gone.into_iter().filter(|name| all && !counted.operations.iter().any(|(known, _)| known == name));
    explain(baseline, counted, &found, &gone.collect::<Vec<_>>())
}

fn explain(baseline: &Baseline, counted: &Counted, found: &[(&str, Verdict)], gone: &[&str]) -> bool {
    let of = |wanted: Verdict| -> Vec<&str> {
        found.iter().filter(|(_, verdict)| *verdict == wanted).map(|(name, _)| *name).collect()
    };
    let (dearer, cheaper, unrecorded) = (of(Verdict::Dearer), of(Verdict::Cheaper), of(Verdict::Unrecorded));
    println!();
    let different = baseline.recorded_with.differences(&counted.machine);
    if !different.is_empty() && !baseline.operations.is_empty() {
        println!("Recorded with {}: part of any change may come from that.", different.join("; "));
    }
    if let Some(first) = dearer.first() {
        println!(
            "{} take more instructions than recorded.\n`callgrind_annotate {}` shows where they are. Make the \
             change cheaper, or, if it is worth its price, run `.ci/instructions --record` and say why in the commit.",
            dearer.join(", "),
            profile_of(first).display()
        );
    }
    if !cheaper.is_empty() {
        println!(
            "{} take fewer than recorded: run `.ci/instructions --record`, so that it stays so.",
            cheaper.join(", ")
        );
    }
    if !unrecorded.is_empty() || !gone.is_empty() {
        let names = [unrecorded.as_slice(), gone].concat().join(", ");
        println!("The operations and {FILE} do not match ({names}): run `.ci/instructions --record`.");
    }
    let passes = dearer.is_empty() && unrecorded.is_empty() && gone.is_empty();
    if passes && cheaper.is_empty() {
        println!("All {} counts are as recorded.", found.len());
    }
    passes
}
