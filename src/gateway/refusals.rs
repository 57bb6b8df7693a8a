//! Bounds on refused requests, by account and by client address, and on requests that count tokens.
//!
//! A refused request costs its sender nothing and takes nothing from the rate-limit window, so these bounds are all that
//! keeps a client from sending them without end. Each account, and each address for requests without a valid key, has a
//! bucket that refusals take from and that refills steadily. While it is empty, requests are refused with 429 before
//! their body is read, which takes nothing from it.
//!
//! The buckets are in the memory of one gateway, and bounded in number. A request that is served reads one atomic
//! number; only refusals, and requests while some bucket is empty, take a lock and read the clock.

use std::{
    hash::Hash,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::{base::network::Network, config::RefusalLimits};

mod buckets;

use self::buckets::Buckets;

/// How many requests of an account may count tokens per minute. Clients send a dozen at once, so a full bucket has room
/// for many of those.
const COUNTS_PER_MINUTE: u32 = 600;

/// Most accounts, and most networks, that are tracked at a time.
const MAX_BUCKETS: usize = 16_384;

pub struct Refusals {
    accounts: Bounded<String>,
    networks: Bounded<Network>,
    counting: Bounded<String>,
    started: Instant,
}

/// Buckets that all threads share.
struct Bounded<K> {
    /// Number of empty buckets, as of the last look at each.
    empty: AtomicUsize,
    /// `None` if there is no bound.
    buckets: Option<Mutex<Buckets<K>>>,
}

impl Refusals {
    pub(crate) fn new(limits: RefusalLimits) -> Self {
        Self {
            accounts: Bounded::new(limits.per_account),
            networks: Bounded::new(limits.per_address),
            counting: Bounded::new(COUNTS_PER_MINUTE),
            started: Instant::now(),
        }
    }

    /// Seconds after which the account may send its next request; `None` if it need not wait.
    pub(crate) fn account_wait(&self, account_id: &str) -> Option<u64> {
        if !self.accounts.has_empty() {
            return None;
        }
        let wait = |buckets: &mut Buckets<_>| buckets.wait(account_id, self.now_ms());
        self.accounts.with(wait).flatten()
    }

    /// Counts a refused request of an account. `may_retry` is true if the response says when to retry: clients are meant
    /// to send such requests again, so ten of them count as one.
    pub(crate) fn count(&self, account_id: &str, may_retry: bool) {
        let cost = if may_retry {
            buckets::RETRYABLE
        } else {
            buckets::REFUSAL
        };
        self.accounts
            .with(|buckets| buckets.take(account_id, cost, self.now_ms()));
    }

    /// Seconds after which a request without a valid key may come from this address; `None` if it need not wait.
    ///
    /// `address` is called only if some address has to wait.
    pub(crate) fn address_wait(&self, address: impl FnOnce() -> Option<IpAddr>) -> Option<u64> {
        if !self.networks.has_empty() {
            return None;
        }
        let network = Network::of(address()?);
        let wait = |buckets: &mut Buckets<_>| buckets.wait(&network, self.now_ms());
        self.networks.with(wait).flatten()
    }

    /// Counts a refused request without a valid key, unless its address has to wait: then returns for how many seconds.
    pub(crate) fn count_address(&self, address: IpAddr) -> Result<(), u64> {
        let (network, now) = (Network::of(address), self.now_ms());
        let waits = self.networks.with(|buckets| {
            let wait = buckets.wait(&network, now);
            if wait.is_none() {
                buckets.take(&network, buckets::REFUSAL, now);
            }
            wait
        });
        waits.flatten().map_or(Ok(()), Err)
    }

    /// Counts a request of an account that counts tokens, unless there were too many: then returns for how many seconds
    /// the account has to wait.
    pub(crate) fn count_counting(&self, account_id: &str) -> Result<(), u64> {
        let now = self.now_ms();
        let waits = self.counting.with(|buckets| {
            let wait = buckets.wait(account_id, now);
            if wait.is_none() {
                buckets.take(account_id, buckets::REFUSAL, now);
            }
            wait
        });
        waits.flatten().map_or(Ok(()), Err)
    }

    /// How many accounts, and how many networks, have to wait now.
    pub fn waiting(&self) -> (usize, usize) {
        let now = self.now_ms();
        let count = |empty: Option<usize>| empty.unwrap_or(0);
        (
            count(self.accounts.with(|buckets| buckets.sweep(now))),
            count(self.networks.with(|buckets| buckets.sweep(now))),
        )
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl<K: Eq + Hash> Bounded<K> {
    /// `per_minute` is 0 for no bound.
    fn new(per_minute: u32) -> Self {
        let buckets = (per_minute > 0).then(|| Buckets::new(per_minute, MAX_BUCKETS));
        Self {
            empty: AtomicUsize::new(0),
            buckets: buckets.map(Mutex::new),
        }
    }

    fn has_empty(&self) -> bool {
        self.empty.load(Relaxed) > 0
    }

    /// Runs `change` on the buckets, and notes how many are empty now.
    fn with<T>(&self, change: impl FnOnce(&mut Buckets<K>) -> T) -> Option<T> {
        let buckets = self.buckets.as_ref()?.lock();
        let mut buckets = buckets.unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut buckets);
        self.empty.store(buckets.empty(), Relaxed);
        Some(result)
    }
}
