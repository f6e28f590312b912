//! Verdicts on planted changes, and what files are refused. The files are those that the report writes.

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::floors::Floor;
use crate::measure::{Latencies, Sample, Usage};
use crate::report::{Report, ReportFile, ReportKind};
use crate::rounds::Round;
use crate::scenario::{Operation, Pace, Place, Scenario, Setting, Spin};
use crate::schedule::Tally;

/// Rounds as a scenario has them: the figures of the subject and of the floor, each with a little noise.
#[derive(Clone, Copy)]
struct Planted {
    operations: f64,
    p50: f64,
    p99: f64,
    floor_operations: f64,
    errors: u64,
    rounds: usize,
    late_sends: u64,
}

const USUAL: Planted = Planted {
    operations: 1e6,
    p50: 30_000.0,
    p99: 80_000.0,
    floor_operations: 3e6,
    errors: 0,
    rounds: 5,
    late_sends: 0,
};

/// One round is this much beside another.
const WOBBLE: [f64; 7] = [1.0, 1.02, 0.99, 1.01, 0.985, 1.005, 0.995];

fn sample(operations: f64, p50: f64, p99: f64) -> Sample {
    let mut latencies = Latencies::new();
    latencies.record_many(p50 as u64, 980);
    latencies.record_many(p99 as u64, 20);
    let usage = Usage { elapsed_ns: 1_000_000_000, processors: 2, ..Usage::default() };
    Sample::new(operations as u64, Duration::from_secs(1), latencies, usage)
}

fn setting() -> Setting {
    Setting {
        pods: Vec::new(),
        pod_cpu: 0,
        client_cpu: 1,
        spin: Spin::For(Duration::from_micros(50)),
        rounds: 5,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
        floor: true,
    }
}

fn report(scenario: &Scenario, setting: &Setting, planted: Planted) -> Report {
    let round = |number: usize| {
        let wobble = WOBBLE[number % WOBBLE.len()];
        let mut subject = sample(planted.operations * wobble, planted.p50 * wobble, planted.p99 * wobble);
        subject.errors = planted.errors;
        subject.sends = (planted.late_sends > 0).then(|| Tally {
            intended: 1_000,
            sent: 1_000,
            late_sends: planted.late_sends,
            ..Tally::default()
        });
        let floor = sample(planted.floor_operations * wobble, 10_000.0, 20_000.0);
        Round { floor: Some(floor), subject, repeats: 0 }
    };
    let rounds: Vec<Round> = (0..planted.rounds).map(round).collect();
    Report::new(scenario, setting, Some(&Floor::of(scenario, setting, (100, 80))), &rounds)
}

fn file(reports: Vec<Report>) -> serde_json::Value {
    let mut value = serde_json::to_value(ReportFile::new(reports).unwrap()).unwrap();
    // Whatever machine the tests run on.
    value["machine"] = serde_json::json!({
        "processor": "test", "processors": 2, "virtual_machine": true, "kernel": "6.1", "clock_ns": 20.0,
        "optimised": true
    });
    value
}

fn usual() -> Scenario {
    Scenario::closed(Operation::Ask, Place::Remote, 64)
}

fn planted(planted: Planted) -> serde_json::Value {
    file(vec![report(&usual(), &setting(), planted)])
}

fn parse(value: &serde_json::Value) -> RunFile {
    RunFile::parse("test.json".to_owned(), value.to_string().as_bytes()).unwrap()
}

fn compared(before: &serde_json::Value, after: &serde_json::Value) -> Comparison {
    Comparison::new(&parse(before), &parse(after)).unwrap()
}

fn verdict(before: &serde_json::Value, after: &serde_json::Value) -> String {
    compared(before, after).rows[0].verdict.to_string()
}

#[test]
fn verdicts_on_planted_changes() {
    let before = planted(USUAL);
    let slower = Planted { operations: 0.7e6, ..USUAL };
    for (what, after, expected) in [
        ("nothing", USUAL, "within noise"),
        ("4 % is less than two runs differ by", Planted { operations: 0.96e6, ..USUAL }, "within noise"),
        ("more rounds", Planted { rounds: 7, ..USUAL }, "within noise"),
        ("30 % fewer operations", slower, "WORSE: ops/s, floor ratio"),
        ("30 % more operations", Planted { operations: 1.3e6, ..USUAL }, "better: ops/s, floor ratio"),
        ("a longer tail", Planted { p99: 120_000.0, ..USUAL }, "WORSE: p99"),
        ("a shorter middle", Planted { p50: 20_000.0, ..USUAL }, "better: p50"),
        ("both", Planted { p50: 20_000.0, p99: 120_000.0, ..USUAL }, "WORSE: p99; better: p50"),
        // Machine and subject lose the same third: nothing happened to the program.
        ("a slower machine", Planted { operations: 0.67e6, floor_operations: 2e6, ..USUAL }, "within noise"),
        // The machine gains and the subject does not: the ratio tells.
        ("a faster machine, not used", Planted { floor_operations: 4e6, ..USUAL }, "WORSE: floor ratio"),
        ("errors", Planted { errors: 1, ..USUAL }, "WORSE: errors"),
        (
            "too few rounds",
            Planted { rounds: 3, ..slower },
            "not comparable: too few rounds (5 in A, 3 in B; five of each are enough)",
        ),
    ] {
        assert_eq!(verdict(&before, &planted(after)), expected, "{what}");
    }
}

