//! `server.body_memory_bytes` and `server.body_memory_share_percent`: how much memory request bodies may take.

use crate::{
    base::checked_toml::{self, Section},
    net::body_memory::COPIES,
};

/// The default limit is a quarter of the machine's memory, within these bounds.
const LEAST_DEFAULT: usize = 128 << 20;
const MOST_DEFAULT: usize = 4 << 30;
/// Assumed if the machine's memory is unknown.
const UNKNOWN_MEMORY: u64 = 1 << 30;
/// Percentage of the limit that one account may take.
const DEFAULT_SHARE: usize = 25;

/// The memory of request bodies in bytes. A byte of a body counts [`COPIES`] times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyMemoryLimits {
    /// The most for all bodies.
    pub limit: usize,
    /// The most for the bodies of one account; always enough for the largest body.
    pub share: usize,
}

impl BodyMemoryLimits {
    /// The defaults on this machine.
    pub(crate) fn of_this_machine(max_body_bytes: usize) -> Self {
        let limit = machine_memory_here(4).clamp(LEAST_DEFAULT, MOST_DEFAULT);
        Self::new(
            limit.max(largest(max_body_bytes)),
            DEFAULT_SHARE,
            max_body_bytes,
        )
    }

    fn new(limit: usize, share_percent: usize, max_body_bytes: usize) -> Self {
        let share = limit / 100 * share_percent;
        let share = share.max(largest(max_body_bytes)).min(limit);
        Self { limit, share }
    }
}

pub(super) fn body_memory(section: &mut Section, max_body_bytes: usize) -> BodyMemoryLimits {
    let least = largest(max_body_bytes);
    let expected = format!("a number of bytes from {least}, {COPIES} times `max_body_bytes`");
    let limit = section.optional("body_memory_bytes", &expected, |value| {
        checked_toml::as_integer(value).filter(|bytes| *bytes >= least)
    });
    let share = section.optional(
        "body_memory_share_percent",
        "a percentage from 1 to 100",
        |value| checked_toml::as_integer(value).filter(|percent| (1..=100_usize).contains(percent)),
    );
    let default = BodyMemoryLimits::of_this_machine(max_body_bytes);
    BodyMemoryLimits::new(
        limit.unwrap_or(default.limit),
        share.unwrap_or(DEFAULT_SHARE),
        max_body_bytes,
    )
}

/// The memory that the largest body takes.
fn largest(max_body_bytes: usize) -> usize {
    max_body_bytes.saturating_mul(COPIES)
}

/// This part of the memory that this process may use.
pub(super) fn machine_memory_here(part: u64) -> usize {
    let memory = memory_limit().unwrap_or(UNKNOWN_MEMORY);
    usize::try_from(memory / part).unwrap_or(usize::MAX)
}

/// The memory in bytes that this process may use now; `None` if it is unknown.
pub(crate) fn memory_limit() -> Option<u64> {
    machine_memory(|path| std::fs::read_to_string(path).ok())
}

/// The memory that this process may use: the machine's, or the lowest limit of its control groups. `None` if it is
/// unknown.
fn machine_memory(read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let total = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kilobytes: u64 = line?.split_whitespace().next()?.parse().ok()?;
        kilobytes.checked_mul(1_024)
    });
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(limit_files);
    let limits = limits.filter_map(|file| read(&file)?.trim().parse().ok()); // `max` is no limit
    total.into_iter().chain(limits).min()
}

/// The files with the limits of a control group and the groups around it. A line is `0::/path` in version 2 and
/// `NUMBER:CONTROLLERS:/path` in version 1.
fn limit_files(line: &str) -> Vec<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    // In a container the path may be that outside of it: then only the outermost file is there.
    let path = path.trim_end_matches('/');
    let ends = path.match_indices('/').map(|(end, _)| end);
    let around = ends.chain([path.len()]).map(|end| &path[..end]);
    around
        .map(|group| format!("{root}{group}/{file}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABYTE: u64 = 1 << 30;

    #[test]
    fn the_share_is_a_part_of_the_limit_and_fits_the_largest_body() {
        let limits = BodyMemoryLimits::new(1_000, 25, 10);
        assert_eq!((limits.limit, limits.share), (1_000, 250));
        let one_body = BodyMemoryLimits::new(1_000, 25, 200);
        assert_eq!(one_body.share, 600, "the largest body fits");
    }

    #[test]
    fn the_lowest_limit_around_the_process_counts() {
        let meminfo = (
            "/proc/meminfo",
            "MemTotal:       16384000 kB\nMemFree: 1 kB\n",
        );
        let memory = |files: &[(&str, &str)]| {
            machine_memory(|path| {
                let mut files = files.iter().chain([&meminfo]);
                let found = files.find(|(name, _)| *name == path);
                found.map(|(_, text)| (*text).to_owned())
            })
        };
        let machine = 16_384_000 * 1_024;
        assert_eq!(memory(&[]), Some(machine));
        let version_2 = ("/proc/self/cgroup", "0::/system.slice/tollgate.service\n");
        let of_service = |text| {
            (
                "/sys/fs/cgroup/system.slice/tollgate.service/memory.max",
                text,
            )
        };
        let of_slice = ("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
        assert_eq!(memory(&[version_2, of_service("max\n")]), Some(machine));
        assert_eq!(memory(&[version_2, of_service("2048\n")]), Some(2_048));
        let both = [version_2, of_service("max\n"), of_slice];
        assert_eq!(memory(&both), Some(GIGABYTE));
        let container = ("/proc/self/cgroup", "0::/\n");
        let of_container = ("/sys/fs/cgroup/memory.max", "4096");
        assert_eq!(memory(&[container, of_container]), Some(4_096));
        let version_1 = ("/proc/self/cgroup", "9:cpu:/a\n4:memory:/docker/1\n");
        let of_group = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
        assert_eq!(memory(&[version_1, of_group]), Some(8_192));
        assert_eq!(machine_memory(|_| None), None);
    }
}
