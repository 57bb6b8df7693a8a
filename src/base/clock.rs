//! The ledger's clock: the system's, or one that is set by hand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::SystemTime,
};

/// The source of the ledger's time. Tests and benchmarks set it by hand.
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

    /// Seconds since 1970 if the clock is set by hand. A database with a clock of its own uses this time instead;
    /// `None` leaves it to its own clock.
    pub(crate) fn manual_now(&self) -> Option<i64> {
        match self {
            Self::System => None,
            Self::Manual(_) => Some(self.now()),
        }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.now_ms().div_euclid(1_000)
    }
}
