//! Compares two counts. `tests/tidy.rs` shows that it can fail.

/// Differences up to this are no finding, however cheap the operation is.
const SLACK_INSTRUCTIONS: f64 = 2.0;

/// What one comparison says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Same,
    Dearer,
    Cheaper,
    Unrecorded,
}

/// Compares a count with the recorded one.
pub fn judge(recorded: Option<f64>, now: f64, tolerance_percent: f64) -> Verdict {
    let Some(recorded) = recorded else { return Verdict::Unrecorded };
    let allowed = (recorded * tolerance_percent / 100.0).max(SLACK_INSTRUCTIONS);
    match now - recorded {
        more if more > allowed => Verdict::Dearer,
        more if more < -allowed => Verdict::Cheaper,
        _ => Verdict::Same,
    }
}
