//! The time, as the ledger tells it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::SystemTime,
};

/// Where the ledger has the time from: the system, or whoever tests and measures it.
#[derive(Clone, Default)]
pub enum Clock {
    #[default]
    System,
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match self {
            Self::System => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
            }
            Self::Manual(now_ms) => now_ms.load(Relaxed),
        }
    }

    /// What a database that has a clock of its own is told the time is, in seconds: nothing, but by a clock that is set.
    pub fn told(&self) -> Option<i64> {
        match self {
            Self::System => None,
            Self::Manual(_) => Some(self.now()),
        }
    }

    /// Seconds since 1970.
    pub fn now(&self) -> i64 {
        self.now_ms().div_euclid(1_000)
    }
}
