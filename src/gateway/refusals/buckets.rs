//! Token buckets by key, bounded in number. They have no clock of their own.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// What one refusal takes from a bucket. A bucket for `n` refusals a minute refills by `n` a millisecond, so that this
/// is the same for all of them.
pub(super) const REFUSAL: i64 = 60_000;
/// What a refusal takes that says when to retry.
pub(super) const RETRYABLE: i64 = REFUSAL / 10;

/// How long the number of empty buckets may be out of date, in milliseconds.
const SWEEP_MS: u64 = 1_000;

/// A bucket for each key that was refused lately. A key without one has a full bucket.
///
/// Clients choose their addresses, so the map has the standard hash function, which resists collisions.
pub(super) struct Buckets<K> {
    /// Refill per millisecond.
    refill: i64,
    most: usize,
    by_key: HashMap<K, Bucket>,
    empty: usize,
    swept_ms: u64,
}

#[derive(Clone, Copy)]
struct Bucket {
    /// Below zero after concurrent refusals of requests that had all been let through; at least minus a full bucket.
    level: i64,
    /// When the level was computed.
    at_ms: u64,
}

impl Bucket {
    /// Whether it has no room for a refusal, as of its level.
    fn is_empty(self) -> bool {
        self.level < REFUSAL
    }

    /// The bucket as it is now; `refill` is per millisecond.
    fn refilled(self, refill: i64, now_ms: u64) -> Self {
        let elapsed = now_ms.saturating_sub(self.at_ms);
        let more = i64::try_from(elapsed)
            .unwrap_or(i64::MAX)
            .saturating_mul(refill);
        let level = self.level.saturating_add(more).min(full(refill));
        Self {
            level,
            at_ms: now_ms.max(self.at_ms),
        }
    }
}

/// The level of a full bucket: the refill of a minute.
fn full(refill: i64) -> i64 {
    refill * REFUSAL
}

impl<K: Eq + Hash> Buckets<K> {
    /// Buckets for `per_minute` refusals, at most `most` of them.
    pub(super) fn new(per_minute: u32, most: usize) -> Self {
        Self {
            refill: per_minute.into(),
            most,
            by_key: HashMap::new(),
            empty: 0,
            swept_ms: 0,
        }
    }

    /// Number of empty buckets, at most a second out of date while [`Self::wait`] is called.
    pub(super) fn empty(&self) -> usize {
        self.empty
    }

