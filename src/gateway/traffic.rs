//! What this gateway has been doing, second by second, for whoever watches it.
//!
//! A request adds to a few counters and is done. Once a second somebody looks at them, and what was
//! added since is that second's.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::ledger::Charged;

/// How many seconds are remembered.
pub const SECONDS: usize = 300;

#[derive(Default)]
pub struct Traffic {
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
    spent: AtomicU64,
    watched: Mutex<Watched>,
}

/// What happened in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// All of them.
    pub requests: u64,
    /// Those that asked for what they may not have, or not now.
    pub refused: u64,
    /// Those that were answered badly, or not to the end.
    pub failed: u64,
    /// Charged for, of both kinds.
    pub tokens: u64,
    /// Billionths of a dollar.
    pub spent: u64,
}

/// How a request ended, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Also for clients that left.
    Served,
    Refused,
    Failed,
}

#[derive(Default)]
struct Watched {
    /// How far the counters were at the last look, and in which second that was.
    so_far: Sums,
    at: Option<u64>,
    /// The latest last.
    seconds: VecDeque<Sums>,
}

impl Traffic {
    /// A request is over.
    pub fn ended(&self, end: End) {
        self.requests.fetch_add(1, Relaxed);
        match end {
            End::Served => {}
            End::Refused => _ = self.refused.fetch_add(1, Relaxed),
            End::Failed => _ = self.failed.fetch_add(1, Relaxed),
        }
    }

    /// A call was paid.
    pub fn charged(&self, charged: Charged) {
        self.tokens.fetch_add(charged.usage.total(), Relaxed);
        let nanos = u64::try_from(charged.cost.nanos()).unwrap_or(0);
        self.spent.fetch_add(nanos, Relaxed);
    }

    /// Closes the second that has just ended, by its number. Whoever comes late has seconds in between to
    /// make up for: nobody knows which of them it was, so it is the last.
    pub fn tick(&self, second: u64) {
        let now = self.so_far();
        let mut watched = self.watched();
        let since = watched.at.map_or(1, |at| second.saturating_sub(at));
        let Some(empty) = since.checked_sub(1) else {
            return;
        };
        let empty = usize::try_from(empty).unwrap_or(SECONDS).min(SECONDS);
        let latest = now.since(watched.so_far);
        watched.seconds.extend([Sums::default()].repeat(empty));
        watched.seconds.push_back(latest);
        let surplus = watched.seconds.len().saturating_sub(SECONDS);
        watched.seconds.drain(..surplus);
        watched.so_far = now;
        watched.at = Some(second);
    }

    /// The last seconds that are over, the latest last: always as many as are remembered at most.
    pub fn seconds(&self) -> Vec<Sums> {
        let watched = self.watched();
        let missing = SECONDS - watched.seconds.len();
        let before = std::iter::repeat_n(Sums::default(), missing);
        before.chain(watched.seconds.iter().copied()).collect()
    }

    fn so_far(&self) -> Sums {
        Sums {
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            spent: self.spent.load(Relaxed),
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
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

    pub fn of(seconds: &[Self]) -> Self {
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
    fn what_came_since_the_last_look_is_of_the_last_second() {
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
            panic!("three of them");
        };
        assert_eq!((first.requests, first.refused, first.failed), (2, 1, 0));
        assert_eq!((second.requests, second.failed), (1, 1));
        assert_eq!((second.tokens, second.spent), (7, 5));
        assert_eq!(third, Sums::default());
        let all = Sums::of(&seconds);
        assert_eq!((all.requests, all.tokens), (3, 7));
    }

    #[test]
    fn whoever_looks_late_leaves_empty_seconds_and_nothing_is_lost() {
        let traffic = Traffic::default();
        traffic.tick(10);
        traffic.ended(End::Served);
        traffic.tick(13);
        assert_eq!(last(&traffic, 4), [0, 0, 0, 1]);
        traffic.ended(End::Served);
        traffic.tick(13);
        assert_eq!(last(&traffic, 1), [1], "this second is over already");
        traffic.tick(14);
        assert_eq!(last(&traffic, 2), [1, 1]);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
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
