//! Detects jumps of another machine's clock, by comparing it with our monotonic clock.
//!
//! A server's clock can be set while it runs; our monotonic clock cannot. Each reading bounds how far the server's
//! clock is ahead of ours. Between two readings that offset changes only if the server's clock was set, or if this
//! machine was suspended.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// By how many milliseconds two readings may differ without a jump, because clocks are adjusted in small steps.
pub(crate) const TOLERANCE_MS: i64 = 2_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds on our monotonic clock, since this was first called.
pub(crate) fn monotonic_ms() -> i64 {
    millis(START.elapsed())
}

/// Bounds of how many milliseconds a server's clock is ahead of our monotonic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    least: i64,
    most: i64,
}

impl ClockOffset {
    /// The offset from one reading: the server's clock showed `server_ms` between the sending of our request and the
    /// arrival of its reply.
    pub(crate) fn seen(server_ms: i64, sent_ms: i64, received_ms: i64) -> Self {
        Self {
            least: server_ms - received_ms,
            most: server_ms - sent_ms,
        }
    }

    /// By how many milliseconds the server's clock jumped between the two readings; `None` if it did not.
    pub(crate) fn jump_to(self, later: Self) -> Option<i64> {
        if later.least > self.most + TOLERANCE_MS {
            Some(later.least - self.most)
        } else if later.most < self.least - TOLERANCE_MS {
            Some(later.most - self.least)
        } else {
            None
        }
    }

    /// The earliest and the latest time that the server's clock can show when a message sent now arrives, which takes
    /// at most `arrives`.
    pub(crate) fn now_within(self, arrives: Duration) -> (i64, i64) {
        let now = monotonic_ms();
        let earliest = now + self.least - TOLERANCE_MS;
        let latest = now + self.most + millis(arrives) + TOLERANCE_MS;
        (earliest, latest)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_was_set_has_jumped() {
        let first = ClockOffset::seen(1_000_000, 10, 30);
        for (later, jump) in [
            // A slow reply widens the bounds, and is no proof of a jump.
            (ClockOffset::seen(1_005_000, 5_010, 5_020), None),
            (ClockOffset::seen(1_005_000, 10, 9_000), None),
            (ClockOffset::seen(1_007_000, 5_010, 5_020), None),
            (
                ClockOffset::seen(4_605_000, 5_010, 5_020),
                Some(3_600_000 - 10),
            ),
            (
                ClockOffset::seen(-2_595_000, 5_010, 5_020),
                Some(-3_600_000 + 20),
            ),
        ] {
            assert_eq!(first.jump_to(later), jump, "{later:?}");
        }
    }
}
