//! The machine that the benchmark ran on.

use std::fs;

pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    /// Load average of the minute before the start: figures of a busy machine say little.
    pub load: f64,
}

impl Machine {
    pub fn read() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().map(str::parse);
        Self {
            processor: model.unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            load: load.and_then(Result::ok).unwrap_or(0.0),
        }
    }
}
