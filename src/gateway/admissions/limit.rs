//! How many calls may be admitted at a time, by how long admissions take.
//!
//! The limit grows while calls wait and admissions are fast, and shrinks while admissions are slow: then more of them at
//! a time would only wait for one another in the stores.

use std::time::{Duration, Instant};

/// The limit at first. It grows within a second if that is not enough.
const START: usize = 64;
const MIN: usize = 16;
const MAX: usize = 1_024;
/// An admission that takes longer is slow. It is a quarter of the default deadline of Redis.
const SLOW: Duration = Duration::from_millis(50);
/// With stores that are far away, an admission is slow that takes this many times as long as the fastest one.
const SLOW_TIMES: u32 = 3;
/// How long to wait after the limit has shrunk before it shrinks again: admissions that began before it still end.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct ConcurrencyLimit {
    limit: usize,
    /// Fast admissions since the limit grew or one was slow.
    fast: usize,
    fastest: Option<Duration>,
    shrunk_at: Option<Instant>,
}

/// An admission that has ended.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub took: Duration,
    pub at: Instant,
    /// Otherwise it was refused, or has failed.
    pub is_admitted: bool,
}

impl Default for ConcurrencyLimit {
    fn default() -> Self {
        Self {
            limit: START,
            fast: 0,
            fastest: None,
            shrunk_at: None,
        }
    }
}

impl ConcurrencyLimit {
    pub(super) fn get(&self) -> usize {
        self.limit
    }

    /// Adjusts the limit after an admission has ended. It grows only while `others_wait`.
    pub(super) fn adjust(&mut self, ended: Ended, others_wait: bool) {
        let Ended { took, at, .. } = ended;
        // A refusal can be fast because the stores are not asked, or slow because they do not reply.
        if !ended.is_admitted && took <= SLOW {
            return;
        }
        let fastest = self.fastest.map_or(took, |fastest| fastest.min(took));
        self.fastest = Some(fastest);
        if took > SLOW.max(fastest * SLOW_TIMES) {
            self.fast = 0;
            if self.shrunk_at.is_none_or(|last| at - last >= PAUSE) {
                self.shrunk_at = Some(at);
                // So few at a time do not wait for one another: it is the stores that take longer than before.
                if self.limit == MIN {
                    self.fastest = Some(fastest + fastest / 8);
                }
                self.limit = (self.limit * 3 / 4).max(MIN);
            }
            return;
        }
        if !others_wait {
            return;
        }
        self.fast += 1;
        if self.fast >= self.limit {
            self.fast = 0;
            self.limit = (self.limit + self.limit / 8).min(MAX);
        }
    }
}