#[test]
fn one_bad_round_is_noise() {
    let before = planted(USUAL);
    let mut after = before.clone();
    after["rounds"][2]["operations_per_second"] = 1e5.into();
    after["rounds"][2]["floor_ratio"] = 30.0.into();
    after["rounds"][2]["latency_ns"]["p99"] = 9_000_000.into();
    assert_eq!(verdict(&before, &after), "within noise");
}

#[test]
fn a_step_of_the_clock_is_noise_for_a_latency_of_nanoseconds() {
    let quick = Planted { operations: 19e6, floor_operations: 25e6, p50: 50.0, p99: 90.0, ..USUAL };
    let before = planted(quick);
    assert_eq!(verdict(&before, &planted(Planted { p50: 60.0, ..quick })), "within noise");
    assert_eq!(verdict(&before, &planted(Planted { p50: 100.0, ..quick })), "WORSE: p50");
}

#[test]
fn what_was_not_measured_alike_is_not_compared_and_says_why() {
    let before = planted(Planted { operations: 0.5e6, ..USUAL });
    let after = planted(USUAL);
    let with = |pointer: &str, value: serde_json::Value| {
        let mut changed = after.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    for (after, reason) in [
        (with("/machine/processor", "other".into()), "other processor (test in A, other in B)"),
        (with("/machine/kernel", "6.8".into()), "other kernel (6.1 in A, 6.8 in B)"),
        (with("/machine/processors", 64.into()), "other number of processors (2 in A, 64 in B)"),
        (with("/machine/optimised", false.into()), "other build"),
        (with("/setting/spin", "always".into()), "other setting: spin"),
        (with("/setting/client_cpu", 0.into()), "other setting: client_cpu (1 in A, 0 in B)"),
        (with("/parameters/payload_bytes", 512.into()), "other setting: payload_bytes (64 in A, 512 in B)"),
        (with("/scenario", "other".into()), "only in A"),
    ] {
        let verdict = verdict(&before, &after);
        assert!(verdict.starts_with("not comparable: ") && verdict.contains(reason), "{verdict} has no {reason}");
        assert!(!compared(&before, &after).is_worse());
    }
    let pace = Pace::Open { rate_per_second: 1_000.0 };
    let open =
        |late_sends| file(vec![report(&Scenario { pace, ..usual() }, &setting(), Planted { late_sends, ..USUAL })]);
    assert!(verdict(&open(1), &open(50)).contains("refused in B"));
}

#[test]
fn a_floor_of_another_kind_leaves_the_ratio_out() {
    let (before, mut after) = (planted(USUAL), planted(Planted { floor_operations: 9e6, ..USUAL }));
    after["floor"]["name"] = "another_ring".into();
    let row = &compared(&before, &after).rows[0];
    assert_eq!((row.floor_ratio, &row.verdict), (None, &Verdict::WithinNoise));
}

#[test]
fn all_scenarios_of_both_files_have_a_row() {
    let scenarios = Scenario::canonical();
    let of = |scenarios: &[Scenario], planted| {
        file(scenarios.iter().map(|scenario| report(scenario, &setting(), planted)).collect())
    };
    let comparison = compared(&of(&scenarios[..9], USUAL), &of(&scenarios[1..], Planted { p99: 200_000.0, ..USUAL }));
    let verdicts: Vec<(&str, String)> =
        comparison.rows.iter().map(|row| (row.scenario.as_str(), row.verdict.to_string())).collect();
    assert_eq!(verdicts.len(), 10);
    assert_eq!(verdicts[0], ("ask-remote-64", "not comparable: only in A".to_owned()));
    assert_eq!(verdicts[1], ("ask-remote-1", "WORSE: p99".to_owned()));
    assert_eq!(verdicts[9], ("start-local-1", "not comparable: only in B".to_owned()));
    let table = comparison.table();
    assert!(table.contains("+149.9 % ±") && table.contains("test.json") && table.contains("noise band"), "{table}");
}

#[test]
fn a_comparison_is_written_as_json() {
    let comparison = compared(&planted(USUAL), &planted(Planted { operations: 0.5e6, ..USUAL }));
    let json = serde_json::to_value(&comparison).unwrap();
    let row = &json["rows"][0];
    assert_eq!((&row["verdict"]["is"], &row["verdict"]["figures"][0]), (&"worse".into(), &"ops/s".into()));
    assert!(row["operations_per_second"]["change"].as_f64().unwrap() < -0.4, "{json}");
    assert!(row["operations_per_second"]["band"].as_f64().unwrap() > 0.0, "{json}");
}

#[test]
fn floors_and_streams_are_compared_too() {
    let machine = planted(USUAL)["machine"].clone();
    let head = |kind: &str| {
        serde_json::json!({
            "schema_version": 1, "kind": kind, "measured_at": "", "command_line": "", "machine": machine
        })
    };
    let stream = |ns: f64| {
        let mut value = head("streams");
        let round = serde_json::json!({ "ns_per_element": ns, "floor_ns": 1.0 });
        value["rows"] = serde_json::json!([{ "name": "fused-10", "floor": "std Iterator", "rounds": vec![round; 5] }]);
        value
    };
    assert_eq!(verdict(&stream(1.0), &stream(2.0)), "WORSE: ops/s, floor ratio");
    assert_eq!(verdict(&stream(1.0), &stream(1.0)), "within noise");
    let floors = [Floor::SpscPingPong { cpus: [0, 1] }, Floor::EntityStart { entities: 5, cpu: 0 }];
    let table = |operations: f64| {
        let rounds = vec![Round { floor: None, subject: sample(operations, 100.0, 200.0), repeats: 0 }; 5];
        let mut value =
            serde_json::to_value(crate::report::FloorTable::new(&floors, &[rounds.clone(), rounds])).unwrap();
        value["machine"] = machine.clone();
        value
    };
    let comparison = compared(&table(1_000.0), &table(500.0));
    assert_eq!(comparison.rows.len(), 2);
    assert!(comparison.rows.iter().all(|row| row.verdict.to_string() == "WORSE: ops/s"), "{:?}", comparison.rows);
    let error = Comparison::new(&parse(&stream(1.0)), &parse(&table(1.0))).unwrap_err().to_string();
    assert!(error.contains("the stream engine") && error.contains("floors"), "{error}");
}

#[test]
fn files_that_are_no_reports_are_refused_with_a_reason() {
    let text = |value: serde_json::Value| value.to_string();
    let changed = |field: &str, value: serde_json::Value| {
        let mut changed = planted(USUAL);
        changed[field] = value;
        text(changed)
    };
    let mut old = planted(USUAL);
    old.as_object_mut().unwrap().remove("schema_version");
    for (content, advice) in [
        (String::new(), "is no JSON"),
        ("not json".to_owned(), "is no JSON"),
        ("[1, 2]".to_owned(), "it is no object"),
        ("{}".to_owned(), "it has no schema_version"),
        (text(old), "has schema version none"),
        (changed("schema_version", 2.into()), "has schema version 2"),
        (changed("schema_version", "one".into()), "has schema version \"one\""),
        (changed("kind", "soup".into()), "no report of atoll-bench"),
        (changed("kind", "cluster".into()), "no rounds"),
        (changed("rounds", "many".into()), "no report of atoll-bench"),
        (changed("machine", serde_json::Value::Null), "no report of atoll-bench"),
    ] {
        let error = RunFile::parse("x.json".to_owned(), content.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(advice) && error.starts_with("x.json"), "{error} has no {advice}");
    }
    let error = RunFile::read(Path::new("/nowhere/x.json")).unwrap_err();
    assert!(matches!(error, ReadError::Unreadable { .. }), "{error}");
    assert_eq!(parse(&planted(USUAL)).kind, ReportKind::Scenarios);
}

/// Figures of rounds as odd as files may have them.
fn figures() -> impl Strategy<Value = Vec<(f64, u64, u64, Option<f64>)>> {
    let figure = prop_oneof![Just(0.0), 1e-9..1e12_f64, Just(1e300)];
    let latency = prop_oneof![Just(0_u64), 1..1_000_000_u64, Just(u64::MAX)];
    prop::collection::vec((figure, latency.clone(), latency, prop::option::of(0.0..100.0_f64)), 0..12)
}

fn with_figures(figures: &[(f64, u64, u64, Option<f64>)]) -> serde_json::Value {
    let mut value = planted(USUAL);
    let round = |(operations, p50, p99, ratio): &(f64, u64, u64, Option<f64>)| {
        serde_json::json!({
            "operations_per_second": operations, "latency_ns": { "p50": p50, "p99": p99 }, "floor_ratio": ratio,
            "floor_operations_per_second": operations * 2.0, "floor_latency_ns": { "p50": p99, "p99": p50 }
        })
    };
    value["rounds"] = figures.iter().map(round).collect::<Vec<_>>().into();
    value
}

proptest! {
    #[test]
    fn a_run_is_never_worse_or_better_than_itself(figures in figures()) {
        let file = with_figures(&figures);
        let comparison = compared(&file, &file);
        prop_assert!(!comparison.is_worse());
        let same = matches!(comparison.rows[0].verdict, Verdict::WithinNoise | Verdict::NotComparable { .. });
        prop_assert!(same, "{:?}", comparison.rows[0]);
    }

    #[test]
    fn nothing_is_worse_in_both_directions(before in figures(), after in figures()) {
        let (before, after) = (with_figures(&before), with_figures(&after));
        let worse = |comparison: Comparison| match comparison.rows[0].verdict.clone() {
            Verdict::Worse { figures, .. } => figures,
            _ => Vec::new(),
        };
        let there = worse(compared(&before, &after));
        let back = worse(compared(&after, &before));
        prop_assert!(!there.iter().any(|figure| back.contains(figure)), "{there:?} and {back:?}");
    }

    #[test]
    fn any_bytes_are_a_report_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RunFile::parse("x".to_owned(), &bytes);
    }
}
