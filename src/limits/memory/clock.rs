//! The clock of the windows: milliseconds since 1970 that never run backwards.

use std::time::{Instant, SystemTime};

pub(crate) enum Clock {
    /// The system's time at the start, advanced by the monotonic clock.
    System { started_ms: u64, started: Instant },
    #[cfg(test)]
    Manual(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

impl Clock {
    pub(crate) fn system() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::System {
            started_ms: u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            started: Instant::now(),
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        match self {
            Self::System {
                started_ms,
                started,
            } => started_ms + u64::try_from(started.elapsed().as_millis()).unwrap_or(0),
            #[cfg(test)]
            Self::Manual(now_ms) => now_ms.load(std::sync::atomic::Ordering::Relaxed),
        }
    }
}
