//! Counts of abandoned calls, by account.
//!
//! The client of such a call has disconnected, but the call is read to its end, because its tokens must be charged.
//! Meanwhile it takes memory and a connection to its provider. An account with too many of them cannot start another
//! call until some have ended.

use std::{
    hash::BuildHasher as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use crate::base::fast_map::{FastMap, RandomState};

const SHARDS: usize = 16;

type Counts = FastMap<Box<str>, usize>;

pub struct AbandonedCalls {
    limit: usize,
    /// Sum over all accounts. While it is below the limit, no account needs to be looked up.
    total: AtomicUsize,
    hasher: RandomState,
    shards: [Mutex<Counts>; SHARDS],
}

impl AbandonedCalls {
    /// `limit` is the number of abandoned calls at which an account cannot start another call.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            total: AtomicUsize::new(0),
            hasher: RandomState::default(),
            shards: Default::default(),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub fn total(&self) -> usize {
        self.total.load(Acquire)
    }

    /// Returns whether the account must wait before it starts another call.
    pub(crate) fn is_at_limit(&self, account_id: &str) -> bool {
        self.total() >= self.limit && self.of(account_id) >= self.limit
    }

    fn of(&self, account_id: &str) -> usize {
        let counts = self.shard(account_id);
        counts.get(account_id).copied().unwrap_or(0)
    }

    /// Counts a call of the account until the returned guard is dropped.
    pub(crate) fn count(self: &Arc<Self>, account_id: &str) -> AbandonedCall {
        *self.shard(account_id).entry(account_id.into()).or_default() += 1;
        self.total.fetch_add(1, Release);
        AbandonedCall {
            calls: self.clone(),
            account_id: account_id.into(),
        }
    }

    fn shard(&self, account_id: &str) -> MutexGuard<'_, Counts> {
        let hash = self.hasher.hash_one(account_id);
        // These bits of the hash are not the ones that the map itself uses first.
        let shard = &self.shards[usize::from(hash.to_be_bytes()[3]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one abandoned call for as long as it lives.
pub(crate) struct AbandonedCall {
    calls: Arc<AbandonedCalls>,
    account_id: Box<str>,
}

impl Drop for AbandonedCall {
    fn drop(&mut self) {
        let mut counts = self.calls.shard(&self.account_id);
        if let Some(count) = counts.get_mut(&self.account_id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.account_id);
            }
        }
        self.calls.total.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn only_the_account_at_its_limit_must_wait_until_a_call_ends() {
        let calls = Arc::new(AbandonedCalls::new(2));
        let first = calls.count("a");
        assert!(!calls.is_at_limit("a"));
        let second = calls.count("a");
        assert!(calls.is_at_limit("a"));
        assert!(!calls.is_at_limit("b"));
        // A call that was admitted earlier can take the count above the limit.
        let third = calls.count("a");
        drop(first);
        assert!(calls.is_at_limit("a"));
        drop(second);
        assert!(!calls.is_at_limit("a"));
        drop(third);
        assert_eq!((calls.total(), calls.of("a")), (0, 0));
        assert!(
            calls
                .shards
                .iter()
                .all(|one| one.lock().unwrap().is_empty())
        );
    }

    #[test]
    fn a_call_that_panics_is_no_longer_counted() {
        let calls = Arc::new(AbandonedCalls::new(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _counted = calls.count("a");
            assert!(calls.is_at_limit("a"));
            panic!("the call panics");
        }));
        assert!(panicked.is_err());
        assert!(!calls.is_at_limit("a"));
        assert_eq!(calls.total(), 0);
    }

    #[test]
    fn counts_are_exact_with_many_threads() {
        let calls = Arc::new(AbandonedCalls::new(1_000));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let calls = &calls;
                scope.spawn(move || {
                    for round in 0..1_000 {
                        let account = format!("account {}", (thread + round) % 5);
                        let one = calls.count(&account);
                        let other = calls.count("all");
                        drop((one, other));
                    }
                });
            }
        });
        assert_eq!((calls.total(), calls.of("all")), (0, 0));
    }
}
