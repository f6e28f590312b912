//! The page as a whole: well formed, self-contained, escaped, no coordinate that is no number.

use core::time::Duration;

use super::*;
use crate::floors::Floor;
use crate::measure::{Latencies, Sample, Usage};
use crate::report::{FloorTable, Report, ReportFile};
use crate::rounds::Round;
use crate::scenario::{Scenario, Setting, Spin};

/// What is wrong with a document: an element that is not closed, or closed wrongly, a bare `&`, `<` or quote.
fn malformed(text: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.strip_prefix("<!DOCTYPE html>")?;
    while let Some(at) = rest.find('<') {
        if let Some(wrong) = bad_text(&rest[..at], open.last().copied()) {
            return Some(wrong);
        }
        let end = rest[at..].find('>').map(|end| at + end)?;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Some(format!("</{name}> closes another element"));
            }
            continue;
        }
        let (tag, is_void) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        if let Some(wrong) = bad_attributes(attributes) {
            return Some(format!("<{name}>: {wrong}"));
        }
        if !is_void {
            open.push(name);
        }
    }
    (!open.is_empty() || !rest.trim().is_empty()).then(|| format!("open at the end: {open:?} {rest}"))
}

fn bad_text(text: &str, parent: Option<&str>) -> Option<String> {
    let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
    let bare = text.match_indices('&').any(|(at, _)| !known.iter().any(|entity| text[at..].starts_with(entity)));
    (bare || (text.contains('>') && parent != Some("style"))).then(|| format!("not escaped: {text}"))
}

fn bad_attributes(mut text: &str) -> Option<String> {
    while !text.is_empty() {
        let Some((name, value)) = text.split_once("=\"") else { return Some(format!("no value: {text}")) };
        if name.is_empty() || !name.chars().all(|character| character.is_ascii_alphanumeric() || character == '-') {
            return Some(format!("no name: {name}"));
        }
        let Some((value, rest)) = value.split_once('"') else { return Some(format!("no end: {value}")) };
        if let Some(wrong) = bad_text(value, None) {
            return Some(wrong);
        }
        text = rest.strip_prefix(' ').unwrap_or(rest);
        if !rest.is_empty() && text.len() == rest.len() {
            return Some(format!("no blank before {rest}"));
        }
    }
    None
}

fn sample(operations: u64, spread: u64, disturbed: bool) -> Sample {
    let mut latencies = Latencies::new();
    (1..=2_000_u64).for_each(|number| latencies.record(50 + spread / number));
    let usage = Usage {
        elapsed_ns: 1_000_000_000,
        processors: 1,
        involuntary_switches: if disturbed { 9_999 } else { 0 },
        ..Usage::default()
    };
    Sample::new(operations, Duration::from_secs(1), latencies, usage)
}

fn setting() -> Setting {
    Setting {
        pods: vec!["<img src=x onerror=alert(1)> & \"pod\"".to_owned()],
        pod_cpu: 0,
        client_cpu: 1,
        spin: Spin::Always,
        rounds: 2,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
        floor: true,
    }
}

fn report(scenario: &Scenario) -> Report {
    let rounds = [
        Round { floor: Some(sample(4_000, 100, false)), subject: sample(1_000, 90_000, false), repeats: 0 },
        Round { floor: Some(sample(4_100, 90, false)), subject: sample(900, 900_000, true), repeats: 3 },
    ];
    Report::new(scenario, &setting(), Some(&Floor::of(scenario, &setting(), (100, 80))), &rounds)
}

fn page() -> Page {
    let reports = Scenario::canonical().iter().map(report).collect();
    ReportFile::new(reports).expect("there are scenarios").page()
}

fn check(text: &str) {
    assert_eq!(malformed(text), None);
    for forbidden in ["NaN", "inf", "http", "<script", "<link", "<img", "url(", "@import", "src="] {
        // Escaped text may name anything: what follows a bare quote or bracket is what a browser acts upon.
        let acted = text.replace("&lt;img src=x onerror", "");
        assert!(!acted.contains(forbidden), "{forbidden} in the page");
    }
}

