//! How many instructions the pure layers take for one operation, against the counts in `benches/instructions.toml`.
//!
//! `.ci/instructions` checks, `.ci/instructions --record` writes the file anew; both run this program. It starts itself
//! under callgrind once for each case, so that no case changes the heap of another. Only what a case hands to its
//! [`Meter`](meter::Meter) is counted. `docs/adr/0019-instruction-counts.md` says why it is made like this.
//!
//! Counts are stable because nothing in them depends on the time, on addresses or on the machine: valgrind shows the
//! program a processor of its own, the allocator is [`allocator::SizeClasses`], and cases run on one thread.

mod allocator;
mod baseline;
mod callgrind;
mod cases;
mod judge;
mod meter;
mod verdict;

// One core, and two that are connected, without a pod and without sockets.
#[path = "../../tests/support/host.rs"]
mod host;
#[path = "../../tests/support/wire.rs"]
mod wire;

use std::process::ExitCode;

use baseline::Baseline;

#[global_allocator]
static ALLOCATOR: allocator::SizeClasses = allocator::SizeClasses;

const USAGE: &str = "\
usage: .ci/instructions [--record | --list] [PART-OF-A-NAME ...]
  without option   counts, compares with benches/instructions.toml, fails if an operation got dearer
  --record         counts, and writes what it counted into that file
  --list           names the operations";

/// What the arguments ask for.
#[derive(Default)]
struct Arguments {
    record: bool,
    list: bool,
    help: bool,
    /// Set by this program for the process under callgrind.
    case: Option<String>,
    names: Vec<String>,
}

fn arguments(given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut given = given.skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--record" => arguments.record = true,
            "--list" => arguments.list = true,
            "--help" | "-h" => arguments.help = true,
            "--case" => arguments.case = Some(given.next().ok_or("--case needs a name")?),
            // What `cargo bench` adds.
            "--bench" => {}
            option if option.starts_with('-') => return Err(format!("there is no option {option}\n{USAGE}")),
            name => arguments.names.push(name.to_owned()),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    match arguments(std::env::args()).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False if the check fails.
fn run(arguments: Arguments) -> Result<bool, String> {
    if arguments.help {
        println!("{USAGE}");
        return Ok(true);
    }
    if let Some(name) = arguments.case {
        return meter::run_case(&name).map(|()| true);
    }
    let chosen = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|part| name.contains(part));
    let names: Vec<_> = cases::CASES.iter().map(|case| case.name).filter(|name| chosen(name)).collect();
    if names.is_empty() {
        return Err(format!("no operation has such a name\n{USAGE}"));
    }
    if arguments.list {
        names.iter().for_each(|name| println!("{name}"));
        return Ok(true);
    }
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!("instructions: SKIPPED, the counts are those of Linux on x86_64");
        return Ok(true);
    }
    if cfg!(feature = "runtime") {
        return Err("the counts are those of the pure layers built alone: use `.ci/instructions`, or\n\
                    `cargo bench --profile counted --no-default-features --bench instructions`"
            .to_owned());
    }
    let counted = callgrind::count(&names)?;
    let mut baseline = Baseline::read()?;
    if arguments.record {
        baseline.record(&counted, arguments.names.is_empty());
        baseline.write()?;
    }
    Ok(verdict::print(&baseline, &counted, arguments.names.is_empty()))
}