    /// Seconds until the key's bucket has room for a refusal, at least one; `None` if it has room now.
    pub(super) fn wait<Q>(&mut self, key: &Q, now_ms: u64) -> Option<u64>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        // Buckets that are never looked at again must not count as empty for ever.
        if now_ms.saturating_sub(self.swept_ms) >= SWEEP_MS {
            self.sweep(now_ms);
        }
        let bucket = self.by_key.get(key)?.refilled(self.refill, now_ms);
        let missing = REFUSAL - bucket.level;
        let wait_ms = u64::try_from(missing)
            .unwrap_or(0)
            .div_ceil(self.refill.unsigned_abs());
        (missing > 0).then(|| wait_ms.div_ceil(1_000).max(1))
    }

    /// Takes the cost of a refusal from the key's bucket.
    pub(super) fn take<Q>(&mut self, key: &Q, cost: i64, now_ms: u64)
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + ToOwned<Owned = K>,
    {
        let full = full(self.refill);
        if !self.by_key.contains_key(key) {
            self.make_room(now_ms);
            let bucket = Bucket {
                level: full,
                at_ms: now_ms,
            };
            self.by_key.insert(key.to_owned(), bucket);
        }
        if let Some(bucket) = self.by_key.get_mut(key) {
            let was_empty = bucket.is_empty();
            *bucket = bucket.refilled(self.refill, now_ms);
            bucket.level = (bucket.level - cost).max(-full);
            self.empty = self.empty + usize::from(bucket.is_empty()) - usize::from(was_empty);
        }
    }

    /// Brings all buckets up to date and drops full ones, which are as good as none. Returns how many are empty.
    pub(super) fn sweep(&mut self, now_ms: u64) -> usize {
        let (refill, full) = (self.refill, full(self.refill));
        self.by_key.retain(|_, bucket| {
            *bucket = bucket.refilled(refill, now_ms);
            bucket.level < full
        });
        self.count_empty();
        self.swept_ms = now_ms;
        self.empty
    }

    /// Makes room for another bucket: drops full ones, and if that frees too little the fuller half, so that this is
    /// seldom needed. Those that have been refused most stay.
    fn make_room(&mut self, now_ms: u64) {
        if self.by_key.len() < self.most {
            return;
        }
        self.sweep(now_ms);
        if self.by_key.len() <= self.most / 2 {
            return;
        }
        let mut levels: Vec<i64> = self.by_key.values().map(|bucket| bucket.level).collect();
        let middle = levels.len() / 2;
        let (_, &mut middle, _) = levels.select_nth_unstable(middle);
        self.by_key.retain(|_, bucket| bucket.level < middle);
        self.count_empty();
    }

    fn count_empty(&mut self) {
        let empty = self.by_key.values().filter(|bucket| bucket.is_empty());
        self.empty = empty.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_MINUTE: u32 = 60;

    fn buckets(most: usize) -> Buckets<u32> {
        Buckets::new(PER_MINUTE, most)
    }

    /// Refuses requests at `now_ms` until the bucket is empty; returns how many.
    fn refused(buckets: &mut Buckets<u32>, key: u32, cost: i64, now_ms: u64) -> u32 {
        let mut refused = 0;
        while buckets.wait(&key, now_ms).is_none() {
            buckets.take(&key, cost, now_ms);
            refused += 1;
        }
        refused
    }

    #[test]
    fn a_bucket_holds_a_minute_and_refills_steadily() {
        let mut buckets = buckets(8);
        assert_eq!(refused(&mut buckets, 1, REFUSAL, 0), PER_MINUTE);
        assert_eq!((buckets.wait(&1, 0), buckets.empty()), (Some(1), 1));
        assert_eq!(buckets.wait(&2, 0), None);
        // One a second, and no more than a bucket after a long time.
        assert_eq!(buckets.wait(&1, 999), Some(1));
        assert_eq!(refused(&mut buckets, 1, REFUSAL, 1_000), 1);
        assert_eq!(refused(&mut buckets, 1, REFUSAL, 11_500), 10);
        assert_eq!(refused(&mut buckets, 1, REFUSAL, 10_000_000), PER_MINUTE);
    }

    #[test]
    fn refusals_that_may_be_retried_count_a_tenth() {
        let mut buckets = buckets(8);
        let all = refused(&mut buckets, 1, RETRYABLE, 0);
        // A bucket without room for a whole refusal is empty.
        assert_eq!(all, PER_MINUTE * 10 - 9);
    }

    #[test]
    fn concurrent_refusals_are_paid_back_within_two_minutes() {
        let mut buckets = buckets(8);
        for _ in 0..PER_MINUTE + 5 {
            buckets.take(&1, REFUSAL, 0);
        }
        assert_eq!(buckets.wait(&1, 0), Some(6));
        for _ in 0..1_000 {
            buckets.take(&1, REFUSAL, 0);
        }
        assert_eq!(buckets.wait(&1, 0), Some(61));
    }

    #[test]
    fn a_bucket_that_nobody_uses_again_stops_counting_as_empty() {
        let mut buckets = buckets(8);
        refused(&mut buckets, 1, REFUSAL, 0);
        assert_eq!(buckets.empty(), 1);
        buckets.wait(&2, 1_000);
        assert_eq!(buckets.empty(), 0);
        buckets.wait(&2, 61_000);
        assert!(buckets.by_key.is_empty(), "full buckets are dropped");
    }

    #[test]
    fn the_number_of_buckets_is_bounded_and_empty_ones_stay() {
        let mut buckets = buckets(100);
        refused(&mut buckets, 0, REFUSAL, 0);
        for key in 1..10_000 {
            buckets.take(&key, REFUSAL, 0);
            assert!(buckets.by_key.len() <= 100, "{}", buckets.by_key.len());
            assert_eq!(buckets.empty(), 1);
        }
        assert!(buckets.wait(&0, 0).is_some());
    }
}
