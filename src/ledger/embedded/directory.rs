//! The ledger in memory, which requests read.
//!
//! The writer thread updates it after each commit; after a failed commit it is reloaded from the database.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

use super::sqlite::HeldNow;
use crate::{
    base::{
        fast_map::{FastMap, FastSet},
        keys::KeyDigest,
        money::NanoUsd,
    },
    ledger::{
        Account, Caller, Expiring, Grant, Key, KeyState, LedgerError, LimitRule, ModelSettings,
        Project, Seen,
        budgets::{Budget, BudgetChange, BudgetState, Counted},
        credit::Credit,
        limits::LimitRules,
    },
};

/// Accounts, keys, settings, grants and credit by their IDs.
#[derive(Default)]
pub(crate) struct Directory {
    accounts: FastMap<String, Account>,
    /// Live keys; deleted ones are only in the database.
    keys: FastMap<String, Key>,
    keys_by_account: FastMap<String, FastSet<String>>,
    by_digest: FastMap<KeyDigest, String>,
    /// Projects by ID, archived ones too.
    projects: FastMap<String, Project>,
    /// The rules of all budgets by ID. What counts against each is with its account's credit.
    budgets: FastMap<String, Arc<Budget>>,
    models: FastMap<String, ModelSettings>,
    limits: LimitRules,
    credits: FastMap<String, Mutex<Credit>>,
    grants: FastMap<String, Vec<Grant>>,
    /// Accounts whose entries do not add up: they start no new call until an operator has looked.
    frozen: FastSet<String>,
    /// Whether an audit has been made since the start.
    audited: bool,
    /// Empty credit that stands in for that of an unknown account.
    unknown_credit: Mutex<Credit>,
}

/// The shared directory. Its lock is held for a read or an update in memory, never during disk I/O.
///
/// Each request reads several times and updates are rare, so the lock is sharded: each reading thread locks one shard.
#[derive(Clone)]
pub(crate) struct Shared(Arc<ShardedLock<Directory>>);

impl Shared {
    pub(crate) fn new(directory: Directory) -> Self {
        Self(Arc::new(ShardedLock::new(directory)))
    }

    pub(crate) fn read(&self) -> ShardedLockReadGuard<'_, Directory> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for an update; only the writer thread does.
    pub(crate) fn write(&self) -> ShardedLockWriteGuard<'_, Directory> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory {
    /// The caller that presents a valid secret of an active key at this time.
    pub(crate) fn caller(&self, digest: KeyDigest, now: i64) -> Option<Caller> {
        let key = self.keys.get(self.by_digest.get(&digest)?)?;
        if !key.accepts(digest, now) {
            return None;
        }
        let account = self.accounts.get(&key.account_id)?;
        Some(Caller {
            account_id: account.id.clone(),
            payer: key.payer.clone(),
            terms: key.terms.clone(),
            plan: account.plan,
            credits_expire_at: None,
            account_closed: account.closed,
            digest,
            seen: Seen::fresh(),
        })
    }

    pub(crate) fn account(&self, id: &str) -> Result<&Account, LedgerError> {
        let missing = || LedgerError::NotFound {
            what: "account",
            id: id.to_owned(),
        };
        self.accounts.get(id).ok_or_else(missing)
    }

