//! Settings of alerts, and the events that a gateway keeps in memory for the next round of checks.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    backoffice::{AlertKind, webhook::Webhook},
    base::money::NanoUsd,
    config,
};

/// Number of accounts with a low balance that are kept between two rounds; others are added by their next call.
const MAX_LOW_BALANCES: usize = 1_000;
/// How long an upstream's last event counts as recent.
const RECENT: Duration = Duration::from_hours(1);

/// The most budgets that are noted between two rounds; the others are noted when they refuse again.
const MAX_REFUSING: usize = 10_000;

pub struct Alerts {
    pub settings: config::Alerts,
    pub webhook: Option<Webhook>,
    /// Accounts whose balance was low after a charge, since the last round.
    low_balances: Mutex<HashSet<String>>,
    /// Upstreams that reported more tokens than requests could use.
    over_reports: RecentByUpstream<OverReports>,
    /// Upstreams that refused the operator's key, account or model name.
    refusals: RecentByUpstream<Refusals>,
    /// Number of open alerts of each kind, as of the last round.
    open_counts: Mutex<BTreeMap<AlertKind, i64>>,
    /// IDs of budgets that have refused a request since the last round, and not only because of running calls.
    refusing_budgets: Mutex<HashSet<String>>,
    /// Budgets that are used up, as of the last round.
    used_up_budgets: AtomicUsize,
    /// When expiring credit was last searched, in Unix seconds; `i64::MIN` if it must be searched again.
    expiring_at: AtomicI64,
    /// IDs of the grants that the last search found.
    expiring: Mutex<HashSet<String>>,
    /// Wakes the alert job before its next round is due.
    check_requested: Notify,
}

/// Calls for which an upstream reported more tokens than the request could use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverReports {
    pub calls: u64,
    /// Cost of the excess tokens, which was not charged.
    pub lost: NanoUsd,
}

/// Calls that an upstream refused for reasons that only the operator can fix.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    pub calls: u64,
    /// HTTP status of the latest refusal.
    pub status: u16,
}

/// A value for each upstream with the time of its last change. Upstreams without a change within [`RECENT`] are
/// dropped.
struct RecentByUpstream<T>(Mutex<BTreeMap<String, (T, Instant)>>);

impl<T: Copy + Default> RecentByUpstream<T> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Changes an upstream's value and returns the result.
    fn update(&self, upstream: &str, change: impl FnOnce(&mut T)) -> T {
        let mut all = locked(&self.0);
        let entry = all.entry(upstream.to_owned());
        let (value, last) = entry.or_insert_with(|| (T::default(), Instant::now()));
        change(value);
        *last = Instant::now();
        *value
    }

    /// Returns the upstreams with a change within [`RECENT`].
    fn all(&self) -> Vec<(String, T)> {
        let mut all = locked(&self.0);
        all.retain(|_, (_, last)| last.elapsed() < RECENT);
        let copied = all
            .iter()
            .map(|(upstream, (value, _))| (upstream.clone(), *value));
        copied.collect()
    }
}

impl Alerts {
    pub(crate) fn new(settings: config::Alerts) -> Result<Self, String> {
        let webhook = settings.webhook.as_ref().map(Webhook::new).transpose()?;
        Ok(Self {
            settings,
            webhook,
            low_balances: Mutex::default(),
            over_reports: RecentByUpstream::new(),
            refusals: RecentByUpstream::new(),
            open_counts: Mutex::default(),
            refusing_budgets: Mutex::default(),
            used_up_budgets: AtomicUsize::new(0),
            expiring_at: AtomicI64::new(i64::MIN),
            expiring: Mutex::default(),
            check_requested: Notify::new(),
        })
    }

    /// Notes an account for the next round if a charge left its balance low. Takes no lock otherwise.
    pub(crate) fn charged(&self, account_id: &str, balance: NanoUsd) {
        if self.settings.low_balance.is_some_and(|low| balance < low) {
            self.note_low_balance(account_id);
        }
    }

