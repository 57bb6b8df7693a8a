//! Arguments → what they ask for.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate::cli::run()
}
