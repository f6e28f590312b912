//! Flame graphs: records a scenario, run by this very binary, with perf, folds the stacks and renders them.
//! One folder per scenario: `SCENARIO.svg` and `SCENARIO.folded`.

use core::time::Duration;
use std::io::{BufRead, Cursor};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options as FoldOptions};
use inferno::flamegraph::{self, Options as DrawOptions};

use crate::arguments::{CallGraph, Common, FlameArguments};
use crate::scenario::Scenario;

/// Measured time of the recorded round, unless --duration says otherwise.
const DURATION: Duration = Duration::from_secs(5);
/// With fewer whole stacks than this share, frame pointers are missing and unwinding tables are tried.
const WHOLE_SHARE_MIN: f64 = 0.5;
/// Names of functions that start a thread or a process: a stack that contains one is whole.
const ROOTS: [&str; 5] = ["_start", "__libc_start", "start_thread", "clone3", "lang_start"];
/// What `perf` is called when it is not there.
const MISSING: &str = "perf is not installed: it is in the package linux-perf (Debian), linux-tools-generic (Ubuntu) or \
                       perf (Fedora, Arch)";

/// Makes the flame graph of a scenario or of a floor.
pub fn flame(arguments: &FlameArguments, common: &Common) -> anyhow::Result<()> {
    let command = command_line(&arguments.scenario)?;
    require_perf()?;
    let folder = arguments.output.clone().unwrap_or_else(|| Path::new("flamegraphs").join(&arguments.scenario));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let recording = Recording { path: folder.join("perf.data") };
    let first = if arguments.call_graph == CallGraph::Dwarf { "dwarf" } else { "fp" };
    recording.record(first, arguments.frequency, &command, common)?;
    let mut folded = fold(Cursor::new(recording.script()?))?;
    if arguments.call_graph == CallGraph::Auto && whole_share(&folded) < WHOLE_SHARE_MIN {
        eprintln!(
            "most stacks are cut: this build has no frame pointers. Recording again with unwinding tables; \
             RUSTFLAGS=\"-C force-frame-pointers=yes\" makes that unnecessary"
        );
        recording.record("dwarf", arguments.frequency, &command, common)?;
        folded = fold(Cursor::new(recording.script()?))?;
    }
    let picture = draw(&arguments.scenario, &folded)?;
    for (extension, content) in [("folded", &folded), ("svg", &picture)] {
        let path = folder.join(format!("{}.{extension}", arguments.scenario));
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The command line (without the program) that runs what is to be recorded.
fn command_line(name: &str) -> anyhow::Result<Vec<String>> {
    if let Some(floor) = name.strip_prefix("floor-") {
        return Ok(vec!["floor".to_owned(), floor.to_owned()]);
    }
    if let Some(scenario) = Scenario::named(name) {
        return Ok(scenario.command_line());
    }
    let names: Vec<String> = Scenario::canonical().iter().map(Scenario::name).collect();
    bail!("there is no scenario {name:?}; choose one of {} or floor-NAME, such as floor-mailbox-loop", names.join(", "))
}

fn require_perf() -> anyhow::Result<()> {
    let version = Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => bail!("perf does not run with this kernel; {MISSING}"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("{MISSING}"),
        Err(error) => Err(error).context("cannot run perf"),
    }
}

/// perf's file, which is removed at the end: it may be as large as a gigabyte.
struct Recording {
    path: PathBuf,
}

impl Recording {
    fn record(&self, call_graph: &str, frequency: u32, command: &[String], common: &Common) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let duration = common.duration.unwrap_or(DURATION);
        let status = Command::new("perf")
            .args(["record", "--quiet", "--event", "cpu-clock", "--call-graph", call_graph])
            .args(["--freq", &frequency.to_string(), "--output"])
            .arg(&self.path)
            .arg("--")
            .arg(program)
            .args(command)
            .args(["--rounds", "1", "--no-floor", "--duration", &format!("{}ms", duration.as_millis())])
            .args(["--pod-cpu", &common.pod_cpu.to_string(), "--client-cpu", &common.client_cpu.to_string()])
            .args(["--spin", &common.spin.argument()])
            .status()
            .context("cannot run perf record")?;
        if !status.success() {
            bail!(
                "perf record failed ({status}). If it was not allowed: run as root, or lower \
                 kernel.perf_event_paranoid to 1 (it is {})",
                std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default().trim()
            );
        }
        Ok(())
    }

    fn script(&self) -> anyhow::Result<Vec<u8>> {
        let output = Command::new("perf")
            .args(["script", "--no-inline", "--fields", "comm,pid,tid,time,event,ip,sym,dso", "--input"])
            .arg(&self.path)
            .stderr(Stdio::null())
            .output()
            .context("cannot run perf script")?;
        if !output.status.success() {
            bail!("perf script failed ({})", output.status);
        }
        Ok(output.stdout)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("data.old"));
    }
}

