//! The `atoll` binary; everything it does is in `atoll::cli`.

use std::process::ExitCode;

/// Entities and frames are many small allocations that stay on their core: mimalloc keeps heaps per thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    atoll::cli::main()
}
