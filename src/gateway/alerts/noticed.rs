//! What alerts go by, and what a gateway remembers for them.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    backoffice::{AlertKind, webhook::Webhook},
    base::money::NanoUsd,
    config,
};

/// How many accounts are remembered between two looks; the others are noticed with their next call.
const MAX_NOTED: usize = 1_000;
/// How long an upstream that reported too much or refused us is remembered.
const REMEMBERED_FOR: Duration = Duration::from_hours(1);

pub struct Alerts {
    pub settings: config::Alerts,
    pub webhook: Option<Webhook>,
    /// Accounts that a call has just left with little.
    noted: Mutex<HashSet<String>>,
    /// Upstreams that reported more tokens than requests could use.
    reported: Lately<Reported>,
    /// Upstreams that refused the operator's key, account or name for a model.
    refusing: Lately<Refusing>,
    /// How many are open, as it was last seen.
    open: Mutex<BTreeMap<AlertKind, i64>>,
    /// When it was last looked through what expires, and the grants that did soon.
    expiries_at: AtomicI64,
    expiring: Mutex<HashSet<String>>,
    /// Somebody does not want to wait for the next look.
    wanted: Notify,
}

/// What an upstream reported beyond what requests could use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported {
    pub calls: u64,
    /// What it would have cost.
    pub lost: NanoUsd,
}

/// What an upstream refused for reasons that only the operator can mend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusing {
    pub calls: u64,
    /// The latest one.
    pub status: u16,
}

/// What upstreams did lately, each with when it last did.
struct Lately<T>(Mutex<BTreeMap<String, (T, Instant)>>);

impl<T: Copy + Default> Lately<T> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Returns what is known of it now.
    fn add(&self, upstream: &str, add: impl FnOnce(&mut T)) -> T {
        let mut all = locked(&self.0);
        let known = all.entry(upstream.to_owned());
        let (known, last) = known.or_insert_with(|| (T::default(), Instant::now()));
        add(known);
        *last = Instant::now();
        *known
    }

    /// Those that did so within [`REMEMBERED_FOR`].
    fn all(&self) -> Vec<(String, T)> {
        let mut all = locked(&self.0);
        all.retain(|_, (_, last)| last.elapsed() < REMEMBERED_FOR);
        let copied = all
            .iter()
            .map(|(upstream, (known, _))| (upstream.clone(), *known));
        copied.collect()
    }
}

impl Alerts {
    pub fn new(settings: config::Alerts) -> Result<Self, String> {
        let webhook = settings.webhook.as_ref().map(Webhook::new).transpose()?;
        Ok(Self {
            settings,
            webhook,
            noted: Mutex::default(),
            reported: Lately::new(),
            refusing: Lately::new(),
            open: Mutex::default(),
            expiries_at: AtomicI64::new(i64::MIN),
            expiring: Mutex::default(),
            wanted: Notify::new(),
        })
    }

    /// A call was charged, and this is what it left. Costs nothing where that is enough.
    pub fn charged(&self, account_id: &str, left: NanoUsd) {
        if self.settings.low_balance.is_some_and(|low| left < low) {
            self.note(account_id);
        }
    }

    /// An upstream reported more tokens than a request could use; what is beyond that was not charged.
    pub fn reported_too_much(&self, upstream: &str, lost: NanoUsd) {
        self.reported.add(upstream, |reported| {
            reported.calls += 1;
            reported.lost = reported.lost.checked_add(lost).unwrap_or(reported.lost);
        });
    }

    /// Those that did so within the last hour.
    pub fn reported(&self) -> Vec<(String, Reported)> {
        self.reported.all()
    }

    /// An upstream refused a call for reasons that only the operator can mend. The first time they hear of it at once.
    pub fn refused(&self, upstream: &str, status: u16) {
        let refusing = self.refusing.add(upstream, |refusing| {
            refusing.calls += 1;
            refusing.status = status;
        });
        if refusing.calls == 1 {
            self.want();
        }
    }

    /// Those that did so within the last hour.
    pub fn refusing(&self) -> Vec<(String, Refusing)> {
        self.refusing.all()
    }

    fn note(&self, account_id: &str) {
        let mut noted = locked(&self.noted);
        if noted.len() < MAX_NOTED && !noted.contains(account_id) {
            noted.insert(account_id.to_owned());
        }
    }

    pub fn take_noted(&self) -> HashSet<String> {
        std::mem::take(&mut locked(&self.noted))
    }

    pub fn open(&self) -> BTreeMap<AlertKind, i64> {
        locked(&self.open).clone()
    }

    pub fn all_open(&self) -> i64 {
        locked(&self.open).values().sum()
    }

    pub fn are_open(&self, counts: BTreeMap<AlertKind, i64>) {
        *locked(&self.open) = counts;
    }

    /// Whether it is time to look through what expires: every so many seconds.
    pub fn is_time_for_expiries(&self, now: i64, seconds: i64) -> bool {
        let last = self.expiries_at.load(Relaxed);
        now.saturating_sub(last).saturating_abs() >= seconds
    }

    /// Whether this grant was found at the last look already.
    pub fn knows_expiring(&self, grant_id: &str) -> bool {
        locked(&self.expiring).contains(grant_id)
    }

    pub fn looked_at_expiries(&self, now: i64, expiring: HashSet<String>) {
        self.expiries_at.store(now, Relaxed);
        *locked(&self.expiring) = expiring;
    }

    /// What became of these could not be written down: the next look finds it again.
    pub fn note_again(&self, noted: &HashSet<String>) {
        for account_id in noted {
            self.note(account_id);
        }
    }

    /// What expires could not be looked for or written down: the next look finds all of it again.
    pub fn forget_expiries(&self) {
        self.looked_at_expiries(i64::MIN, HashSet::new());
    }

    /// Something has happened that an operator must hear of at once.
    pub fn want(&self) {
        self.wanted.notify_one();
    }

    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
