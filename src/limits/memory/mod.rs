//! The minute of a gateway that is alone: in memory, and kept on disk for its next start.
//!
//! Both ceilings are checked and taken in one step under one lock, so requests side by side cannot
//! pass together what only one of them may.

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
mod machine;
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

/// Enough that two requests seldom meet at one lock.
const SHARDS: usize = 64;

pub struct Memory {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    numbers: AtomicU64,
    clock: Clock,
    journal: Option<Journal>,
}

#[derive(Default)]
struct Shard {
    windows: FastMap<Box<str>, Window>,
    /// Windows nobody uses any more are dropped when there are this many.
    sweep_at: usize,
}

/// A place in the window.
///
/// Dropped without a word, it keeps the request counted and gives its tokens back: what was never
/// reported was never used.
pub struct Admission {
    limiter: Arc<Memory>,
    call: u64,
    key: Arc<str>,
    /// Taken when it is said what became of the request.
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

/// The key of a window: neither an account's ID nor a model's has a space.
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

    /// Goes on with the minute that an earlier process kept beside `database`. `used` has what a
    /// call used in the end, where that is known; what is not known counts as it was reserved.
    pub fn resume(database: &Path, used: &HashMap<u64, u64>) -> io::Result<Self> {
        Self::resume_at(Clock::system(), database, used)
    }

    fn resume_at(clock: Clock, database: &Path, used: &HashMap<u64, u64>) -> io::Result<Self> {
        let now_ms = clock.now_ms();
        let (journal, kept) = Journal::open(database, now_ms)?;
        let limiter = Self {
            journal: Some(journal),
            ..Self::with_clock(clock)
        };
        // What a call of several steps used is known as a whole: it counts at its last step.
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
            // A clock that was set back in between can delay a request, and admit none more.
            let at_ms = entry.at_ms.min(now_ms);
            let mut shard = limiter.shard(&entry.key);
            let window = shard.window(&entry.key, at_ms);
            window.restore(kind, at_ms, number, tokens);
        }
        Ok(limiter)
    }

    /// Counts a request that may use `need` tokens, or says why and for how long not.
    pub fn admit(
        self: &Arc<Self>,
        call: u64,
        account: &str,
        model: &str,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<Admission, Refusal> {
        let key = key(account, model);
        let mut shard = self.shard(&key);
        // Numbered and timed under the lock: a window's entries are in order.
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
            .expect("it is there or was put there")
    }
}

impl Admission {
    /// Keeps the admission beyond the end of this process. What cannot be kept must not be acted on.
    pub fn keep(&self) -> io::Result<()> {
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

    /// The step that is over used this many tokens, and the next one may use `need`: admits it, or
    /// says why and for how long not. The request is not counted again.
    pub fn renew(&mut self, used: u64, need: u64, ceilings: Ceilings) -> Result<(), Refusal> {
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

    /// The request, or its latest step, used this many tokens, whatever it had reserved.
    pub fn settle(&mut self, tokens: u64) {
        self.finish(|window, number| window.settle(number, tokens));
    }

    /// The request was refused after all, before anyone was asked: it does not count.
    pub fn cancel(mut self) {
        self.finish(Window::cancel);
    }

    /// Changes the entry, once: what is said first counts.
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
    fn side_by_side_exactly_as_many_are_admitted_as_may() {
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
    fn what_becomes_of_a_request_is_said_once() {
        let limiter = Arc::new(Memory::default());
        let left = || {
            let refusal = limiter.admit(1, "a", "m", 5_000, CEILINGS).err().unwrap();
            (refusal.requests_left, refusal.tokens_left)
        };
        let admit = || limiter.admit(1, "a", "m", 100, CEILINGS).unwrap();
        admit().cancel();
        assert_eq!(left(), (60, 1_000), "as if it had never been");
        admit().settle(30);
        assert_eq!(left(), (59, 970), "what it used");
        drop(admit());
        assert_eq!(left(), (58, 970), "counted, and nothing used");
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
        assert_eq!(left(), (59, 50), "what its steps used stays used");
    }

    #[test]
    fn windows_nobody_uses_do_not_pile_up() {
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
