//! Puts a command together: which scenarios, floor and subject in alternating rounds, report, exit code.

use core::cell::RefCell;
use core::time::Duration;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::arguments::{Arguments, ClusterArguments, Command, Common, FloorArguments, SweepArguments};
use crate::cluster;
use crate::drive::{self, Subject};
use crate::floors::{Floor, bare_ring, entity_start};
use crate::measure::{RoundLength, check_processor};
use crate::report::{Files, FloorTable, Machine, ProgressLine, Report, ReportFile, time};
use crate::rounds::{self, Progress, Round};
use crate::scenario::{Operation, Place, Scenario, Setting};
use crate::sweep::{self, Sweep};

/// The exit code of a result that must not be used.
const REFUSED: u8 = 3;
/// The exit code of a comparison that found something worse, if that was asked for.
const WORSE: u8 = 4;
/// A floor needs no more than this for a stable figure; the rest of the time belongs to the subject.
const FLOOR_DURATION_MAX: Duration = Duration::from_millis(500);
/// A round of a sweep, unless it is chosen.
const SWEEP_DURATION: Duration = Duration::from_millis(100);

/// Runs a command line. The code: 0 measured, 1 failed, 3 refused, 4 worse.
pub fn run(arguments: Arguments) -> ExitCode {
    let outcome = execute(arguments);
    if let Err(error) = &outcome {
        eprintln!("atoll-bench: {error:#}");
    }
    ExitCode::from(exit_code(&outcome))
}

fn exit_code(outcome: &anyhow::Result<u8>) -> u8 {
    outcome.as_ref().map_or(1, |code| *code)
}

/// Returns the exit code.
fn execute(Arguments { command, common }: Arguments) -> anyhow::Result<u8> {
    let refused = match command {
        None => measure(&Scenario::canonical(), &common.setting(&[]), &common),
        Some(Command::Ask(load)) => measure(&[load.scenario(Operation::Ask)], &common.setting(&load.pods), &common),
        Some(Command::Tell(load)) => measure(&[load.scenario(Operation::Tell)], &common.setting(&load.pods), &common),
        Some(Command::Start(load)) => measure(&[load.scenario(Operation::Start)], &common.setting(&load.pods), &common),
        Some(Command::Sweep(chosen)) => measure_sweep(&chosen, &common),
        Some(Command::Stream(stream)) => crate::streams::run(&common, &stream.row).map(|()| false),
        Some(Command::Floor(chosen)) => floors(&chosen, &common).map(|()| false),
        Some(Command::Compare(chosen)) => {
            let worse = crate::compare::run(&chosen, &Files::of(&common))?;
            return Ok(if worse && chosen.fail_on_worse { WORSE } else { 0 });
        }
        Some(Command::Flame(flame)) => crate::flame::flame(&flame, &common).map(|()| false),
        Some(Command::Cluster(cluster)) => measure_cluster(&cluster, &common).map(|()| false),
        Some(Command::ClusterManager(manager)) => cluster::manager(&manager).map(|()| false),
        Some(Command::ClusterPod(pod)) => cluster::pod(&pod).map(|()| false),
        Some(Command::Pod(pod)) => drive::pod(&pod).map(|()| false),
        Some(Command::FloorPeer(peer)) => {
            bare_ring::peer(peer.cpu, peer.request_bytes, peer.reply_bytes, peer.spin, peer.told_apart).map(|()| false)
        }
        Some(Command::SubjectEntityMemory { entities }) => drive::print_entity_memory(entities).map(|()| false),
        Some(Command::FloorEntityMemory { entities }) => entity_start::print_memory(entities).map(|()| false),
    };
    refused.map(|refused| if refused { REFUSED } else { 0 })
}

fn measure_cluster(arguments: &ClusterArguments, common: &Common) -> anyhow::Result<()> {
    let files = Files::of(common);
    files.prepare(true)?;
    let report = cluster::run(arguments)?;
    println!("{}\n", report.machine.line());
    print!("{}", report.table());
    files.write(&report, &report.distributions(), || report.page())?;
    if report.targets_met { Ok(()) } else { bail!("a target was missed; see the table") }
}

fn measure(scenarios: &[Scenario], setting: &Setting, common: &Common) -> anyhow::Result<bool> {
    let files = Files::of(common);
    files.prepare(true)?;
    check_processor(setting.pod_cpu, "--pod-cpu")?;
    if scenarios.iter().any(|scenario| scenario.place != Place::Local) {
        check_processor(setting.client_cpu, "--client-cpu")?;
    }
    let mut line = ProgressLine::new();
    let mut reports = Vec::with_capacity(scenarios.len());
    for scenario in scenarios {
        reports.push(measure_one(scenario, setting, &mut line).with_context(|| scenario.name())?);
    }
    line.clear();
    println!("{}\n", Machine::read().line());
    print!("{}", Report::table(&reports));
    let refused = reports.iter().any(|report| report.refused.is_some());
    if let Some(report) = ReportFile::new(reports) {
        files.write(&report, &report.distributions(), || report.page())?;
    }
    Ok(refused)
}

/// A report file that says where the knee is.
#[derive(serde::Serialize)]
struct SweepFile<'a> {
    #[serde(flatten)]
    file: &'a ReportFile,
    sweep: Sweep,
}

