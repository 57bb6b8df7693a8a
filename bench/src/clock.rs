//! One clock for several processes.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started. `std::time::Instant` counts the same, and cannot be sent to
/// another process.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = now.tv_sec.saturating_mul(1_000_000_000) + now.tv_nsec;
    nanos.unsigned_abs()
}