#[test]
fn the_checker_sees_what_is_wrong() {
    for wrong in [
        "<!DOCTYPE html><p>",
        "<!DOCTYPE html><p></b>",
        "<!DOCTYPE html><p><b></p></b>",
        "<!DOCTYPE html><p>a & b</p>",
        "<!DOCTYPE html><p a=\"b></p>",
        "<!DOCTYPE html><p a=b></p>",
        "<!DOCTYPE html><p a=\"1\"b=\"2\"></p>",
        "<!DOCTYPE html><p a=\"x & y\"></p>",
        "<!DOCTYPE html><p/>text",
    ] {
        assert!(malformed(wrong).is_some(), "{wrong}");
    }
    assert_eq!(malformed("<!DOCTYPE html>\n<p a=\"1\" b-c=\"&lt;\">x &amp; y<br/></p>\n"), None);
}

#[test]
fn the_page_of_the_canonical_run_is_well_formed_and_loads_nothing() {
    check(&page().render());
}

#[test]
fn every_scenario_has_a_row_a_bar_a_curve_and_its_rounds() {
    let text = page().render();
    let scenarios = Scenario::canonical();
    for scenario in &scenarios {
        assert!(text.contains(&format!("<td>{}</td>", scenario.name())), "{}", scenario.name());
        assert!(text.contains(&format!("<h2>{}</h2>", scenario.name())), "{}", scenario.name());
    }
    let count = scenarios.len();
    assert_eq!(text.matches("<h3>Latency by percentile</h3>").count(), count);
    assert_eq!(text.matches("<svg").count(), 2 * count + 1);
    assert_eq!(text.matches("<rect class=\"bar").count(), count);
    assert_eq!(text.matches("class=\"line subject\"").count(), 2 * count, "a line and its entry in the legend");
    assert_eq!(text.matches(", disturbed by other load</title>").count(), 2 * count, "subject and floor of a round");
    assert!(text.contains("percentile of operations") && text.contains("prefers-color-scheme: dark"));
}

#[test]
fn names_are_escaped_wherever_they_appear() {
    let hostile = "<b>&\"'</b><script>";
    let mut page = page();
    page.title = hostile.to_owned();
    page.provenance.command_line = hostile.to_owned();
    page.machine.processor = hostile.to_owned();
    page.notes = vec![hostile.to_owned()];
    page.rows[0].cells[0] = hostile.to_owned();
    page.bars[0].name = hostile.to_owned();
    let mut latencies = Latencies::new();
    latencies.record(1);
    let section = &mut page.sections[0];
    (section.name, section.lead, section.refused) = (hostile.to_owned(), hostile.to_owned(), Some(hostile.to_owned()));
    section.curve.line(hostile, Role::Floor, &latencies);
    (section.strip.subject, section.strip.floor) = (hostile.to_owned(), hostile.to_owned());
    let text = page.render();
    check(&text);
    assert!(!text.contains("<b>") && text.contains("&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;&lt;script&gt;"), "{text}");
}

#[test]
fn figures_that_are_no_numbers_leave_the_page_whole() {
    let mut page = page();
    for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, f64::MAX, f64::MIN_POSITIVE] {
        page.bars.push(Bar { name: "odd".to_owned(), ratio: value, target: Some(value) });
        let dot = Dot { subject_ns: Some(value), floor_ns: Some(value), disturbed: true, repeats: 0 };
        page.sections[0].strip.dots.push(dot);
    }
    check(&page.render());
    (page.bars, page.sections, page.rows) = (Vec::new(), vec![Section::default()], Vec::new());
    check(&page.render());
}

#[test]
fn floors_alone_have_a_page_too() {
    let floors = [Floor::EntityStart { entities: 10, cpu: 0 }, Floor::SpscPingPong { cpus: [0, 1] }];
    let round = |disturbed| Round { floor: None, subject: sample(1_000, 900, disturbed), repeats: 0 };
    let table = FloorTable::new(&floors, &[vec![round(false), round(true)], vec![round(false)]]);
    let text = table.page().render();
    check(&text);
    assert_eq!(text.matches("<svg").count(), 2 * floors.len());
    assert_eq!(table.distributions().len(), 2);
}