    /// Notes that an upstream reported more tokens than a request could use; `lost` is the cost of the excess, which
    /// was not charged.
    pub(crate) fn reported_too_much(&self, upstream: &str, lost: NanoUsd) {
        self.over_reports.update(upstream, |reported| {
            reported.calls += 1;
            reported.lost = reported.lost.checked_add(lost).unwrap_or(reported.lost);
        });
    }

    /// Returns the upstreams that did so within the last hour.
    pub(crate) fn over_reports(&self) -> Vec<(String, OverReports)> {
        self.over_reports.all()
    }

    /// Notes that an upstream refused a call for reasons that only the operator can fix. The first refusal requests a
    /// check at once.
    pub(crate) fn refused(&self, upstream: &str, status: u16) {
        let refusals = self.refusals.update(upstream, |refusals| {
            refusals.calls += 1;
            refusals.status = status;
        });
        if refusals.calls == 1 {
            self.request_check();
        }
    }

    /// Returns the upstreams that did so within the last hour.
    pub(crate) fn refusals(&self) -> Vec<(String, Refusals)> {
        self.refusals.all()
    }

    fn note_low_balance(&self, account_id: &str) {
        let mut noted = locked(&self.low_balances);
        if noted.len() < MAX_LOW_BALANCES && !noted.contains(account_id) {
            noted.insert(account_id.to_owned());
        }
    }

    pub(crate) fn take_low_balances(&self) -> HashSet<String> {
        std::mem::take(&mut locked(&self.low_balances))
    }

    pub(crate) fn open_counts(&self) -> BTreeMap<AlertKind, i64> {
        locked(&self.open_counts).clone()
    }

    pub(crate) fn open_total(&self) -> i64 {
        locked(&self.open_counts).values().sum()
    }

    pub(crate) fn set_open_counts(&self, counts: BTreeMap<AlertKind, i64>) {
        *locked(&self.open_counts) = counts;
    }

    /// Notes budgets that have refused a request for the next round.
    pub(crate) fn used_up(&self, ids: impl Iterator<Item = String>) {
        let mut refusing = locked(&self.refusing_budgets);
        for id in ids {
            if refusing.len() < MAX_REFUSING {
                refusing.insert(id);
            }
        }
    }

    pub(crate) fn take_refusing_budgets(&self) -> HashSet<String> {
        std::mem::take(&mut locked(&self.refusing_budgets))
    }

    pub(crate) fn used_up_budgets(&self) -> usize {
        self.used_up_budgets.load(Relaxed)
    }

    pub(crate) fn set_used_up_budgets(&self, count: usize) {
        self.used_up_budgets.store(count, Relaxed);
    }

    /// Returns whether the last search for expiring credit is `interval` seconds ago.
    pub(crate) fn expiry_search_is_due(&self, now: i64, interval: i64) -> bool {
        let last = self.expiring_at.load(Relaxed);
        now.saturating_sub(last).saturating_abs() >= interval
    }

    /// Returns whether the last search found this grant already.
    pub(crate) fn is_known_expiring(&self, grant_id: &str) -> bool {
        locked(&self.expiring).contains(grant_id)
    }

    /// Stores the result of a search for expiring credit.
    pub(crate) fn set_expiring(&self, searched_at: i64, expiring: HashSet<String>) {
        self.expiring_at.store(searched_at, Relaxed);
        *locked(&self.expiring) = expiring;
    }

    /// Puts accounts back for the next round, because this round could not check them or store its result.
    pub(crate) fn restore_low_balances(&self, noted: &HashSet<String>) {
        for account_id in noted {
            self.note_low_balance(account_id);
        }
    }

    /// Makes the next round search again, because this round's search failed or its result could not be stored.
    pub(crate) fn forget_expiring(&self) {
        self.set_expiring(i64::MIN, HashSet::new());
    }

    /// Requests a round of checks now instead of when the next one is due.
    pub(crate) fn request_check(&self) {
        self.check_requested.notify_one();
    }

    /// Waits for [`Self::request_check`].
    pub(crate) async fn check_requested(&self) {
        self.check_requested.notified().await;
    }
}

/// Locks a mutex. A panic elsewhere does not invalidate these values, so poisoning is ignored.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
