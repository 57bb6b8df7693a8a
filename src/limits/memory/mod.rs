//! The windows of a gateway that shares no accounts with others: in memory, with a journal for its next start.
//!
//! Both ceilings are checked and reserved under one lock, so concurrent requests cannot exceed a ceiling together. The
//! only failure is that of the journal: then [`Admission::keep`] returns an error and the call must not go ahead.

use std::{
    collections::HashMap,
    hash::BuildHasher as _,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

mod clock;
mod journal;
#[cfg(test)]
mod state_machine;
pub(super) mod window;

use self::{
    clock::Clock,
    journal::{Admitted, Journal},
    window::{Kind, Window},
};
use crate::base::{
    fast_map::{FastMap, RandomState},
    rate::{Ceilings, Refusal},
};

/// Number of locks; enough that two requests seldom contend for one.
const SHARDS: usize = 64;

/// All windows, spread over [`SHARDS`] locks.
pub struct Memory {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// The number of the next entry, in any window.
    numbers: AtomicU64,
    clock: Clock,
    journal: Option<Journal>,
}

#[derive(Default)]
struct Shard {
    windows: FastMap<Box<str>, Window>,
    /// Empty windows are removed once there are this many windows.
    sweep_at: usize,
}

/// The latest reservation of an admitted request.
///
/// If it is dropped without being settled or cancelled, the request stays counted and its tokens are released, because
/// usage that was never reported is taken as zero.
pub struct Admission {
    limiter: Arc<Memory>,
    call: u64,
    key: Arc<str>,
    /// The number of its entry in the window; `None` once it is settled or cancelled.
    number: Option<u64>,
    at_ms: u64,
    tokens: u64,
    kind: Kind,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_clock(Clock::system())
    }
}

/// The key of a window: account and model, separated by a space, which neither ID contains.
fn key(account: &str, model: &str) -> Arc<str> {
    let mut key = String::with_capacity(account.len() + 1 + model.len());
    key.push_str(account);
    key.push(' ');
    key.push_str(model);
    key.into()
}

impl Memory {
    fn with_clock(clock: Clock) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            numbers: AtomicU64::new(0),
            clock,
            journal: None,
        }
    }

    /// Restores the windows from the journal that an earlier process left next to `database`.
    ///
    /// `used` maps a call to the tokens that the ledger has for it; calls that are missing there count with the tokens
    /// they reserved.
    pub(crate) fn resume(database: &Path, used: &HashMap<u64, u64>) -> io::Result<Self> {
        Self::resume_at(Clock::system(), database, used)
    }

    fn resume_at(clock: Clock, database: &Path, used: &HashMap<u64, u64>) -> io::Result<Self> {
        let now_ms = clock.now_ms();
        let (journal, kept) = Journal::open(database, now_ms)?;
        let limiter = Self {
            journal: Some(journal),
            ..Self::with_clock(clock)
        };
        // The ledger has the usage of a call as one sum: it counts at the time of the call's last step.
        let last_steps: HashMap<u64, usize> =
            kept.iter().map(|entry| entry.call).zip(0..).collect();
        for (at, entry) in kept.into_iter().enumerate() {
            let number = limiter.numbers.fetch_add(1, Ordering::Relaxed);
            let is_last = last_steps.get(&entry.call) == Some(&at);
            let tokens = match used.get(&entry.call) {
                Some(tokens) if is_last => *tokens,
                Some(_) => 0,
                None => entry.tokens,
            };
            let kind = if entry.is_step {
                Kind::Step
            } else {
                Kind::Request
            };
            // If the clock was set back since, the entry counts as admitted now: that can delay requests, but never
            // admits more than the ceilings allow.
            let at_ms = entry.at_ms.min(now_ms);
            let mut shard = limiter.shard(&entry.key);
            let window = shard.window(&entry.key, at_ms);
            window.restore(kind, at_ms, number, tokens);
        }
        Ok(limiter)
    }

    /// Admits a request and reserves `need` tokens for it, or refuses it with the reason and the time to wait.
    pub(crate) fn admit(
        self: &Arc<Self>,
        call: u64,
        account: &str,
        model: &str,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<Admission, Refusal> {
        let key = key(account, model);
        let mut shard = self.shard(&key);
        // Number and time are taken under the lock, so that a window's entries are in order.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.clock.now_ms();
        shard
            .window(&key, now_ms)
            .admit(Kind::Request, now_ms, number, need, ceilings)?;
        drop(shard);
        Ok(Admission {
            limiter: self.clone(),
            call,
            key,
            number: Some(number),
            at_ms: now_ms,
            tokens: need,
            kind: Kind::Request,
        })
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key);
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// The window of a key; inserts an empty one if there is none.
    fn window(&mut self, key: &str, now_ms: u64) -> &mut Window {
        if !self.windows.contains_key(key) {
            if self.windows.len() >= self.sweep_at {
                self.windows.retain(|_, window| !window.is_empty(now_ms));
                self.sweep_at = (2 * self.windows.len()).max(64);
            }
            self.windows.insert(key.into(), Window::default());
        }
        self.windows
            .get_mut(key)
            .expect("the window exists or was just inserted")
    }
}

