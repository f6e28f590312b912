//! What the project has set itself as a target: the most that a scenario may take, measured in its floor. The page shows
//! it beside the figure, the JSON has it as `floor_ratio_target`.

use crate::scenario::{Handler, Operation, Pace, Place, Scenario};

/// The largest `floor_ratio` that meets the target; nothing where there is none, as for an open loop, whose pace is
/// given, or for handlers that yield, which no floor does.
pub fn floor_ratio_max(scenario: &Scenario) -> Option<f64> {
    let Pace::Closed { outstanding } = scenario.pace else { return None };
    if scenario.handler != Handler::Ready {
        return None;
    }
    let crowd = scenario.entities >= 100_000;
    match (scenario.operation, scenario.place, outstanding) {
        (Operation::Ask, Place::Remote, 1) => Some(1.5),
        (Operation::Ask, Place::Remote, _) => Some(3.3),
        (Operation::Ask, Place::Local, 1) => Some(2.0),
        (Operation::Ask, Place::Local, _) => Some(if crowd { 1.1 } else { 1.5 }),
        (Operation::Ask, Place::CrossCore, 1) => Some(3.5),
        (Operation::Tell, Place::Local, _) => Some(2.5),
        (Operation::Start, Place::Local, _) => Some(1.4),
        _ => None,
    }
}

/// The same of a row of the stream engine.
pub(crate) fn stream_ratio_max(row: &str) -> Option<f64> {
    (row == "fused-10").then_some(1.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_canonical_scenario_that_a_floor_does_too_has_a_target() {
        for scenario in Scenario::canonical() {
            let target = floor_ratio_max(&scenario);
            assert_eq!(target.is_some(), scenario.handler == Handler::Ready, "{}", scenario.name());
        }
    }

    #[test]
    fn a_given_pace_has_no_target() {
        let closed = Scenario::closed(Operation::Ask, Place::Remote, 1);
        assert_eq!(floor_ratio_max(&closed), Some(1.5));
        assert_eq!(floor_ratio_max(&Scenario { pace: Pace::Open { rate_per_second: 1e3 }, ..closed }), None);
    }
}
