//! More load than can be served: what is accepted must stay fast, and the rest be refused at once.
//!
//! One gateway, and nginx with a bound of its requests, get twice the requests that they can serve. Then three gateways
//! that share their stores get up to two and a half times the connections at which they serve the most.

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use clap::Args;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Done,
    chat::Speed,
    contestants::{Contestant, Durability, Nginx, Tollgate},
    cpu,
    load::{
        Target,
        excess::{self, Tally},
        percentile,
    },
    plain_http, process,
    upstream::Upstream,
};

/// A fast model.
const UPSTREAM_MS: u64 = 50;
const SPEED: Speed = Speed::After(UPSTREAM_MS);
/// Connections of the search for the most that can be served.
const RAMP: [usize; 3] = [200, 400, 600];
const RAMP_TIME: Duration = Duration::from_millis(1_500);
/// Requests a second without load.
const UNLOADED_RATE: f64 = 50.0;
/// More than nginx needs for its best rate: with an upstream of 50 ms, this many are 12,000 a second.
const NGINX_MOST: usize = 600;

const GATEWAYS: usize = 3;
/// Connections to all gateways of the fleet.
const FLEET_RAMP: [usize; 4] = [75, 150, 300, 600];
const FLEET_EXCESS: f64 = 2.5;

#[derive(Args)]
pub struct Options {
    /// The gateway's binary
    #[arg(long, default_value = "target/release/tollgate")]
    tollgate: PathBuf,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// File of the report
    #[arg(long, default_value = "bench/results/overload.md")]
    out: PathBuf,
    /// Without the gateways that share their stores
    #[arg(long)]
    alone: bool,
    /// Only the gateways that share their stores
    #[arg(long)]
    fleet: bool,
}

pub fn run(options: &Options) -> Done {
    process::allow_many_files();
    let folder = tempfile::Builder::new()
        .prefix("tollgate-bench-")
        .tempdir()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let upstream = Upstream::start(folder.path())?;
    let time = Duration::from_secs(options.seconds);
    let mut report = String::new();
    if !options.fleet {
        report += "| | peak/s | goodput at twice the peak | accepted p50, p99 (unloaded) | refused, p99 | health, worst | memory | recovered after |\n";
        report += "|---|---|---|---|---|---|---|---|\n";
        let program = &options.tollgate;
        let tollgate = Tollgate::on_files(program, &upstream, folder.path(), Durability::Power)?;
        let operator = Some(tollgate.operator_port());
        report += &twice_the_peak(&runtime, &tollgate, "/health", operator, time)?;
        drop(tollgate);
        let nginx = Nginx::start_limited(&upstream, folder.path(), NGINX_MOST)?;
        report += &twice_the_peak(&runtime, &nginx, "/ready", None, time)?;
        report += "\n";
    }
    if !options.alone {
        let fleet = Tollgate::fleet(&options.tollgate, &upstream, folder.path(), GATEWAYS)?;
        report += &fleet_ramp(&runtime, &fleet, time)?;
    }
    println!("{report}");
    if let Some(parent) = options.out.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(&options.out, report)?)
}

