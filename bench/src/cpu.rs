//! CPU time and memory of processes, as the kernel counts them.

use std::{collections::HashMap, fs, path::Path};

/// Of a process and its running descendants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Seconds in user space and in the kernel.
    pub cpu: f64,
    /// Resident memory (RSS) in bytes; shared pages count for each process.
    pub memory: f64,
}

/// `/proc` counts CPU time in hundredths of a second.
const TICKS_A_SECOND: f64 = 100.0;

pub fn of_family(pid: u32) -> Used {
    let all = all();
    let mut used = Used::default();
    for (one, process) in &all {
        if is_of_family(*one, pid, &all) {
            used.cpu += process.cpu;
            used.memory += memory_of(*one);
        }
    }
    used
}

struct Process {
    parent: u32,
    cpu: f64,
}

fn all() -> HashMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // Fields are counted from the last parenthesis, because a process name may contain anything.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| words.get(at)?.parse::<f64>().ok();
    Some(Process {
        parent: words.get(1)?.parse().ok()?,
        cpu: (ticks(11)? + ticks(12)?) / TICKS_A_SECOND,
    })
}

fn is_of_family(pid: u32, head: u32, all: &HashMap<u32, Process>) -> bool {
    let mut one = pid;
    while one != head {
        match all.get(&one) {
            Some(process) if process.parent != 0 => one = process.parent,
            _ => return false,
        }
    }
    true
}

fn memory_of(pid: u32) -> f64 {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

/// CPU seconds of one process, without its descendants.
pub fn of_one(pid: u32) -> f64 {
    process(pid).map_or(0.0, |process| process.cpu)
}
