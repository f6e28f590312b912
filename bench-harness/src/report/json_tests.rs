use core::time::Duration;

use super::*;
use crate::measure::Latencies;
use crate::scenario::{Operation, Pace, Spin};

fn sample(operations: u64, latency_ns: u64) -> Sample {
    let mut latencies = Latencies::new();
    latencies.record(latency_ns);
    let usage = Usage { cpu_ns: 2_000_000_000, elapsed_ns: 1_000_000_000, processors: 2, ..Usage::default() };
    Sample::new(operations, Duration::from_secs(1), latencies, usage)
}

fn setting() -> Setting {
    Setting {
        pods: Vec::new(),
        pod_cpu: 0,
        client_cpu: 1,
        spin: Spin::For(Duration::from_micros(50)),
        rounds: 3,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
        floor: true,
    }
}

fn round(subject: Sample, floor: Sample) -> Round {
    Round { floor: Some(floor), subject, repeats: 0 }
}

fn report(scenario: &Scenario, rounds: &[Round]) -> Report {
    Report::new(scenario, &setting(), Some(&Floor::of(scenario, &setting(), (100, 80))), rounds)
}

#[test]
fn the_object_has_the_promised_fields() {
    let scenario = Scenario::closed(Operation::Ask, Place::Remote, 64);
    let mut subject = sample(1_000, 500);
    subject.bytes_per_entity = Some(200.0);
    let report = report(&scenario, &[round(subject, sample(2_000, 100))]);
    let json = serde_json::to_value(ReportFile::new(vec![report.clone(), report]).unwrap()).unwrap();
    assert_eq!(json["scenario"], "ask-remote-64");
    assert_eq!(json["operations_per_second"], 1_000.0);
    for name in ["p50", "p90", "p99", "p99_9", "max"] {
        assert_eq!(json["latency_ns"][name], 500, "{name}");
    }
    assert_eq!((&json["errors"], &json["late_sends"]), (&0.into(), &0.into()));
    assert_eq!((json["floor_ratio"].as_f64(), json["floor_ratio_p99"].as_f64()), (Some(2.0), Some(5.0)));
    let floor = &json["floor"];
    assert_eq!((&floor["name"], &floor["ns_per_operation"]), (&"bare_ring".into(), &500_000.0.into()));
    assert_eq!((&floor["request_bytes"], &floor["latency_ns"]["p50"]), (&100.into(), &100.into()));
    assert_eq!((&json["cpu_ns_per_operation"], &json["bytes_per_entity"]), (&2e6.into(), &200.0.into()));
    assert_eq!((&json["schema_version"], &json["kind"]), (&1.into(), &"scenarios".into()));
    assert_eq!(json["floor_ratio_target"].as_f64(), Some(3.3));
    assert!(json.get("latencies").is_none() && floor.get("rounds").is_none(), "histograms stay out");
    assert!(json["refused"].is_null() && json["machine"]["processors"].as_u64() > Some(0));
    assert_eq!((json["rounds"].as_array().unwrap().len(), json["further"].as_array().unwrap().len()), (1, 1));
}

#[test]
fn figures_are_medians_and_ratios_compare_neighbours() {
    let scenario = Scenario::closed(Operation::Ask, Place::Local, 64);
    // The machine halves its speed in the second round: both suffer, the ratio stays.
    let rounds = [
        round(sample(1_000, 100), sample(3_000, 10)),
        round(sample(500, 200), sample(1_500, 20)),
        round(sample(1_100, 90), sample(3_300, 9)),
    ];
    let report = report(&scenario, &rounds);
    assert_eq!((report.operations_per_second, report.latency_ns.p50, report.latency_ns.max), (1_000.0, 100, 200));
    assert!((report.floor_ratio.unwrap() - 3.0).abs() < 1e-9, "slower than the floor is more than 1");
}

#[test]
fn one_remote_message_at_a_time_compares_median_latencies() {
    let scenario = Scenario::closed(Operation::Ask, Place::Remote, 1);
    let report = report(&scenario, &[round(sample(1_000, 150), sample(1_000, 100))]);
    assert_eq!(report.floor_ratio, Some(1.5));
    assert_eq!(report.floor.unwrap().ratio_basis, "latency_p50");
}

#[test]
fn work_time_replaces_processor_time_where_the_subject_counts_it() {
    let mut subject = sample(1_000, 1);
    subject.work_ns = Some(700_000);
    let report = report(&Scenario::closed(Operation::Ask, Place::Remote, 1), &[round(subject, sample(1, 1))]);
    assert_eq!((report.cpu_ns_per_operation, report.process_cpu_ns_per_operation), (700.0, 2e6));
}

#[test]
fn a_refused_result_says_why_in_table_and_json() {
    let pace = Pace::Open { rate_per_second: 1_000.0 };
    let scenario = Scenario { pace, ..Scenario::closed(Operation::Ask, Place::Remote, 1) };
    let mut subject = sample(1_000, 1);
    let tally = Tally { intended: 1_000, sent: 1_000, late_sends: 50, latest_ns: 9_000_000, ..Tally::default() };
    subject.sends = Some(tally);
    let report = report(&scenario, &[round(subject, sample(1, 1))]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["refused"]["reason"], &json["late_sends"]), (&"late_sends".into(), &50.into()));
    let table = Report::table(&[report]);
    assert!(table.contains("refused: the harness was the bottleneck"), "{table}");
}

#[test]
fn the_latencies_of_all_rounds_are_merged() {
    let scenario = Scenario::closed(Operation::Ask, Place::Local, 64);
    let rounds = [round(sample(1, 100), sample(1, 10)), round(sample(1, 300), sample(1, 30))];
    let report = report(&scenario, &rounds);
    let file = ReportFile::new(vec![report]).unwrap();
    let distributions = file.distributions();
    let [Distribution { name, latencies, floor: Some((_, floor)), .. }] = &distributions[..] else {
        panic!("{distributions:?}")
    };
    assert_eq!((name.as_str(), latencies.count(), latencies.percentiles().max), ("ask-local-64", 2, 300));
    assert_eq!((floor.count(), floor.percentiles().max), (2, 30));
}

#[test]
fn without_a_floor_there_is_no_ratio() {
    let scenario = Scenario::closed(Operation::Tell, Place::Local, 64);
    let rounds = [Round { floor: None, subject: sample(10, 1), repeats: 0 }];
    let json = serde_json::to_value(Report::new(&scenario, &setting(), None, &rounds)).unwrap();
    assert!(json["floor_ratio"].is_null() && json["floor"].is_null());
}
