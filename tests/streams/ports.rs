//! What ports allow and show in each state of their connection: the table of `GraphInterpreterPortsSpec`, all 31 cases,
//! once with a plain wire, once with an ordinary stage and once with an element-wise stage between the two ports.
//!
//! The table is in the compact notation of the reference. `[events state X=illegal]` checks: the events since the last
//! check; the bits `out.is_available out.is_closed in.is_available in.has_been_pulled in.is_closed` (`-`: not checked);
//! and which calls are illegal. `clr` forgets events; `step` runs one event (of each wire), `ALL` runs to the end.

use atoll::stream::Attributes;
use atoll::stream::testkit::{DownstreamProbe, InterpreterBench, UpstreamProbe};

use super::bench_support::*;

const TABLE: &[(&str, &str)] = &[
    (
        "full cycle",
        "[∅ 00000 X=push,grab] → pull → [∅ 00010 X=pull,push,grab] → ALL → [Req 10010 X=pull,grab] → push → [∅ 00010 X=pull,push,grab] → ALL → [Next0 00100 X=push] → grab→0 → [∅ 00000 X=push,grab]",
    ),
    ("drop ungrabbed element on pull", "pull → step → clr → push → step → [Next0] → pull → [X=grab]"),
    (
        "complete while downstream is active",
        "[∅ 00000] → complete → [∅ 01000 X=push] → ALL → [Compl 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "complete while upstream is active",
        "pull → ALL → [Req 10010] → complete → [∅ 01010 X=push] → ALL → [Compl 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "complete while pull is in flight",
        "pull → [∅ 00010] → complete → [∅ 01010 X=push] → ALL → [Compl 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "complete while push is in flight",
        "pull → ALL → clr → push → [∅ 00010] → complete → [∅ 01010 X=push] → step → [Next0 01100 X=push] → grab→0 → [X=grab] → step → [Compl 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "complete while push is in flight and keep ungrabbed element",
        "pull → ALL → clr → push → complete → step → [Next0] → step → [Compl 01101] → grab→0",
    ),
    (
        "complete while push is in flight and pulled after the push",
        "pull → ALL → clr → push → complete → step → [Next0] → grab→0 → pull → ALL → [Compl 01001 X=pull,push,grab]",
    ),
    ("swallow pull while completing", "complete → pull → [---1-] → ALL → [Compl 01001 X=pull,push,grab]"),
    (
        "cancel while downstream is active",
        "[∅ 00000] → cancel → [∅ 00001 X=pull,grab] → ALL → [Cancel 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "cancel while upstream is active",
        "pull → ALL → [Req 10010] → cancel → [∅ 10001 X=pull,grab] → ALL → [Cancel 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "cancel while pull is in flight",
        "pull → [∅ 00010] → cancel → [∅ 00001 X=push,grab] → ALL → [Cancel 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "cancel while push is in flight",
        "pull → ALL → clr → push → [∅ 00010] → cancel → [∅ 00001 X=pull] → ALL → [Cancel 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow push while cancelling",
        "pull → ALL → clr → cancel → push → [0----] → ALL → [Cancel 01001 X=pull,push,grab]",
    ),
    (
        "clear ungrabbed element even when cancelled",
        "pull → ALL → clr → push → ALL → [Next0] → cancel → [∅ 00001 X=pull,grab] → ALL → [Cancel 01001 X=pull,push,grab]",
    ),
    (
        "swallow any completion if they are concurrent (cancel first)",
        "cancel → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow any completion if they are concurrent (complete first)",
        "complete → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow completion from a push-complete if cancelled while in flight",
        "pull → ALL → clr → push → complete → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow completion from a push-complete if cancelled after onPush",
        "pull → ALL → clr → push → complete → step → [Next0 01100 X=push] → grab→0 → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    ("not allow to grab element before it arrives", "pull → ALL → push → [X=grab]"),
    ("not allow to grab element if already cancelled", "pull → ALL → push → cancel → ALL → [X=grab]"),
    (
        "failure while downstream is active",
        "[∅ 00000] → fail → [∅ 01000 X=push] → ALL → [Err 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "failure while upstream is active",
        "pull → ALL → [Req 10010] → fail → [∅ 01010 X=push] → ALL → [Err 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "failure while pull is in flight",
        "pull → [∅ 00010] → fail → [∅ 01010 X=push] → ALL → [Err 01001 X=pull,push,grab] → cancel → ALL → [∅ 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "failure while push is in flight",
        "pull → ALL → clr → push → [∅ 00010] → fail → [∅ 01010 X=push] → step → [Next0 01100 X=push] → grab→0 → [X=grab] → step → [Err 01001 X=pull,push,grab] → complete → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "failure while push is in flight and keep ungrabbed element",
        "pull → ALL → clr → push → fail → step → [Next0] → step → [Err 01101] → grab→0",
    ),
    ("swallow pull while failing", "fail → pull → [---1-] → ALL → [Err 01001 X=pull,push,grab]"),
    (
        "swallow any failure completion if they are concurrent (cancel first)",
        "cancel → fail → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow any failure completion if they are concurrent (complete first)",
        "fail → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow failure from a push-then-fail if cancelled while in flight",
        "pull → ALL → clr → push → fail → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
    (
        "swallow failure from a push-then-fail if cancelled after onPush",
        "pull → ALL → clr → push → fail → step → [Next0 01100 X=push] → grab→0 → cancel → ALL → [∅ 01001 X=pull,push,grab]",
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Wire,
    Stage,
    Elementwise,
}

struct Ports {
    bench: InterpreterBench,
    out: UpstreamProbe<u64>,
    inlet: DownstreamProbe<u64>,
    step: u32,
    /// Pulls go past the stage between: it may be asked although downstream cancelled right after it pulled.
    pulls_go_past: bool,
}

impl Ports {
    fn new(between: Between, mode: &Attributes) -> Ports {
        let mut bench = InterpreterBench::with_attributes(mode.clone());
        let out = bench.upstream::<u64>("out");
        let middle = match between {
            Between::Wire => None,
            Between::Stage => Some(pass::<u64>(&mut bench)),
            Between::Elementwise => Some(map(&mut bench, |element: u64| element)),
        };
        let inlet = bench.leaving_downstream::<u64>("in");
        match middle {
            None => bench.connect(out.outlet(), inlet.inlet()),
            Some(stage) => {
                bench.connect(out.outlet(), stage.inlet(0));
                bench.connect(stage.outlet(0), inlet.inlet());
            }
        }
        bench.start().unwrap();
        bench.set_event_limit(0);
        let step = if between == Between::Wire { 1 } else { 2 };
        let transparent = mode.mandatory::<atoll::stream::attributes::TransparentPull>().0;
        Ports { bench, out, inlet, step, pulls_go_past: between == Between::Elementwise && transparent }
    }

    fn state(&mut self) -> String {
        let Ports { bench, out, inlet, .. } = self;
        let bits = [
            out.is_available(bench),
            out.is_closed(bench),
            inlet.is_available(bench),
            inlet.has_been_pulled(bench),
            inlet.is_closed(bench),
        ];
        bits.map(|bit| if bit { '1' } else { '0' }).iter().collect()
    }

    fn check(&mut self, expected: &str, at: &str) {
        let mut events_checked = false;
        for part in expected.split(' ') {
            if let Some(calls) = part.strip_prefix("X=") {
                let before = self.state();
                for call in calls.split(',') {
                    let Ports { bench, out, inlet, .. } = self;
                    let illegal = match call {
                        "pull" => inlet.pull(bench).is_err(),
                        "push" => out.push(bench, 9).is_err(),
                        "grab" => inlet.grab(bench).is_none(),
                        other => panic!("no such call: {other}"),
                    };
                    assert!(illegal, "{call} should be illegal: {at}");
                    assert_eq!(self.state(), before, "{call} changed something: {at}");
                }
            } else if part.starts_with(['0', '1', '-']) {
                let state = self.state();
                let fits = part.chars().zip(state.chars()).all(|(want, is)| want == '-' || want == is);
                assert!(fits, "state {state}, expected {part}: {at}");
            } else {
                let expected = match part {
                    "∅" => "",
                    "Req" => "Request out",
                    "Next0" => "Arrived in",
                    "Compl" => "Complete in",
                    "Err" => "Failure in boom",
                    "Cancel" => "Cancel out: no more",
                    other => panic!("no such event: {other}"),
                };
                events_checked = true;
                let mut events = self.bench.events_text();
                if self.pulls_go_past && expected.starts_with("Cancel") {
                    events = events.replace(", Request out", "");
                }
                assert_eq!(events, expected, "{at}");
            }
        }
        let _ = events_checked;
    }

    fn act(&mut self, action: &str, at: &str) {
        let Ports { bench, out, inlet, step, .. } = self;
        match action {
            "pull" => inlet.pull(bench).unwrap_or_else(|error| panic!("{error}: {at}")),
            "push" => out.push(bench, 0).unwrap_or_else(|error| panic!("{error}: {at}")),
            "complete" => out.complete(bench),
            "fail" => out.fail(bench, boom()),
            "cancel" => inlet.cancel(bench),
            "grab→0" => assert_eq!(inlet.grab(bench), Some(0), "{at}"),
            "clr" => drop(bench.last_events()),
            "step" => drop(bench.step(*step)),
            "ALL" => drop(bench.step(1000)),
            check => match check.strip_prefix('[').and_then(|check| check.strip_suffix(']')) {
                Some(check) => self.check(check, at),
                None => panic!("no such action: {check}"),
            },
        }
    }

    fn run(&mut self, name: &str, script: &str) {
        let script = script.replace("grab→0", "grab0");
        let mut done = String::new();
        for action in script.split('→').map(str::trim) {
            let action = if action == "grab0" { "grab→0" } else { action };
            done.push_str(action);
            let at = format!("{name}: {done}");
            self.act(action, &at);
            done.push_str(" → ");
        }
    }
}

fn run_table(between: Between) {
    for mode in exact_modes() {
        for (name, script) in TABLE {
            Ports::new(between, &mode).run(name, script);
        }
    }
    // Single steps have an order; what is left when all is done has none.
    for mode in all_modes() {
        for (name, script) in TABLE.iter().filter(|(_, script)| !script.contains("step") || between == Between::Wire) {
            Ports::new(between, &mode).run(name, script);
        }
    }
}

#[test]
fn a_wire_behaves_as_the_table_says() {
    run_table(Between::Wire);
}

#[test]
fn an_ordinary_stage_between_changes_nothing() {
    run_table(Between::Stage);
}

#[test]
fn an_elementwise_stage_between_changes_nothing() {
    run_table(Between::Elementwise);
}

/// The checker sees a table that is wrong.
#[test]
fn a_wrong_table_is_seen() {
    for wrong in ["[∅ 10000]", "pull → [X=grab] → ALL → [∅]", "[X=pull]", "pull → ALL → [Req 10011]"] {
        let run = std::panic::catch_unwind(|| Ports::new(Between::Wire, &Attributes::none()).run("wrong", wrong));
        assert!(run.is_err(), "{wrong}");
    }
}