/// Folds the text of `perf script`: a line per distinct stack, with its count.
fn fold(script: impl BufRead) -> anyhow::Result<Vec<u8>> {
    let mut folded = Vec::new();
    Folder::from(FoldOptions::default())
        .collapse(script, &mut folded)
        .context("the stacks of perf are not readable")?;
    Ok(folded)
}

/// Renders folded stacks as SVG. The same stacks always give the same picture.
fn draw(name: &str, folded: &[u8]) -> anyhow::Result<Vec<u8>> {
    if folded.is_empty() {
        bail!("perf recorded no stack of {name}; try a longer --duration");
    }
    let mut options = DrawOptions::default();
    options.title = name.to_owned();
    options.count_name = "samples".to_owned();
    options.hash = true;
    options.deterministic = true;
    let mut picture = Vec::new();
    flamegraph::from_reader(&mut options, folded, &mut picture).context("the stacks cannot be drawn")?;
    Ok(picture)
}

/// The share of samples whose stack reaches the start of its thread.
fn whole_share(folded: &[u8]) -> f64 {
    let (mut whole, mut all) = (0_u64, 0_u64);
    for line in String::from_utf8_lossy(folded).lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else { continue };
        let count: u64 = count.parse().unwrap_or(0);
        all += count;
        if ROOTS.iter().any(|root| stack.contains(root)) {
            whole += count;
        }
    }
    if all == 0 { 0.0 } else { whole as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
pod-core-0  4242  100.000001: cpu-clock: \n\
\t    55aa00001000 atoll::engine::step+0x10 (/bin/atoll-bench)\n\
\t    55aa00002000 atoll::runtime::pump+0x20 (/bin/atoll-bench)\n\
\t    7f0000003000 start_thread+0x30 (/lib/libc.so.6)\n\
\n\
pod-core-0  4242  100.001001: cpu-clock: \n\
\t    55aa00001008 atoll::engine::step+0x18 (/bin/atoll-bench)\n\
\t    55aa00002000 atoll::runtime::pump+0x20 (/bin/atoll-bench)\n\
\t    7f0000003000 start_thread+0x30 (/lib/libc.so.6)\n\
\n\
client  4243  100.001001: cpu-clock: \n\
\t    55aa00004000 main+0x18 (/bin/atoll-bench)\n\
\n";

    #[test]
    fn stacks_are_folded_by_thread_from_the_root_up() {
        let folded = String::from_utf8(fold(SCRIPT.as_bytes()).unwrap()).unwrap();
        let mut lines: Vec<&str> = folded.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["client;main 1", "pod-core-0;start_thread;atoll::runtime::pump;atoll::engine::step 2"]);
        assert!((whole_share(folded.as_bytes()) - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_picture_names_scenario_threads_and_functions_and_is_reproducible() {
        let folded = fold(SCRIPT.as_bytes()).unwrap();
        let picture = draw("ask-remote-64", &folded).unwrap();
        assert_eq!(picture, draw("ask-remote-64", &folded).unwrap());
        let text = String::from_utf8(picture).unwrap();
        for expected in ["<svg", "ask-remote-64", "pod-core-0", "atoll::engine::step", "2 samples"] {
            assert!(text.contains(expected), "{expected} is missing");
        }
    }

    #[test]
    fn a_recording_without_stacks_is_an_error() {
        assert!(draw("x", &fold(Cursor::new("")).unwrap_or_default()).is_err());
    }

    #[test]
    fn an_unknown_scenario_is_answered_with_the_known_ones() {
        let error = command_line("nonsense").unwrap_err().to_string();
        assert!(error.contains("ask-remote-64") && error.contains("floor-"), "{error}");
        assert_eq!(command_line("floor-bare-ring").unwrap(), ["floor", "bare-ring"]);
    }
}