/// Measures a contestant without load, at its peak and at twice its peak; one line of the table.
fn twice_the_peak(
    runtime: &Runtime,
    contestant: &dyn Contestant,
    health: &'static str,
    operator: Option<u16>,
    time: Duration,
) -> Done<String> {
    let (name, target) = (contestant.name(), contestant.target());
    eprintln!("bench: {name} without load and at its peak");
    let alone = [target];
    let closed =
        |connections, time| runtime.block_on(excess::closed(&alone, connections, SPEED, time));
    closed(100, Duration::from_millis(500))?;
    let unloaded = excess::open(target, UNLOADED_RATE, SPEED, Duration::from_secs(2));
    let mut unloaded = runtime.block_on(unloaded);
    let mut peak: f64 = 0.0;
    for connections in RAMP {
        peak = peak.max(closed(connections, RAMP_TIME)?.goodput());
    }
    eprintln!("bench: {name} at twice its peak, {peak:.0} requests a second");
    let probes = health_probes(target, health, operator, time);
    let mut tally = runtime.block_on(excess::open(target, 2.0 * peak, SPEED, time));
    let memory = contestant
        .pid()
        .map_or(0.0, |pid| cpu::of_family(pid).memory);
    let fast = 2.0 * unloaded.latency(0.99);
    let recovery = excess::recovery(target, SPEED, (fast * 1e6) as u64);
    let recovered = runtime.block_on(recovery)?;
    let worst_health = probes.join().map_err(|_| "the probes failed")??;
    if tally.failed > 0 {
        eprintln!("bench: {} requests of {name} failed", tally.failed);
    }
    Ok(format!(
        "| {name} | {peak:.0} | {:.0} % | {:.0}, {:.0} ms ({:.0}, {:.0}) | {:.0} %, {:.1} ms | {worst_health:.0} ms | {:.0} MB | {} ms |\n",
        tally.goodput() * 100.0 / peak,
        tally.latency(0.5),
        tally.latency(0.99),
        unloaded.latency(0.5),
        unloaded.latency(0.99),
        tally.refused_share(),
        percentile(&mut tally.refused, 0.99),
        memory / 1e6,
        recovered.as_millis(),
    ))
}

/// Asks for its health, and its operators' listener, on new connections while it is under load. Returns the longest
/// time in milliseconds; a response other than 200 is a failure.
fn health_probes(
    target: &Target,
    path: &'static str,
    operator: Option<u16>,
    time: Duration,
) -> std::thread::JoinHandle<Done<f64>> {
    let port = target.port;
    std::thread::spawn(move || {
        let started = std::time::Instant::now();
        let mut worst: f64 = 0.0;
        while started.elapsed() < time {
            let begun = std::time::Instant::now();
            let mut probes = vec![plain_http::ask(port, path, None, None)?];
            if let Some(operator) = operator {
                probes.push(plain_http::ask(operator, "/health/live", None, None)?);
            }
            worst = worst.max(begun.elapsed().as_secs_f64() * 1e3);
            if probes[0].status != 200 {
                return Err(format!("{path} answered {}", probes[0].status).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(worst)
    })
}

/// Gateways with shared stores: goodput by the number of connections, which send their next request at once.
fn fleet_ramp(runtime: &Runtime, fleet: &[Tollgate], time: Duration) -> Done<String> {
    let targets: Vec<_> = fleet.iter().map(Contestant::target).collect();
    let mut table = "| connections | goodput/s | of the peak | refused | accepted p50, p99 | refused p99 |\n|---|---|---|---|---|---|\n".to_owned();
    let closed =
        |connections| runtime.block_on(excess::closed(&targets, connections, Speed::Whole, time));
    let (mut peak, mut knee, mut answers): (f64, usize, usize) = (0.0, 0, 0);
    let mut line = |connections: usize, tally: &mut Tally, peak: f64| {
        answers += tally.accepted.len();
        let goodput = tally.goodput();
        let _ = writeln!(
            table,
            "| {connections} | {goodput:.0} | {:.0} % | {:.1} % | {:.0}, {:.0} ms | {:.0} ms |",
            goodput * 100.0 / peak,
            tally.refused_share(),
            tally.latency(0.5),
            tally.latency(0.99),
            percentile(&mut tally.refused, 0.99),
        );
    };
    for connections in FLEET_RAMP {
        eprintln!("bench: the fleet with {connections} connections");
        let mut tally = closed(connections)?;
        if tally.goodput() > peak {
            (peak, knee) = (tally.goodput(), connections);
        }
        line(connections, &mut tally, peak);
    }
    let excess = (knee as f64 * FLEET_EXCESS) as usize;
    eprintln!("bench: the fleet with {excess} connections");
    let mut tally = closed(excess)?;
    line(excess, &mut tally, peak);
    if tally.failed > 0 {
        eprintln!("bench: {} requests of the fleet failed", tally.failed);
    }
    fleet[0].check(answers as u64)?;
    Ok(table)
}
