//! Another machine's clock beside our monotonic one, which nobody can set.
//!
//! A server's clock can be set while it runs. Each look at it bounds how far it is ahead of our monotonic
//! clock; between two looks that distance changes only if one of the clocks was set, or stood still.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// What two looks may differ by: clocks that are adjusted slowly, or by a little, have not jumped.
pub const TOLERANCE_MS: i64 = 2_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds on our monotonic clock.
pub fn monotonic_ms() -> i64 {
    millis(START.elapsed())
}

/// How many milliseconds a server's clock is ahead of our monotonic one: no less and no more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    least: i64,
    most: i64,
}

impl ClockOffset {
    /// The server said `server_ms` at some moment between these two of ours.
    pub fn seen(server_ms: i64, sent_ms: i64, received_ms: i64) -> Self {
        Self {
            least: server_ms - received_ms,
            most: server_ms - sent_ms,
        }
    }

    /// By how many milliseconds the server's clock was set between the two looks, if it was.
    pub fn jump_to(self, later: Self) -> Option<i64> {
        if later.least > self.most + TOLERANCE_MS {
            Some(later.least - self.most)
        } else if later.most < self.least - TOLERANCE_MS {
            Some(later.most - self.least)
        } else {
            None
        }
    }

    /// The times that the server's clock can show when it receives what is sent now and arrives within this
    /// time.
    pub fn now_within(self, arrives: Duration) -> (i64, i64) {
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
            // A slow reply widens what is known, and proves nothing.
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
