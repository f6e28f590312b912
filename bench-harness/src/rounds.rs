//! Alternates rounds of the floor and of the subject, so that both see the same good and bad spells of the machine, and
//! repeats rounds that others disturbed. Called by [`crate::run`]; what a round does comes in as closures.

use serde::Serialize;

use crate::measure::Sample;

/// How often one round is tried again because it was disturbed; after that it counts, and says so.
pub const REPEATS_MAX: u32 = 3;

/// A round of the floor and the round of the subject that followed it.
#[derive(Clone, Debug)]
pub struct Round {
    /// The floor, if one runs.
    pub floor: Option<Sample>,
    /// The subject.
    pub subject: Sample,
    /// How often this round was tried before.
    pub repeats: u32,
}

impl Round {
    /// Whether others disturbed the floor or the subject.
    pub fn disturbed(&self) -> bool {
        self.subject.usage.disturbed() || self.floor.as_ref().is_some_and(|floor| floor.usage.disturbed())
    }
}

/// Where a run stands, for the progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The round, from 1.
    pub round: u32,
    /// Rounds in all.
    pub rounds: u32,
    /// How often this round was tried before.
    pub repeats: u32,
    /// Whether the floor or the subject runs now.
    pub floor: bool,
}

/// Runs `rounds` rounds, each of `floor` (if there is one) and then `subject`.
pub fn run(
    rounds: u32,
    mut floor: Option<&mut dyn FnMut() -> anyhow::Result<Sample>>,
    subject: &mut dyn FnMut() -> anyhow::Result<Sample>,
    progress: &mut dyn FnMut(Progress, Option<&Round>),
) -> anyhow::Result<Vec<Round>> {
    let mut kept = Vec::with_capacity(rounds as usize);
    for number in 1..=rounds {
        let mut repeats = 0;
        loop {
            let mut at = Progress { round: number, rounds, repeats, floor: true };
            let floor = match &mut floor {
                Some(floor) => {
                    progress(at, kept.last());
                    Some(floor()?)
                }
                None => None,
            };
            at.floor = false;
            progress(at, kept.last());
            let round = Round { floor, subject: subject()?, repeats };
            if round.disturbed() && repeats < REPEATS_MAX {
                repeats += 1;
                continue;
            }
            kept.push(round);
            break;
        }
    }
    Ok(kept)
}

/// The median of the values that are numbers; of an even count the mean of the middle two. Nothing of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some(values[middle - 1].midpoint(values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::measure::{Latencies, Usage};

    fn sample(operations: u64, involuntary_switches: u64) -> Sample {
        let usage = Usage { involuntary_switches, elapsed_ns: 1_000_000_000, processors: 1, ..Usage::default() };
        Sample::new(operations, Duration::from_secs(1), Latencies::new(), usage)
    }

    #[test]
    fn floor_and_subject_alternate() {
        let order = core::cell::RefCell::new(String::new());
        let mut floor = || {
            order.borrow_mut().push('f');
            Ok(sample(1, 0))
        };
        let mut subject = || {
            order.borrow_mut().push('s');
            Ok(sample(1, 0))
        };
        let rounds = run(3, Some(&mut floor), &mut subject, &mut |_, _| {}).unwrap();
        assert_eq!((rounds.len(), order.into_inner().as_str()), (3, "fsfsfs"));
    }

    #[test]
    fn a_disturbed_round_is_tried_again() {
        let mut tries = 0;
        let mut subject = || {
            tries += 1;
            Ok(sample(tries, if tries == 2 { 10_000 } else { 0 }))
        };
        let rounds = run(3, None, &mut subject, &mut |_, _| {}).unwrap();
        assert_eq!(rounds.iter().map(|round| round.subject.operations).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(rounds.iter().map(|round| round.repeats).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn a_machine_that_is_always_disturbed_ends_with_rounds_that_say_so() {
        let mut tries = 0;
        let mut subject = || {
            tries += 1;
            Ok(sample(1, 10_000))
        };
        let rounds = run(2, None, &mut subject, &mut |_, _| {}).unwrap();
        assert!(rounds.iter().all(Round::disturbed));
        assert_eq!(tries, 2 * (1 + REPEATS_MAX));
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([f64::NAN]), None);
    }
}
