//! Arguments → what they ask for.

use std::process::ExitCode;

/// A request makes a hundred small things and drops them; this one is quicker about it than the system's, and
/// gives more back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::run()
}
