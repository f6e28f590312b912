//! `atoll-bench`: see [`bench_harness`].

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bench_harness::run::run(bench_harness::arguments::Arguments::parse())
}
