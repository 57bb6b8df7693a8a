//! When requests are refused because there are more of them than can be served.

use std::{ops::RangeInclusive, time::Duration};

use crate::base::checked_toml::{self, Section};

/// The bounds beyond which new calls get 503 instead of a long wait.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// How late the tasks of a serving thread may run.
    pub max_lag: Duration,
    /// How long calls may queue for the shared stores.
    pub max_wait: Duration,
}

impl Default for Overload {
    /// The bounds with embedded stores.
    fn default() -> Self {
        Self {
            // A request waits for its thread about three times, so the lag adds about 20 ms to its response: less than
            // half of what the fastest models take.
            max_lag: Duration::from_millis(6),
            max_wait: Duration::from_millis(300),
        }
    }
}

impl Overload {
    /// The bounds with shared stores. The queue for them bounds the calls of a gateway already, and what a thread has to
    /// do with it, so the lag is the second bound there: refusals at the first one would take the time of calls.
    fn with_shared_stores() -> Self {
        Self {
            max_lag: Duration::from_millis(150),
            ..Self::default()
        }
    }
}

pub(super) fn overload(mut section: Section, has_shared_stores: bool) -> Overload {
    let default = if has_shared_stores {
        Overload::with_shared_stores()
    } else {
        Overload::default()
    };
    let overload = Overload {
        max_lag: milliseconds(&mut section, "max_lag_ms", 1..=60_000).unwrap_or(default.max_lag),
        max_wait: milliseconds(&mut section, "max_wait_ms", 1..=60_000).unwrap_or(default.max_wait),
    };
    section.finish();
    overload
}

fn milliseconds(section: &mut Section, key: &str, range: RangeInclusive<u64>) -> Option<Duration> {
    let (from, to) = (range.start(), range.end());
    let expected = format!("a number of milliseconds from {from} to {to}");
    section.optional(key, &expected, |value| {
        let ms: u64 = checked_toml::as_integer(value)?;
        range.contains(&ms).then(|| Duration::from_millis(ms))
    })
}