    /// All accounts, oldest first.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Account> {
        let mut accounts: Vec<_> = self.accounts.values().collect();
        accounts.sort_by_key(|account| (account.created_at, account.id.as_str()));
        accounts.into_iter()
    }

    /// The key with this ID, unless it is deleted.
    pub(crate) fn key(&self, id: &str) -> Option<&Key> {
        self.keys.get(id)
    }

    /// Number of the account's live keys.
    pub(crate) fn key_count(&self, account_id: &str) -> usize {
        self.keys_by_account.get(account_id).map_or(0, FastSet::len)
    }

    /// The account's live keys, oldest first.
    pub(crate) fn keys_of(&self, account_id: &str) -> impl Iterator<Item = &Key> {
        let ids = self.keys_by_account.get(account_id).into_iter().flatten();
        let mut keys: Vec<_> = ids.filter_map(|id| self.keys.get(id)).collect();
        keys.sort_by_key(|key| (key.created_at, key.id.as_str()));
        keys.into_iter()
    }

    pub(crate) fn model_settings(&self, id: &str) -> ModelSettings {
        self.models.get(id).copied().unwrap_or_default()
    }

    /// Whether a secret may use the key at this time.
    pub(crate) fn is_accepted(&self, key_id: &str, digest: KeyDigest, now: i64) -> bool {
        let key = self.keys.get(key_id);
        key.is_some_and(|key| key.accepts(digest, now))
    }

    /// Locks the account's credit; the lock is never held during disk I/O.
    ///
    /// An unknown account gets empty credit. Callers have looked the account up before.
    pub(crate) fn credit(&self, account_id: &str) -> MutexGuard<'_, Credit> {
        let credit = self.credits.get(account_id).unwrap_or(&self.unknown_credit);
        credit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of holds and their sum.
    pub(crate) fn all_held(&self) -> (usize, NanoUsd) {
        let (mut holds, mut held) = (0, 0);
        for credit in self.credits.values() {
            let credit = credit.lock().unwrap_or_else(PoisonError::into_inner);
            holds += credit.open_holds();
            held += credit.held().nanos();
        }
        (holds, NanoUsd::new(held))
    }

    /// What running calls hold, by account in the order of IDs.
    pub(crate) fn held_now(&self) -> Vec<HeldNow> {
        let mut held = Vec::new();
        for (account_id, credit) in &self.credits {
            let credit = credit.lock().unwrap_or_else(PoisonError::into_inner);
            let calls = credit.open_holds();
            if calls > 0 {
                held.push(HeldNow {
                    account_id: account_id.as_str().into(),
                    calls: i64::try_from(calls).unwrap_or(i64::MAX),
                    nano_usd: credit.held().nanos(),
                });
            }
        }
        held.sort_unstable();
        held
    }

    /// The number of frozen accounts.
    pub(crate) fn frozen(&self) -> usize {
        self.frozen.len()
    }

    /// Freezes these accounts. With `replace`, all others are unfrozen.
    pub(crate) fn freeze(&mut self, accounts: BTreeSet<String>, replace: bool) {
        if replace {
            self.frozen.clear();
        }
        self.frozen.extend(accounts);
        self.audited = true;
    }

    /// The frozen accounts; `None` before the first audit.
    pub(crate) fn frozen_accounts(&self) -> Option<Vec<String>> {
        self.audited.then(|| self.frozen.iter().cloned().collect())
    }

    /// Credit of open accounts that expires within these times, in no particular order.
    pub(crate) fn expiring(&self, from: i64, until: i64) -> Vec<Expiring> {
        let mut found = Vec::new();
        for (account_id, credit) in &self.credits {
            let account = self.accounts.get(account_id);
            if account.is_some_and(|account| account.closed) {
                continue;
            }
            let credit = credit.lock().unwrap_or_else(PoisonError::into_inner);
            let expiring = credit.expiring(from, until);
            found.extend(expiring.map(|(grant_id, left, expires_at)| Expiring {
                account_id: account_id.clone(),
                grant_id: grant_id.to_owned(),
                left,
                expires_at,
            }));
        }
        found
    }

    pub(crate) fn is_frozen(&self, account_id: &str) -> bool {
        self.frozen.contains(account_id)
    }

    /// The account's grants, oldest first.
    pub(crate) fn grants(&self, account_id: &str) -> &[Grant] {
        self.grants.get(account_id).map_or(&[], Vec::as_slice)
    }

    /// The grant that this one repeats, if its reference was used before.
    pub(crate) fn same_grant(
        &self,
        account_id: &str,
        grant: &Grant,
    ) -> Result<Option<Grant>, LedgerError> {
        let Some(reference) = &grant.reference else {
            return Ok(None);
        };
        let mut grants = self.grants(account_id).iter();
        let before = grants.find(|before| before.reference.as_ref() == Some(reference));
        match before {
            Some(before)
                if (before.amount, before.expires_at) != (grant.amount, grant.expires_at) =>
            {
                let reference = reference.clone();
                Err(LedgerError::ReferenceTaken { reference })
            }
            before => Ok(before.cloned()),
        }
    }

    /// Sets an account's grants and credit as the database has them.
    pub(crate) fn restore_credit(&mut self, account_id: &str, grants: Vec<Grant>, credit: Credit) {
        self.credits
            .insert(account_id.to_owned(), Mutex::new(credit));
        self.grants.insert(account_id.to_owned(), grants);
    }

    /// Replaces the directory by the state of the database, but keeps the holds of running calls and the frozen
    /// accounts. Returns the previous directory.
    pub(crate) fn restore(&mut self, mut stored: Directory) -> Directory {
        for (account_id, credit) in &self.credits {
            let before = credit.lock().unwrap_or_else(PoisonError::into_inner);
            stored.credit(account_id).take_over_holds(&before);
        }
        stored.frozen = std::mem::take(&mut self.frozen);
        stored.audited = self.audited;
        std::mem::replace(self, stored)
    }

    pub(crate) fn put_grant(&mut self, account_id: &str, grant: Grant) {
        self.grants
            .entry(account_id.to_owned())
            .or_default()
            .push(grant);
    }

    /// Replaces the reasons of these grants, each with its grant's ID.
    pub(crate) fn set_reasons(&mut self, account_id: &str, reasons: &[(String, String)]) {
        for grant in self.grants.get_mut(account_id).into_iter().flatten() {
            if let Some((_, reason)) = reasons.iter().find(|(id, _)| *id == grant.id) {
                grant.reason = Some(reason.clone());
            }
        }
    }

    pub(crate) fn limits(&self) -> &LimitRules {
        &self.limits
    }

    pub(crate) fn put_limit(&mut self, rule: &LimitRule) {
        self.limits.put(rule);
    }

    pub(crate) fn put_account(&mut self, account: Account) -> Account {
        self.credits.entry(account.id.clone()).or_default();
        self.accounts.insert(account.id.clone(), account.clone());
        account
    }

    /// Stores a live key, or removes a deleted one.
    pub(crate) fn put_key(&mut self, key: Key) -> Key {
        if let Some(before) = self.keys.get(&key.id) {
            for digest in before.digests() {
                self.by_digest.remove(&digest);
            }
        }
        let of_account = self.keys_by_account.entry(key.account_id.clone());
        let of_account = of_account.or_default();
        if key.state == KeyState::Deleted {
            of_account.remove(&key.id);
            if of_account.is_empty() {
                self.keys_by_account.remove(&key.account_id);
            }
            self.keys.remove(&key.id);
        } else {
            of_account.insert(key.id.clone());
            for digest in key.digests() {
                self.by_digest.insert(digest, key.id.clone());
            }
            self.keys.insert(key.id.clone(), key.clone());
        }
        key
    }

    pub(crate) fn project(&self, id: &str) -> Option<&Project> {
        self.projects.get(id)
    }

    /// The account's projects, oldest first.
    pub(crate) fn projects_of(&self, account_id: &str) -> Vec<Project> {
        let all = self.projects.values();
        let mut projects: Vec<_> = all
            .filter(|project| project.account_id == account_id)
            .cloned()
            .collect();
        projects
            .sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        projects
    }

    pub(crate) fn put_project(&mut self, project: Project) -> Project {
        self.projects.insert(project.id.clone(), project.clone());
        project
    }

    pub(crate) fn budget(&self, id: &str) -> Option<&Arc<Budget>> {
        self.budgets.get(id)
    }

    /// The budget that a change would replace.
    pub(crate) fn budget_like(&self, change: &BudgetChange) -> Option<Arc<Budget>> {
        let credit = self.credit(&change.account_id);
        let mut budgets = credit.budgets()?.all().map(|counted| &counted.budget);
        let like = budgets.find(|budget| {
            (budget.scope, &budget.scope_id) == (change.scope, &change.scope_id)
                && budget.schedule.period() == change.period()
        });
        like.cloned()
    }

    /// The budget of the same place and kind of period, with what counts against it.
    pub(crate) fn budget_state_like(&self, wanted: &Budget, now: i64) -> Option<BudgetState> {
        let mut states = self.budgets_of(&wanted.account_id, now).into_iter();
        states.find(|state| {
            let budget = &state.budget;
            (budget.scope, &budget.scope_id) == (wanted.scope, &wanted.scope_id)
                && budget.schedule.period() == wanted.schedule.period()
        })
    }

    /// Number of the account's budgets.
    pub(crate) fn budget_count(&self, account_id: &str) -> usize {
        let credit = self.credit(account_id);
        credit.budgets().map_or(0, |budgets| budgets.all().count())
    }

    pub(crate) fn budgets_of(&self, account_id: &str, now: i64) -> Vec<BudgetState> {
        let credit = self.credit(account_id);
        let now = credit.present(now);
        credit
            .budgets()
            .map_or_else(Vec::new, |budgets| budgets.states(now))
    }

    /// The budgets of all accounts.
    pub(crate) fn all_budgets(&self, now: i64) -> Vec<BudgetState> {
        let accounts = self.budgets.values().map(|budget| &budget.account_id);
        let accounts: BTreeSet<_> = accounts.collect();
        let states = accounts.into_iter().map(|id| self.budgets_of(id, now));
        states.flatten().collect()
    }

    pub(crate) fn put_budget(&mut self, counted: Counted) {
        let budget = counted.budget.clone();
        self.credit(&budget.account_id)
            .put_budget(&budget.account_id, counted);
        self.budgets.insert(budget.id.clone(), budget);
    }

    pub(crate) fn remove_budget(&mut self, budget: &Budget) {
        self.credit(&budget.account_id).remove_budget(&budget.id);
        self.budgets.remove(&budget.id);
    }

    pub(crate) fn put_model_settings(&mut self, id: String, settings: ModelSettings) {
        self.models.insert(id, settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_keys_leave_memory() {
        let mut directory = Directory::default();
        for _ in 0..1_000 {
            let (key, _) = Key::generate("acct_1", "k".into(), 0);
            let key = directory.put_key(key);
            assert!(directory.caller(key.digest, 0).is_none(), "no account");
            assert_eq!(directory.key_count("acct_1"), 1);
            directory.put_key(Key {
                state: KeyState::Deleted,
                ..key
            });
        }
        assert_eq!(directory.key_count("acct_1"), 0);
        let left = (directory.keys.len(), directory.by_digest.len());
        assert_eq!((left, directory.keys_by_account.len()), ((0, 0), 0));
    }
}
