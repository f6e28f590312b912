//! The program as a user runs it: real processes, real rings.

use std::process::{Command, Output};

fn atoll_bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_atoll-bench"))
        .args(line.split_whitespace())
        .output()
        .expect("the program of this package is built for its tests")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_bare_ring_runs_between_two_processes_and_is_written_as_json() {
    let folder = std::env::temp_dir().join(format!("atoll-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("floor.json");
    // Both processes on one processor: they must sleep, not spin.
    let output = atoll_bench(&format!(
        "floor bare-ring --outstanding 8 --request-bytes 100 --reply-bytes 40 --pod-cpu 0 --client-cpu 0 --spin 0 \
         --rounds 1 --duration 30ms --warm-up 5ms --json {}",
        file.display()
    ));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("bare ring, 100+40 B, 8 outstanding"), "{}", text(&output.stdout));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let floor = &json["floors"][0];
    assert_eq!(floor["name"], "bare_ring");
    assert!(floor["operations_per_second"].as_f64() > Some(0.0), "{floor}");
    assert!(floor["latency_ns"]["p99"].as_u64() >= floor["latency_ns"]["p50"].as_u64(), "{floor}");
    assert!(floor["cpu_ns_per_operation"].as_f64() > Some(0.0), "both processes are counted: {floor}");
}

#[test]
fn a_run_leaves_a_page_and_its_latencies_and_can_be_compared() {
    let folder = std::env::temp_dir().join(format!("atoll-bench-files-{}", std::process::id()));
    let at = |name: &str| folder.join(name).display().to_string();
    for run in ["a", "b"] {
        let output = atoll_bench(&format!(
            "ask --local --rounds 5 --duration 20ms --warm-up 5ms --json {} --html {} --hgrm {}",
            at(&format!("{run}.json")),
            at(&format!("{run}/page.html")),
            at(&format!("{run}/ask.hgrm"))
        ));
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(read("a/page.html").contains("ask --local --rounds 5") && read("a/page.html").contains("<svg"));
    for distribution in ["a/ask.hgrm", "a/ask.floor.hgrm"] {
        assert!(read(distribution).contains("#[Mean "), "{distribution}");
    }
    let output = atoll_bench(&format!("compare {} {} --json {}", at("a.json"), at("b.json"), at("change.json")));
    assert!(output.status.success() && text(&output.stdout).contains("ask-local-64"), "{}", text(&output.stderr));
    assert!(read("change.json").contains("\"verdict\""));

    // A run that did everything in ten times the time.
    let mut slow: serde_json::Value = serde_json::from_str(&read("a.json")).unwrap();
    for round in slow["rounds"].as_array_mut().unwrap() {
        for figure in ["operations_per_second", "floor_ratio"] {
            let factor = if figure == "floor_ratio" { 10.0 } else { 0.1 };
            round[figure] = (round[figure].as_f64().unwrap() * factor).into();
        }
    }
    std::fs::write(folder.join("slow.json"), slow.to_string()).unwrap();
    let against_slow = format!("compare {} {}", at("a.json"), at("slow.json"));
    let output = atoll_bench(&against_slow);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("WORSE: "), "{}", text(&output.stdout));
    assert_eq!(atoll_bench(&format!("{against_slow} --fail-on-worse")).status.code(), Some(4));
    assert_eq!(atoll_bench(&format!("compare {0} {0} --fail-on-worse", at("a.json"))).status.code(), Some(0));

    let output = atoll_bench(&format!("compare {} {}", at("a.json"), at("a/ask.hgrm")));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is no JSON"), "{}", text(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_page_that_cannot_be_is_refused_before_the_measurement() {
    for (line, advice) in [
        ("stream --local --hgrm x.hgrm", "--hgrm"),
        ("compare a b --html x.html", "--html"),
        ("floor all --json /", "is a folder"),
    ] {
        let output = atoll_bench(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(text(&output.stderr).contains(advice), "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn a_fresh_process_tells_the_memory_of_an_entity() {
    let output = atoll_bench("floor entity-start --entities 100k --rounds 1");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("longest pause") && shown.contains("bytes per entity"), "{shown}");
}

#[test]
fn help_has_examples_and_names_the_exit_codes() {
    let shown = text(&atoll_bench("--help").stdout);
    assert!(shown.contains("Examples:") && shown.contains("3 refused") && shown.contains("4 worse"), "{shown}");
    assert!(!shown.contains("floor-peer"), "internal commands are hidden: {shown}");
}

#[test]
fn wrong_arguments_end_with_2_and_failures_with_1() {
    assert_eq!(atoll_bench("ask --rate fast").status.code(), Some(2));
    let output = atoll_bench("floor mailbox-loop --pod-cpu 1000");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--pod-cpu"), "{}", text(&output.stderr));
}

#[test]
fn an_unknown_flame_graph_is_answered_with_the_known_ones() {
    let output = atoll_bench("flame nothing");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("ask-remote-64"), "{}", text(&output.stderr));
}

/// Every kind of load, short: it ends, it reports, and nothing failed. A busy machine may refuse the open loop (code 3).
#[test]
fn every_kind_of_load_runs_and_is_written_as_json() {
    let kinds = [
        "ask --outstanding 4",
        "ask --rate 2000",
        "ask --outstanding 2 --payload 512",
        "ask --local --outstanding 1",
        "ask --local --handler yields",
        "ask --cross-core --outstanding 2",
        "tell --outstanding 4",
        "tell --local",
        "start --local --entities 2000",
        "start --entities 500",
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let file = std::env::temp_dir().join(format!("atoll-bench-{}-{at}.json", std::process::id()));
        let line = format!("{kind} --rounds 1 --warm-up 50ms --duration 100ms --json {}", file.display());
        let output = atoll_bench(&line);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{kind}: {}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(report["operations_per_second"].as_f64().unwrap() > 0.0, "{kind}: {report}");
        assert_eq!(report["errors"], 0, "{kind}: {report}");
        for field in ["scenario", "latency_ns", "floor_ratio", "floor", "cpu_ns_per_operation", "bytes_per_entity"] {
            assert!(report.get(field).is_some(), "{kind}: no {field} in {report}");
        }
        for percentile in ["p50", "p90", "p99", "p99_9", "max"] {
            assert!(report["latency_ns"].get(percentile).is_some(), "{kind}: no {percentile} in {report}");
        }
    }
}

#[test]
fn a_cluster_run_loses_nothing_and_is_written_as_json() {
    let file = std::env::temp_dir().join(format!("atoll-bench-cluster-{}.json", std::process::id()));
    let output = atoll_bench(&format!("cluster --kills 1 --stops 1 --rate 500 --json {}", file.display()));
    let json = std::fs::read(&file).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    std::fs::remove_file(&file).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    for none in ["lost", "wrong_balances", "replies_of_old_owners", "failed_in_planned_moves"] {
        assert_eq!(json[none], 0, "{none}: {json}");
    }
    for some in ["failover_ms", "stale_rejections", "planned_moves", "deposits", "move_p99_ms"] {
        assert!(json[some].as_f64() > Some(0.0), "{some}: {json}");
    }
    assert!(json["resends"].is_u64() && json["repeated"].is_u64(), "{json}");
}
