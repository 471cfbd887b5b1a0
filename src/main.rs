//! Parse, run, exit code.

use std::process::ExitCode;

/// musl's own is slow where much is allocated.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    datapump::cli::main()
}