impl Admission {
    /// Writes the reservation to the journal, if there is one. If this fails, the call must not go ahead.
    pub(crate) fn keep(&self) -> io::Result<()> {
        let Some(journal) = &self.limiter.journal else {
            return Ok(());
        };
        journal.write(&Admitted {
            call: self.call,
            at_ms: self.at_ms,
            tokens: self.tokens,
            key: self.key.clone(),
            is_step: self.kind == Kind::Step,
        })
    }

    /// Settles the finished step with `used` tokens and reserves `need` tokens for the next one, or refuses that.
    ///
    /// The request itself is not counted again.
    pub(crate) fn renew(
        &mut self,
        used: u64,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<(), Refusal> {
        self.settle(used);
        let mut shard = self.limiter.shard(&self.key);
        let number = self.limiter.numbers.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.limiter.clock.now_ms();
        shard
            .window(&self.key, now_ms)
            .admit(Kind::Step, now_ms, number, need, ceilings)?;
        drop(shard);
        (self.number, self.at_ms) = (Some(number), now_ms);
        (self.tokens, self.kind) = (need, Kind::Step);
        Ok(())
    }

    /// Replaces the latest reservation by the tokens that the request, or its latest step, used.
    pub(crate) fn settle(&mut self, tokens: u64) {
        self.finish(|window, number| window.settle(number, tokens));
    }

    /// Removes the request from the window. For a request that was refused later on, before any provider was called.
    pub(crate) fn cancel(mut self) {
        self.finish(Window::cancel);
    }

    /// Applies `change` to the entry in the window; only the first call has an effect.
    fn finish(&mut self, change: impl FnOnce(&mut Window, u64)) {
        let Some(number) = self.number.take() else {
            return;
        };
        let mut shard = self.limiter.shard(&self.key);
        if let Some(window) = shard.windows.get_mut(&*self.key) {
            change(window, number);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.finish(|window, number| window.settle(number, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rate::Limit;

    const CEILINGS: Ceilings = Ceilings {
        requests: 60,
        tokens: 1_000,
    };

    #[test]
    fn concurrent_requests_are_admitted_exactly_up_to_the_ceiling() {
        let limiter = Arc::new(Memory::default());
        let admitted: usize = std::thread::scope(|scope| {
            let tries = || {
                let admit = |_| limiter.admit(1, "a", "m", 1, CEILINGS);
                let admitted: Vec<_> = (0..200).filter_map(|n| admit(n).ok()).collect();
                admitted.len()
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(tries)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(admitted, 60);
    }

    #[test]
    fn accounts_and_models_do_not_share_a_window() {
        let limiter = Arc::new(Memory::default());
        let one = Ceilings {
            requests: 1,
            ..CEILINGS
        };
        for (account, model) in [("a", "m"), ("a", "n"), ("b", "m")] {
            assert!(limiter.admit(1, account, model, 1, one).is_ok());
            assert!(limiter.admit(1, account, model, 1, one).is_err());
        }
    }

    #[test]
    fn cancel_settle_and_drop_change_the_window() {
        let limiter = Arc::new(Memory::default());
        let left = || {
            let refusal = limiter.admit(1, "a", "m", 5_000, CEILINGS).err().unwrap();
            (refusal.requests_left, refusal.tokens_left)
        };
        let admit = || limiter.admit(1, "a", "m", 100, CEILINGS).unwrap();
        admit().cancel();
        assert_eq!(left(), (60, 1_000), "cancelled: not counted");
        admit().settle(30);
        assert_eq!(left(), (59, 970), "settled: counted with its usage");
        drop(admit());
        assert_eq!(left(), (58, 970), "dropped: counted without tokens");
    }

    #[test]
    fn a_request_of_many_steps_is_one_request() {
        let limiter = Arc::new(Memory::default());
        let left = || {
            let refusal = limiter.admit(1, "a", "m", 5_000, CEILINGS).err().unwrap();
            (refusal.requests_left, refusal.tokens_left)
        };
        let mut admission = limiter.admit(1, "a", "m", 400, CEILINGS).unwrap();
        admission.renew(100, 500, CEILINGS).unwrap();
        assert_eq!(left(), (59, 400), "100 used and 500 reserved");
        admission.renew(300, 600, CEILINGS).unwrap();
        assert_eq!(left(), (59, 0));
        let refused = admission.renew(550, 51, CEILINGS).err().unwrap();
        assert_eq!(refused.limit, Limit::Tokens);
        drop(admission);
        assert_eq!(left(), (59, 50), "the usage of its steps stays");
    }

    #[test]
    fn empty_windows_are_removed() {
        let limiter = Arc::new(Memory::default());
        for n in 0..100_000 {
            limiter
                .admit(n, &n.to_string(), "m", 1, CEILINGS)
                .unwrap()
                .cancel();
        }
        let kept: usize = limiter
            .shards
            .iter()
            .map(|s| s.lock().unwrap().windows.len())
            .sum();
        assert!(kept <= SHARDS * 64, "{kept}");
    }
}
