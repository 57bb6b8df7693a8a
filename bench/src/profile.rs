//! One gateway under one kind of work, for a profiler.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tokio::runtime::Builder;

use crate::{
    Done,
    contestants::{Contestant as _, Durability, Tollgate},
    cpu,
    figures::Figures,
    process,
    rounds::{Entry, Rounds, Work},
    run::Plan,
    upstream::Upstream,
};

#[derive(Args)]
pub struct Options {
    /// The gateway's binary
    #[arg(long, default_value = "target/release/tollgate")]
    tollgate: PathBuf,
    /// The kind of work
    #[arg(long, value_enum)]
    work: Work,
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Stores of accounts and rate limits
    #[arg(long, value_enum, default_value_t = Stores::Files)]
    stores: Stores,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stores {
    /// `SQLite` and memory
    Files,
    /// `PostgreSQL` and Redis
    Servers,
}

/// Prints the gateway's process ID, keeps it busy, and prints the CPU time per response, so that two binaries can be
/// compared in turn.
pub fn run(options: &Options) -> Done {
    let plan = Plan::new(true, process::allow_many_files());
    let folder = tempfile::Builder::new()
        .prefix("tollgate-bench-")
        .tempdir()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let upstream = Upstream::start(folder.path())?;
    let program = &options.tollgate;
    let tollgate = match options.stores {
        Stores::Files => Tollgate::on_files(program, &upstream, folder.path(), Durability::Power),
        Stores::Servers => Tollgate::on_servers(program, &upstream, folder.path()),
    }?;
    let pid = tollgate.pid().unwrap_or_default();
    println!("{pid}");
    let mut entry = Entry {
        contestant: Box::new(tollgate),
        figures: Figures::default(),
        answers: 0,
    };
    let rounds = Rounds {
        plan: &plan,
        runtime: &runtime,
        upstream: &upstream,
    };
    let before = cpu::of_family(pid).cpu;
    rounds.warm_up(
        options.work,
        &mut entry,
        Duration::from_secs(options.seconds),
    )?;
    let used = cpu::of_family(pid).cpu - before;
    let answers = entry.answers;
    let each = used * 1e6 / f64::from(u32::try_from(answers).unwrap_or(u32::MAX));
    println!("{answers} answers, {each:.2} µs of CPU each");
    entry.contestant.check(answers)
}
