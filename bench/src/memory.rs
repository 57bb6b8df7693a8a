//! Start time with stored data, and memory: idle, and with many open streams.

use std::{thread::sleep, time::Duration};

use tokio::runtime::Runtime;

use crate::{
    Done, contestants::Contestant, cpu, figures::Metric, load::slow, rounds::Entry, run::Plan,
    upstream::Upstream,
};

/// For work that continues after the start.
const SETTLES: Duration = Duration::from_secs(2);

/// Longer than the pause between two events, so that each stream has relayed more than its first one.
const STAYS_OPEN: Duration = Duration::from_secs(7);

/// Restarts a contestant right after it was busy.
pub fn restart(plan: &Plan, entry: &mut Entry) -> Done {
    if entry.contestant.pid().is_none() {
        return Ok(());
    }
    for _ in 0..plan.restarts {
        let took = entry.contestant.restart()?;
        entry.figures.add(Metric::Start, took.as_secs_f64() * 1e3);
    }
    Ok(())
}

pub fn weigh(plan: &Plan, runtime: &Runtime, upstream: &Upstream, entry: &mut Entry) -> Done {
    if entry.contestant.pid().is_none() {
        return Ok(());
    }
    entry.contestant.restart()?;
    sleep(SETTLES);
    let idle = memory(entry.contestant.as_ref());
    entry.figures.add(Metric::MemoryIdle, idle);
    entry
        .figures
        .add(Metric::Size, entry.contestant.size() as f64 / 1e6);
    hold(
        plan.few_streams,
        Metric::MemoryFewStreams,
        runtime,
        upstream,
        entry,
    )?;
    if !entry.contestant.is_peer() && plan.many_streams > 0 {
        hold(
            plan.many_streams,
            Metric::MemoryManyStreams,
            runtime,
            upstream,
            entry,
        )?;
    }
    Ok(())
}

/// Opens this many streams, measures memory, and lets them end.
fn hold(
    streams: usize,
    metric: Metric,
    runtime: &Runtime,
    upstream: &Upstream,
    entry: &mut Entry,
) -> Done {
    let held = match runtime.block_on(slow::open(entry.contestant.target(), streams)) {
        Ok(held) => held,
        Err(failure) if entry.contestant.is_peer() => {
            let name = entry.contestant.name();
            eprintln!("bench: {name} does not hold {streams} streams: {failure}");
            upstream.release()?;
            entry.contestant.restart()?;
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    // Inside the runtime, so that arriving events are read.
    runtime.block_on(async { tokio::time::sleep(STAYS_OPEN).await });
    entry.figures.add(metric, memory(entry.contestant.as_ref()));
    upstream.release()?;
    entry.answers += runtime.block_on(held.finish())?;
    Ok(())
}

/// In megabytes.
fn memory(contestant: &dyn Contestant) -> f64 {
    contestant
        .pid()
        .map_or(0.0, |pid| cpu::of_family(pid).memory / 1e6)
}
