//! What a case counts with, and how its process runs it.

use std::hint::black_box;

use crate::cases::CASES;

/// The only function during which callgrind counts: it is named to it with `--toggle-collect`.
pub const COUNTED_FUNCTION: &str = "*counted_by_callgrind*";

#[inline(never)]
fn counted_by_callgrind(work: &mut dyn FnMut()) {
    work();
    // Something comes after the call, so that this is no jump.
    black_box(&work);
}

/// Counts operations. Whatever a case does outside of it costs nothing.
#[derive(Default)]
pub struct Meter {
    operations: u64,
}

impl Meter {
    /// Counts work that does so many operations.
    pub fn count<R>(&mut self, operations: u64, work: impl FnOnce() -> R) -> R {
        let mut work = Some(work);
        let mut result = None;
        counted_by_callgrind(&mut || result = work.take().map(|work| work()));
        self.operations += operations;
        result.expect("it has run")
    }

    /// Counts an operation that is done so often, after it was done as often to warm up.
    pub fn repeat<R>(&mut self, times: u64, mut operation: impl FnMut() -> R) {
        for _ in 0..times {
            black_box(operation());
        }
        self.count(times, || {
            for _ in 0..times {
                black_box(operation());
            }
        });
    }
}

/// What the process of a case says on its standard output: how many operations it did, and what its processor can.
#[derive(Debug, PartialEq)]
pub struct Said {
    pub operations: u64,
    pub processor: String,
}

impl Said {
    /// Reads what [`run_case`] wrote.
    pub fn parse(text: &str) -> Option<Said> {
        let (operations, processor) = text.trim().split_once(' ')?;
        Some(Said { operations: operations.parse().ok()?, processor: processor.to_owned() })
    }
}

/// Runs one case and says how many operations it did.
pub fn run_case(name: &str) -> Result<(), String> {
    let case = CASES.iter().find(|case| case.name == name).ok_or_else(|| format!("there is no operation {name}"))?;
    let mut meter = Meter::default();
    (case.run)(&mut meter);
    println!("{} {}", meter.operations, processor());
    Ok(())
}

/// What decides which variants libc and the checksum take. Valgrind shows the same to all machines that have it.
#[cfg(target_arch = "x86_64")]
fn processor() -> String {
    let has = [
        ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
        ("pclmulqdq", std::is_x86_feature_detected!("pclmulqdq")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
    ];
    let has: Vec<_> = has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    format!("x86_64 with {}", has.join(", "))
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> String {
    std::env::consts::ARCH.to_owned()
}
