//! Runs cases under callgrind and reads what it counted.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::baseline::Machine;
use crate::meter::{COUNTED_FUNCTION, Said};

const MISSING: &str = "this needs valgrind: install the package `valgrind` (`apt-get install valgrind`)";

/// Where callgrind leaves what `callgrind_annotate` shows.
pub const PROFILES: &str = "target/instructions";

/// What was counted.
pub struct Counted {
    /// Name of the operation, and instructions of one of it.
    pub operations: Vec<(&'static str, f64)>,
    /// On what.
    pub machine: Machine,
}

/// The root of the project.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file of one operation.
pub fn profile_of(name: &str) -> PathBuf {
    Path::new(PROFILES).join(format!("{}.out", name.replace('/', "-")))
}

/// Counts these cases, as many at a time as there are processors.
pub fn count(names: &[&'static str]) -> Result<Counted, String> {
    let valgrind = first_line("valgrind", &["--version"]).ok_or(MISSING)?;
    let profiles = root().join(PROFILES);
    std::fs::create_dir_all(&profiles).map_err(|error| format!("cannot make {}: {error}", profiles.display()))?;
    let next = AtomicUsize::new(0);
    let counted = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(names.len()) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match count_one(name) {
                        Ok((instructions, processor)) => {
                            counted.lock().expect("no panic").push((*name, instructions, processor));
                        }
                        Err(error) => _ = failed.lock().expect("no panic").insert(format!("{name}: {error}")),
                    }
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().expect("no panic") {
        return Err(error);
    }
    let mut counted = counted.into_inner().expect("no panic");
    counted.sort_by_key(|(name, ..)| names.iter().position(|known| known == name));
    let processor = counted.first().map(|(.., processor)| processor.clone()).unwrap_or_default();
    let unknown = || "unknown".to_owned();
    let machine = Machine {
        rustc: first_line("rustc", &["--version"]).unwrap_or_else(unknown),
        valgrind,
        libc: first_line("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(unknown),
        processor,
    };
    let operations = counted.into_iter().map(|(name, instructions, _)| (name, instructions)).collect();
    Ok(Counted { operations, machine })
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(root()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Instructions of one operation, and the processor that it saw.
fn count_one(name: &str) -> Result<(f64, String), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let profile = root().join(profile_of(name));
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED_FUNCTION}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(&program)
        .args(["--case", name])
        // Nothing that tunes libc or the allocator.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("failed under callgrind ({}):\n{complained}", output.status));
    }
    let Said { operations, processor } = Said::parse(&said).ok_or_else(|| format!("said nothing useful: {said}"))?;
    let text = std::fs::read_to_string(&profile).map_err(|error| format!("no {}: {error}", profile.display()))?;
    match total(&text) {
        Some(total) if total > 0 && operations > 0 => Ok((total as f64 / operations as f64, processor)),
        _ => Err(format!(
            "callgrind counted nothing: it did not find the function {COUNTED_FUNCTION}. Was the program stripped?"
        )),
    }
}

/// The instructions that a file of callgrind names.
fn total(profile: &str) -> Option<u64> {
    let line = profile.lines().rev().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}
