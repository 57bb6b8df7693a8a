//! Tollgate compared with a bare proxy: the cost of metering in CPU time, latency and memory.
//!
//! `run` starts everything and measures it; `upstream` is the fake model server behind all contestants, in a process
//! of its own.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures to look at, not to add up"
)]

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

mod bars;
mod chat;
mod clock;
mod contestants;
mod cpu;
mod figures;
mod flush;
mod http1;
mod load;
mod machine;
mod memory;
mod overload;
mod plain_http;
mod process;
mod profile;
mod report;
mod rounds;
mod run;
mod upstream;

/// Any failure ends the whole run, because figures with a gap would be misleading.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Done<T = ()> = Result<T, Failure>;

#[derive(Parser)]
#[command(about = "Measures tollgate beside a bare proxy")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The fake model server; prints its port and runs until it is stopped
    Upstream,
    /// Starts every contestant, measures them in turns and writes the report
    Run(Options),
    /// Sends twice the load that can be served, and reports what becomes of it
    Overload(overload::Options),
    /// Keeps one gateway busy with one kind of work, for a profiler
    Profile(profile::Options),
}

#[derive(Args)]
pub struct Options {
    /// The gateway's binary
    #[arg(long, default_value = "target/release/tollgate")]
    pub tollgate: PathBuf,
    /// Folder in which `bench/peers/install` has installed other gateways; they take part if it is given
    #[arg(long)]
    pub peers: Option<PathBuf>,
    /// Few and short rounds, without ten thousand streams
    #[arg(long)]
    pub quick: bool,
    /// Number of rounds, in place of five, or of two quick ones
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Folder of the report
    #[arg(long, default_value = "bench/results")]
    pub out: PathBuf,
    /// Only contestants whose name contains one of these
    #[arg(long)]
    pub only: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Upstream => upstream::serve(),
        Command::Run(options) => run::run(&options),
        Command::Overload(options) => overload::run(&options),
        Command::Profile(options) => profile::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
