//! The whole run: start all contestants, measure in rounds, audit the ledgers, write the report.

use std::time::Duration;

use tokio::runtime::Builder;

use crate::{
    Done, Options, bars, contestants,
    figures::Figures,
    flush::Disk,
    machine::Machine,
    memory, process,
    report::{self, Report},
    rounds::{Entry, Rounds, Work},
    upstream::Upstream,
};

/// How much load, and for how long.
pub struct Plan {
    pub rounds: usize,
    pub time: Duration,
    pub warm_up: Duration,
    pub plain_connections: usize,
    pub steady_connections: usize,
    /// Requests a second at the low rate.
    pub steady_rate: u32,
    pub stream_connections: usize,
    pub paced_connections: usize,
    pub pause_ms: u64,
    pub restarts: usize,
    pub few_streams: usize,
    /// No such measurement if this is 0.
    pub many_streams: usize,
}

/// A rate-limit window and a little more.
const WINDOW: Duration = Duration::from_secs(62);

/// Each stream needs two files at a gateway; these are for everything else.
const OTHER_FILES: u64 = 400;

impl Plan {
    pub fn new(quick: bool, files: u64) -> Self {
        let most_streams = files.saturating_sub(OTHER_FILES) / 2;
        Self {
            rounds: if quick { 2 } else { 5 },
            time: Duration::from_secs(if quick { 1 } else { 4 }),
            warm_up: Duration::from_millis(if quick { 200 } else { 500 }),
            plain_connections: 64,
            steady_connections: 8,
            steady_rate: 100,
            stream_connections: 16,
            paced_connections: 32,
            pause_ms: 20,
            restarts: if quick { 3 } else { 5 },
            few_streams: 1_000,
            many_streams: if quick {
                0
            } else {
                most_streams.min(10_000) as usize
            },
        }
    }
}

pub fn run(options: &Options) -> Done {
    let mut plan = Plan::new(options.quick, process::allow_many_files());
    plan.rounds = options.rounds.unwrap_or(plan.rounds);
    let folder = tempfile::Builder::new()
        .prefix("tollgate-bench-")
        .tempdir()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let upstream = Upstream::start(folder.path())?;
    let machine = Machine::read();
    let started = contestants::start_all(options, &upstream, folder.path())?;
    let entry = |contestant| Entry {
        contestant,
        figures: Figures::default(),
        answers: 0,
    };
    let mut entries: Vec<Entry> = started.into_iter().map(entry).collect();

    let rounds = Rounds {
        plan: &plan,
        runtime: &runtime,
        upstream: &upstream,
    };
    for entry in &mut entries {
        eprintln!("bench: warming up {}", entry.contestant.name());
        for work in Work::ALL {
            rounds.warm_up(work, entry, plan.time / 2)?;
        }
        check(entry)?;
    }
    let mut disk = Disk::of(folder.path())?;
    for round in 0..plan.rounds {
        eprintln!("bench: round {} of {}", round + 1, plan.rounds);
        disk.measure(plan.steady_rate)?;
        for work in Work::ALL {
            rounds.once(work, &mut entries, round)?;
        }
        entries.iter().try_for_each(check)?;
    }
    for entry in &mut entries {
        memory::restart(&plan, entry)?;
    }
    if plan.many_streams > 0 {
        eprintln!("bench: a minute without requests: limits remember the last one");
        std::thread::sleep(WINDOW);
    }
    for entry in &mut entries {
        eprintln!("bench: the size of {}", entry.contestant.name());
        memory::weigh(&plan, &runtime, &upstream, entry)?;
        check(entry)?;
    }

    let bars = bars::all(&entries, &plan, disk.middle_ms());
    let report = Report {
        plan: &plan,
        machine: &machine,
        entries: &entries,
        bars: &bars,
    };
    report::write(&report, &options.out)
}

/// A gateway that lost a charge has not done the work that was measured.
fn check(entry: &Entry) -> Done {
    entry.contestant.check(entry.answers)
}
