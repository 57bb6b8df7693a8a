//! What the operating system says of this process, under the names that every exporter uses.
//!
//! Read from `/proc` when the metrics are scraped; elsewhere than on Linux there are none.

use std::{fmt, fs, sync::LazyLock};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use crate::config::memory_limit;

#[derive(Debug)]
pub(super) struct Process;

/// The numbers of `/proc/self/stat` that are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The name, second of the fields, is in parentheses and may have anything in it.
    fn read(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.trim().parse().ok();
        let (user, system): (u64, u64) = (field(14)?, field(15)?);
        Some(Self {
            cpu_ticks: user + system,
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// When the system was started, in seconds since 1970.
static BOOTED_AT: LazyLock<Option<f64>> = LazyLock::new(|| {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "));
    booted?.trim().parse().ok()
});

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        if let Some(stat) = stat.as_deref().and_then(Stat::read) {
            let seconds = |ticks: u64| to_float(ticks) / to_float(clock_ticks_per_second());
            let cpu = ConstCounter::new(seconds(stat.cpu_ticks));
            let mut put = |name, help, gauge: f64| {
                let gauge = ConstGauge::new(gauge);
                let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
                gauge.encode(encoder)
            };
            let page = to_float(u64::try_from(page_size()).unwrap_or_default());
            put(
                "process_resident_memory_bytes",
                "Memory that is in use",
                to_float(stat.resident_pages) * page,
            )?;
            put(
                "process_virtual_memory_bytes",
                "Memory that is mapped",
                to_float(stat.virtual_bytes),
            )?;
            put("process_threads", "Threads", to_float(stat.threads))?;
            if let Some(limit) = memory_limit() {
                put(
                    "tollgate_memory_limit_bytes",
                    "Memory that the process may use: the lowest limit of its control groups, or the machine's memory",
                    to_float(limit),
                )?;
            }
            if let Some(booted) = *BOOTED_AT {
                put(
                    "process_start_time_seconds",
                    "When the process was started, in seconds since 1970",
                    booted + seconds(stat.started_ticks),
                )?;
            }
            if let Ok(open) = fs::read_dir("/proc/self/fd") {
                put(
                    "process_open_fds",
                    "Open files and sockets",
                    count(open.count()),
                )?;
            }
            if let Some(most) = getrlimit(Resource::Nofile).current {
                put(
                    "process_max_fds",
                    "Most files and sockets that can be open",
                    to_float(most),
                )?;
            }
            let help = "Processor time that was used, in user and system mode";
            let encoder =
                encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?;
            cpu.encode(encoder)?;
        }
        Ok(())
    }
}

fn count(count: usize) -> f64 {
    to_float(u64::try_from(count).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn to_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn the_name_of_the_process_may_have_anything_in_it() {
        let text =
            "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 9 0 5000 1048576 256 18 1\n";
        let expected = Stat {
            cpu_ticks: 42,
            threads: 9,
            started_ticks: 5000,
            virtual_bytes: 1_048_576,
            resident_pages: 256,
        };
        assert_eq!(Stat::read(text), Some(expected));
        assert_eq!(Stat::read("7 (a) S 1"), None);
        assert_eq!(Stat::read(""), None);
    }
}
