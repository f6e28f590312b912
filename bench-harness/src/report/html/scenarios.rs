//! The page of scenarios.

use super::{Bar, Curve, Dot, Page, Role, Section, Strip};
use crate::measure::Percentiles;
use crate::report::json::{Report, ReportFile, RoundReport};
use crate::report::{quantity, time};
use crate::scenario::{Setting, Spin};

impl ReportFile {
    /// The page of this run.
    pub fn page(&self) -> Page {
        let reports: Vec<&Report> = self.reports().collect();
        let title = match reports[..] {
            [only] => format!("Load test: {}", only.scenario),
            _ => format!("Load test: {} scenarios", reports.len()),
        };
        let bar = |report: &&Report| {
            let target = report.floor_ratio_target;
            report.floor_ratio.map(|ratio| Bar { name: report.scenario.clone(), ratio, target })
        };
        let notes = |report: &&Report| {
            let name = report.scenario.clone();
            report.notes().map(move |note| format!("{name}: {note}")).collect::<Vec<_>>()
        };
        Page {
            title,
            provenance: self.provenance.clone(),
            machine: self.machine.clone(),
            facts: facts(&self.headline.setting),
            columns: Report::COLUMNS.to_vec(),
            rows: reports.iter().map(|report| report.row()).collect(),
            notes: reports.iter().flat_map(notes).collect(),
            bars: reports.iter().filter_map(bar).collect(),
            sections: reports.iter().map(|report| section(report)).collect(),
        }
    }
}

fn facts(setting: &Setting) -> Vec<(&'static str, String)> {
    let spin = match setting.spin {
        Spin::Always => "always".to_owned(),
        Spin::For(duration) => format!("{duration:?}"),
    };
    let mut facts = vec![
        ("rounds", format!("{} of {:?}, each after {:?}", setting.rounds, setting.duration, setting.warm_up)),
        ("processors", format!("pod {}, client {}", setting.pod_cpu, setting.client_cpu)),
        ("looks for work", spin),
    ];
    if !setting.pods.is_empty() {
        facts.push(("pods", setting.pods.join(", ")));
    }
    facts
}

fn section(report: &Report) -> Section {
    let latency = report.latency_ns;
    let mut lead = format!("{} operations/s", quantity(report.operations_per_second));
    if latency.max > 0 {
        lead += &format!(
            ", p50 {}, p99 {}, p99.9 {}",
            time(latency.p50 as f64),
            time(latency.p99 as f64),
            time(latency.p99_9 as f64)
        );
    }
    if let (Some(ratio), Some(floor)) = (report.floor_ratio, &report.floor) {
        lead += &format!("; {ratio:.2} × the floor, {}", floor.floor.title());
    }
    let floor_name = report.floor.as_ref().map_or_else(String::new, |floor| format!("floor: {}", floor.floor.name()));
    let mut curve = Curve::default();
    curve.line("atoll", Role::Subject, &report.latencies);
    if let Some(floor) = &report.floor {
        curve.line(&floor_name, Role::Floor, &floor.latencies);
    }
    let basis = report.floor.as_ref().map_or("ns_per_operation", |floor| floor.ratio_basis);
    let strip = Strip {
        figure: match basis {
            "latency_p50" => "median latency",
            "latency_p99" => "99th percentile of the latency",
            _ => "time of an operation",
        },
        subject: "atoll".to_owned(),
        floor: floor_name,
        dots: report.rounds.iter().map(|round| dot(round, basis)).collect(),
    };
    let refused = report.refused.as_ref().map(ToString::to_string);
    Section { name: report.scenario.clone(), lead, refused, curve, strip }
}

/// The figure that `basis` compares, of subject and floor.
pub(super) fn dot(round: &RoundReport, basis: &str) -> Dot {
    let of_rate = |rate: f64| (rate > 0.0).then(|| 1e9 / rate);
    let latencies = |part: fn(&Percentiles) -> u64| {
        let of = |latency: &Percentiles| part(latency) as f64;
        (Some(of(&round.latency_ns)), round.floor_latency_ns.as_ref().map(of))
    };
    let (subject_ns, floor_ns) = match basis {
        "latency_p50" => latencies(|latency| latency.p50),
        "latency_p99" => latencies(|latency| latency.p99),
        _ => (of_rate(round.operations_per_second), round.floor_operations_per_second.and_then(of_rate)),
    };
    Dot { subject_ns, floor_ns, disturbed: round.disturbed, repeats: round.repeats }
}
