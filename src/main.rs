//! The `tollgate` binary: runs the command line in [`tollgate::cli`].

use std::process::ExitCode;

/// mimalloc, because a request makes about a hundred small allocations: it is faster at those than the system's
/// allocator, and returns more memory to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::run()
}