fn measure_sweep(chosen: &SweepArguments, common: &Common) -> anyhow::Result<bool> {
    let files = Files::of(common);
    files.prepare(true)?;
    let setting = common.setting(&chosen.pods);
    // Short rounds: a pause of the host spoils few of many, and the median over them is what counts.
    let setting = Setting { duration: common.duration.unwrap_or(SWEEP_DURATION), ..setting };
    check_processor(setting.pod_cpu, "--pod-cpu")?;
    check_processor(setting.client_cpu, "--client-cpu")?;
    let mut line = ProgressLine::new();
    let mut measure = |scenario: &Scenario, setting: &Setting| {
        measure_one(scenario, setting, &mut line).with_context(|| scenario.name())
    };
    let scenario = sweep::scenario(chosen.entities, chosen.payload);
    let (reports, found) = sweep::sweep(&scenario, chosen.from, &setting, &mut measure)?;
    line.clear();
    println!("{}\n", Machine::read().line());
    print!("{}\n{found}", Report::table(&reports));
    // A step beyond the knee may be refused: that is how the sweep ends.
    if let Some(file) = ReportFile::new(reports) {
        files.write(&SweepFile { file: &file, sweep: found }, &file.distributions(), || file.page())?;
    }
    Ok(false)
}

fn measure_one(scenario: &Scenario, setting: &Setting, line: &mut ProgressLine) -> anyhow::Result<Report> {
    line.show(&format!("{}: starting", scenario.name()));
    let subject = RefCell::new(Subject::prepare(scenario, setting)?);
    let floor = setting.floor.then(|| Floor::of(scenario, setting, subject.borrow().frame_bytes()));
    let length = RoundLength { warm_up: setting.warm_up, duration: setting.duration };
    let floor_length = RoundLength { duration: setting.duration.min(FLOOR_DURATION_MAX), ..length };
    let mut floor_round = || {
        let floor = floor.as_ref().context("no floor was chosen")?;
        subject.borrow_mut().pause();
        floor.round(floor_length)
    };
    let mut subject_round = || subject.borrow_mut().round(length);
    let rounds = rounds::run(
        setting.rounds,
        if setting.floor { Some(&mut floor_round) } else { None },
        &mut subject_round,
        &mut |at, last| line.show(&progress_text(&scenario.name(), at, last)),
    )?;
    let mut report = Report::new(scenario, setting, floor.as_ref(), &rounds);
    if let (Some(Floor::EntityStart { entities, .. }), Some(floor)) = (&floor, &mut report.floor) {
        floor.bytes_per_entity = Some(entity_start::bytes_per_entity(*entities)?);
    }
    subject.into_inner().finish()?;
    Ok(report)
}

fn progress_text(name: &str, at: Progress, last: Option<&Round>) -> String {
    let part = if at.floor { "floor" } else { "atoll" };
    let repeats =
        if at.repeats > 0 { format!(", repeat {}: disturbed by other load", at.repeats) } else { String::new() };
    let last = last.map_or_else(String::new, |last| {
        let p50 = last.subject.latencies.percentiles().p50 as f64;
        format!(", last {} per operation, p50 {}", time(last.subject.ns_per_operation()), time(p50))
    });
    format!("{name}: round {} of {}, {part}{repeats}{last}", at.round, at.rounds)
}

/// Only the floors, in alternating rounds.
fn floors(chosen: &FloorArguments, common: &Common) -> anyhow::Result<()> {
    let files = Files::of(common);
    files.prepare(true)?;
    let mut setting = common.setting(&[]);
    setting.duration = common.duration.unwrap_or(FLOOR_DURATION_MAX);
    let floors = chosen.floors(common);
    check_processor(setting.pod_cpu, "--pod-cpu")?;
    if floors.iter().any(|floor| matches!(floor, Floor::BareRing { .. } | Floor::SpscPingPong { .. })) {
        check_processor(setting.client_cpu, "--client-cpu")?;
    }
    let length = RoundLength { warm_up: setting.warm_up.min(setting.duration), duration: setting.duration };
    let mut line = ProgressLine::new();
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); floors.len()];
    for number in 1..=setting.rounds {
        for (floor, rounds) in floors.iter().zip(&mut rounds) {
            let mut once = || floor.round(length);
            rounds.extend(rounds::run(1, None, &mut once, &mut |at, _| {
                line.show(&progress_text(
                    &floor.title(),
                    Progress { round: number, rounds: setting.rounds, floor: true, ..at },
                    None,
                ));
            })?);
        }
    }
    let mut table = FloorTable::new(&floors, &rounds);
    for (floor, report) in floors.iter().zip(&mut table.floors) {
        if let Floor::EntityStart { entities, .. } = floor {
            report.bytes_per_entity = Some(entity_start::bytes_per_entity(*entities)?);
        }
    }
    line.clear();
    println!("{}\n", table.machine.line());
    print!("{}", table.text());
    files.write(&table, &table.distributions(), || table.page())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_result_has_its_own_exit_code() {
        assert_eq!(exit_code(&Ok(0)), 0);
        assert_eq!(exit_code(&Ok(REFUSED)), 3);
        assert_eq!(exit_code(&Err(anyhow::anyhow!("broken"))), 1);
    }
}
