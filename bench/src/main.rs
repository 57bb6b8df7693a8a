//! Tollgate beside a bare proxy: what metering costs, in processor time, latency and memory.
//!
//! `run` starts everything and measures it; `upstream` is the model's server that all contestants stand
//! before, in a process of its own.

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
mod plain_http;
mod process;
mod profile;
mod report;
mod rounds;
mod run;
mod upstream;

/// Whatever goes wrong ends the whole run: figures with a gap in them would be believed.
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
    /// The server that answers as a model would; says its port and runs until it is ended
    Upstream,
    /// Starts every contestant, measures them in turns and writes the report
    Run(Options),
    /// Keeps one gateway busy with one work, for a profiler to look at
    Profile(profile::Options),
}

#[derive(Args)]
pub struct Options {
    /// The gateway's program
    #[arg(long, default_value = "target/release/tollgate")]
    pub tollgate: PathBuf,
    /// Where `bench/peers/install` has put other gateways; they take part where this is given
    #[arg(long)]
    pub peers: Option<PathBuf>,
    /// Few and short rounds, and no ten thousand streams
    #[arg(long)]
    pub quick: bool,
    /// How many rounds, in place of five, or of two quick ones
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Where the report goes
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
