//! Requests and charges of this gateway for each of the last seconds, for the console.
//!
//! A request only adds to a few counters. A job samples the counters once a second; the increase since the last
//! sample belongs to the second that has just ended. In memory only.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::ledger::Charged;

/// Number of seconds that are kept.
pub(crate) const SECONDS: usize = 300;

#[derive(Default)]
pub struct Traffic {
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
    spent: AtomicU64,
    history: Mutex<History>,
}

/// Sums over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// All requests, whatever their outcome.
    pub requests: u64,
    /// Requests that got a 4xx status.
    pub refused: u64,
    /// Requests that got a 5xx status, or whose response broke off.
    pub failed: u64,
    /// Charged tokens, prompt and completion together.
    pub tokens: u64,
    /// Charged amount in nano-dollars.
    pub spent: u64,
}

/// Outcome of a request, as it is counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Includes requests whose client disconnected.
    Served,
    Refused,
    Failed,
}

/// The samples of the counters.
#[derive(Default)]
struct History {
    /// The counters at the last sample.
    sampled: Sums,
    /// Number of the second of the last sample.
    at: Option<u64>,
    /// Sums of each second, the latest last.
    seconds: VecDeque<Sums>,
}

impl Traffic {
    /// Counts a request that has ended.
    pub(crate) fn ended(&self, end: End) {
        self.requests.fetch_add(1, Relaxed);
        match end {
            End::Served => {}
            End::Refused => _ = self.refused.fetch_add(1, Relaxed),
            End::Failed => _ = self.failed.fetch_add(1, Relaxed),
        }
    }

    /// Counts a charge.
    pub(crate) fn charged(&self, charged: Charged) {
        self.tokens.fetch_add(charged.usage.total(), Relaxed);
        let nanos = u64::try_from(charged.cost.nanos()).unwrap_or(0);
        self.spent.fetch_add(nanos, Relaxed);
    }

    /// Samples the counters for the second with this number, which has just ended. If seconds were skipped, they are
    /// empty and the whole increase is counted for this one. Does nothing if the second was sampled before.
    pub(crate) fn tick(&self, second: u64) {
        let now = self.counters();
        let mut history = self.history();
        let since = history.at.map_or(1, |at| second.saturating_sub(at));
        let Some(empty) = since.checked_sub(1) else {
            return;
        };
        let empty = usize::try_from(empty).unwrap_or(SECONDS).min(SECONDS);
        let latest = now.since(history.sampled);
        history.seconds.extend([Sums::default()].repeat(empty));
        history.seconds.push_back(latest);
        let surplus = history.seconds.len().saturating_sub(SECONDS);
        history.seconds.drain(..surplus);
        history.sampled = now;
        history.at = Some(second);
    }

    /// Returns the sums of the last [`SECONDS`] completed seconds, the latest last. Seconds before the start are
    /// empty.
    pub(crate) fn seconds(&self) -> Vec<Sums> {
        let history = self.history();
        let missing = SECONDS - history.seconds.len();
        let before = std::iter::repeat_n(Sums::default(), missing);
        before.chain(history.seconds.iter().copied()).collect()
    }

    fn counters(&self) -> Sums {
        Sums {
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            spent: self.spent.load(Relaxed),
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sums {
    fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            refused: self.refused.saturating_sub(before.refused),
            failed: self.failed.saturating_sub(before.failed),
            tokens: self.tokens.saturating_sub(before.tokens),
            spent: self.spent.saturating_sub(before.spent),
        }
    }

    /// Adds up several seconds.
    pub(crate) fn of(seconds: &[Self]) -> Self {
        let add = |sum: Self, one: &Self| Self {
            requests: sum.requests.saturating_add(one.requests),
            refused: sum.refused.saturating_add(one.refused),
            failed: sum.failed.saturating_add(one.failed),
            tokens: sum.tokens.saturating_add(one.tokens),
            spent: sum.spent.saturating_add(one.spent),
        };
        seconds.iter().fold(Self::default(), add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::money::NanoUsd, wire::chat::Usage};

    fn last(traffic: &Traffic, count: usize) -> Vec<u64> {
        let seconds = traffic.seconds();
        let last = &seconds[SECONDS - count..];
        last.iter().map(|second| second.requests).collect()
    }

    #[test]
    fn the_increase_since_the_last_sample_belongs_to_the_last_second() {
        let traffic = Traffic::default();
        traffic.ended(End::Served);
        traffic.ended(End::Refused);
        traffic.tick(10);
        traffic.ended(End::Failed);
        traffic.charged(Charged {
            usage: Usage {
                prompt: 3,
                completion: 4,
                ..Usage::default()
            },
            cost: NanoUsd::new(5),
            balance_before: NanoUsd::new(9),
            balance_after: NanoUsd::new(4),
        });
        traffic.tick(11);
        traffic.tick(12);
        let seconds = traffic.seconds();
        assert_eq!(seconds.len(), SECONDS);
        let [first, second, third] = seconds[SECONDS - 3..] else {
            panic!("there are three seconds");
        };
        assert_eq!((first.requests, first.refused, first.failed), (2, 1, 0));
        assert_eq!((second.requests, second.failed), (1, 1));
        assert_eq!((second.tokens, second.spent), (7, 5));
        assert_eq!(third, Sums::default());
        let all = Sums::of(&seconds);
        assert_eq!((all.requests, all.tokens), (3, 7));
    }

    #[test]
    fn a_late_sample_leaves_empty_seconds_and_loses_nothing() {
        let traffic = Traffic::default();
        traffic.tick(10);
        traffic.ended(End::Served);
        traffic.tick(13);
        assert_eq!(last(&traffic, 4), [0, 0, 0, 1]);
        traffic.ended(End::Served);
        traffic.tick(13);
        assert_eq!(last(&traffic, 1), [1], "this second was sampled before");
        traffic.tick(14);
        assert_eq!(last(&traffic, 2), [1, 1]);
    }

    #[test]
    fn only_the_last_seconds_are_kept() {
        let traffic = Traffic::default();
        for second in 0..1_000 {
            traffic.ended(End::Served);
            traffic.tick(second);
        }
        assert_eq!(Sums::of(&traffic.seconds()).requests, 300);
        traffic.tick(u64::MAX);
        assert_eq!(Sums::of(&traffic.seconds()).requests, 0);
    }
}
