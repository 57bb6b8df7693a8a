//! Accounts, keys, credit and the operator's word on models: what must outlive the process.
//!
//! Two kinds keep it: a file beside the gateway (`embedded`), or a database that many gateways
//! share. What both have in common is here: the words, one account's credit as a pure machine, and
//! the story of a call. A change is committed before its caller hears of it.

use std::{collections::HashMap, path::Path, time::Duration};

mod bill;
mod call;
mod call_id;
mod caller;
mod conditions;
mod credit;
mod embedded;
mod error;
mod health;
mod held;
mod limits;
mod pages;
mod pending;
mod postgres;
mod records;
pub mod spool;
#[cfg(test)]
mod tests;
mod watched;

pub use bill::Breakdown;
pub use call::{Attempt, Call, Charged, Outcome, Step};
pub use call_id::CallId;
pub use caller::{Caller, Seen};
pub use credit::Shortage;
pub use embedded::{audit_file, probe};
pub use error::{LedgerError, OpenError};
pub use health::{Health, Misplaced};
pub use held::{Held, HoldRefused, HoldRequest};
pub use limits::{CeilingChange, LimitRule};
pub use pages::{AccountFound, CallsPage, DayUse, Entry, EntryKind, GrantLeft};
pub use pending::PendingCharge;
pub use postgres::{audit_database, probe as probe_database};
pub use records::{
    Account, AccountChange, AnalyticsFilter, AnalyticsRow, Audit, Balances, Grant, Key, KeyState,
    ModelSettings, NewAccount, NewGrant, StrayHold, Violation,
};
pub use watched::{Expiring, ExpiringPage};

use self::{embedded::Embedded, postgres::Shared};
use crate::{
    base::{
        clock::Clock,
        durability::Durability,
        keys::{ApiKey, KeyDigest},
        money::NanoUsd,
        rate::{Ceilings, StoredReservation},
    },
    db::postgres::Address,
};

/// How long a call waits for a shared database before it begins, unless it is said otherwise.
pub const DEADLINE: Duration = Duration::from_millis(500);

/// Where all of it is kept.
pub enum Ledger {
    Embedded(Embedded),
    Shared(Shared),
}

/// Looking up.
impl Ledger {
    /// Opens the database, bringing its tables up to date, and takes it for this process alone.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        Self::open_at(path, durability, Clock::System)
    }

    /// The same by another clock.
    pub fn open_at(path: &Path, durability: Durability, clock: Clock) -> Result<Self, OpenError> {
        Embedded::open_at(path, durability, clock).map(Self::Embedded)
    }

    /// Takes a place among the gateways that share a database, bringing its tables up to date.
    ///
    /// A call that cannot set its credit aside within `deadline` is not begun.
    pub async fn share(
        address: &Address,
        durability: Durability,
        deadline: Duration,
    ) -> Result<Self, OpenError> {
        let shared = Shared::open(address.clone(), durability, deadline, Clock::System);
        shared.await.map(Self::Shared)
    }

    /// Waits, within bounds, until everything is written; the gateway is about to end.
    pub async fn close(&self) {
        match self {
            // It writes what is left when it is dropped.
            Self::Embedded(_) => {}
            Self::Shared(ledger) => ledger.close().await,
        }
    }

    /// The number of a call that is about to begin.
    pub fn next_call(&self) -> CallId {
        match self {
            Self::Embedded(ledger) => ledger.next_call(),
            Self::Shared(ledger) => ledger.next_call(),
        }
    }

    /// The caller that a key belongs to, if it is one that may be used; from memory where it is
    /// remembered.
    pub async fn caller(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.caller(digest)),
            Self::Shared(ledger) => Box::pin(ledger.caller(digest)).await,
        }
    }

    /// The same, as it is now; settings are brought up to date as well.
    pub async fn look(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.caller(digest)),
            Self::Shared(ledger) => Box::pin(ledger.look(digest)).await,
        }
    }

    /// Brings the settings in memory up to date: models and limits.
    pub async fn refresh(&self) -> Result<(), LedgerError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Shared(ledger) => ledger.refresh().await,
        }
    }

    pub async fn account(&self, id: &str) -> Result<Account, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.account(id),
            Self::Shared(ledger) => ledger.account(id).await,
        }
    }

    pub async fn accounts(&self) -> Result<Vec<Account>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.accounts()),
            Self::Shared(ledger) => ledger.accounts().await,
        }
    }

    pub async fn balances(&self, account_id: &str) -> Result<Balances, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.balances(account_id)),
            Self::Shared(ledger) => ledger.balances(account_id).await,
        }
    }

    /// When the credit of a caller's account begins to expire. `seen` is what was looked up with the caller.
    pub fn credits_expire_at(&self, account_id: &str, seen: Option<i64>) -> Option<i64> {
        match self {
            Self::Embedded(ledger) => ledger.balances(account_id).expires_at,
            Self::Shared(ledger) => seen.filter(|expiry| *expiry > ledger.clock().now()),
        }
    }

    /// What the account was given, oldest first.
    pub async fn grants(&self, account_id: &str) -> Result<Vec<Grant>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.grants(account_id),
            Self::Shared(ledger) => ledger.grants(account_id).await,
        }
    }

    /// The account's keys, deleted ones too: their history stays.
    pub async fn keys(&self, account_id: &str) -> Result<Vec<Key>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.keys(account_id),
            Self::Shared(ledger) => ledger.keys(account_id).await,
        }
    }

    /// Whether nothing new is begun for an account, because its books do not add up.
    pub async fn is_frozen(&self, account_id: &str) -> Result<bool, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.is_frozen(account_id)),
            Self::Shared(ledger) => ledger.is_frozen(account_id).await,
        }
    }

    pub fn model_settings(&self, model_id: &str) -> ModelSettings {
        match self {
            Self::Embedded(ledger) => ledger.model_settings(model_id),
            Self::Shared(ledger) => ledger.model_settings(model_id),
        }
    }

    /// The ceilings of an account with a model.
    pub fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        match self {
            Self::Embedded(ledger) => ledger.ceilings(account, model, default),
            Self::Shared(ledger) => ledger.ceilings(account, model, default),
        }
    }

    pub fn limits(&self) -> Vec<LimitRule> {
        match self {
            Self::Embedded(ledger) => ledger.limits(),
            Self::Shared(ledger) => ledger.limits(),
        }
    }

    /// How many calls have credit set aside, and how much.
    pub fn all_held(&self) -> (usize, NanoUsd) {
        match self {
            Self::Embedded(ledger) => ledger.all_held(),
            Self::Shared(ledger) => ledger.all_held(),
        }
    }

    /// How many accounts are frozen because their books do not add up.
    pub fn violations(&self) -> usize {
        match self {
            Self::Embedded(ledger) => ledger.violations(),
            Self::Shared(ledger) => ledger.violations(),
        }
    }

    /// Whether charges can be written down.
    pub fn health(&self) -> &Health {
        match self {
            Self::Embedded(ledger) => ledger.health(),
            Self::Shared(ledger) => ledger.health(),
        }
    }

    fn clock(&self) -> &Clock {
        match self {
            Self::Embedded(ledger) => ledger.clock(),
            Self::Shared(ledger) => ledger.clock(),
        }
    }
}

/// Changes.
impl Ledger {
    pub async fn create_account(&self, new: NewAccount) -> Result<Account, LedgerError> {
        let account = new.made(self.clock().now())?;
        match self {
            Self::Embedded(ledger) => ledger.create_account(account).await,
            Self::Shared(ledger) => ledger.create_account(account).await,
        }
    }

    pub async fn change_account(
        &self,
        id: &str,
        change: AccountChange,
    ) -> Result<Account, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.change_account(id, change).await,
            Self::Shared(ledger) => ledger.change_account(id, change).await,
        }
    }

    /// Makes a key. Only its digest is kept: what is returned is the one chance to see it.
    pub async fn create_key(
        &self,
        account_id: &str,
        name: String,
    ) -> Result<(Key, ApiKey), LedgerError> {
        let (key, secret) = Key::made(account_id, name, self.clock().now());
        let key = match self {
            Self::Embedded(ledger) => ledger.create_key(key).await?,
            Self::Shared(ledger) => ledger.create_key(key).await?,
        };
        Ok((key, secret))
    }

    pub async fn set_key_state(&self, id: &str, state: KeyState) -> Result<Key, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.set_key_state(id, state).await,
            Self::Shared(ledger) => ledger.set_key_state(id, state).await,
        }
    }

    pub async fn add_grant(&self, account_id: &str, new: NewGrant) -> Result<Grant, LedgerError> {
        let (grant, _) = self.grant_once(account_id, new).await?;
        Ok(grant)
    }

    /// The same, and whether it was given just now: not where its reference was used before.
    pub async fn grant_once(
        &self,
        account_id: &str,
        new: NewGrant,
    ) -> Result<(Grant, bool), LedgerError> {
        let made = new.made(self.clock().now());
        let id = made.id.clone();
        let grant = match self {
            Self::Embedded(ledger) => ledger.add_grant(account_id, made).await?,
            Self::Shared(ledger) => ledger.add_grant(account_id, made).await?,
        };
        let is_new = grant.id == id;
        Ok((grant, is_new))
    }

    /// Sets what is given, keeps the rest; lasts across restarts.
    pub async fn set_model(
        &self,
        model_id: &str,
        enabled: Option<bool>,
        unlisted: Option<bool>,
    ) -> Result<ModelSettings, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.set_model(model_id, enabled, unlisted).await,
            Self::Shared(ledger) => ledger.set_model(model_id, enabled, unlisted).await,
        }
    }

    /// Changes the ceilings for this account and model; lasts across restarts.
    pub async fn set_limit(
        &self,
        account: Option<String>,
        model: Option<String>,
        requests: CeilingChange,
        tokens: CeilingChange,
    ) -> Result<LimitRule, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.set_limit(account, model, requests, tokens).await,
            Self::Shared(ledger) => ledger.set_limit(account, model, requests, tokens).await,
        }
    }
}

/// Looking back.
impl Ledger {
    /// The account's charged calls within these times (in seconds), newest first.
    pub async fn usage(
        &self,
        account_id: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<Call>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.usage(account_id, from, to).await,
            Self::Shared(ledger) => ledger.usage(account_id, from, to).await,
        }
    }

    /// The calls with this number of ours or this ID of their client's, newest first.
    pub async fn find_calls(&self, id: &str) -> Result<Vec<Call>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.find_calls(id).await,
            Self::Shared(ledger) => ledger.find_calls(id).await,
        }
    }

    /// Calls added up by day, account and model.
    pub async fn analytics(
        &self,
        filter: AnalyticsFilter,
    ) -> Result<Vec<AnalyticsRow>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.analytics(filter).await,
            Self::Shared(ledger) => ledger.analytics(filter).await,
        }
    }

    /// What the calls of the last minute used in the end, in tokens, by their numbers.
    pub async fn tokens_in_window(&self) -> Result<HashMap<u64, u64>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.tokens_in_window().await,
            // There the calls have their places with them.
            Self::Shared(_) => Ok(HashMap::new()),
        }
    }

    /// Every place that calls have in the last minute, for a limiter that has forgotten them.
    pub async fn reservations_in_window(&self) -> Result<Vec<StoredReservation>, LedgerError> {
        match self {
            // Its limiter has a journal of its own.
            Self::Embedded(_) => Ok(Vec::new()),
            Self::Shared(ledger) => ledger.reservations_in_window().await,
        }
    }

    /// Looks at everything there is.
    pub async fn audit(&self) -> Result<Audit, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.audit().await,
            Self::Shared(ledger) => ledger.audit().await,
        }
    }

    /// Looks at what has changed since the last time; the first time at everything.
    pub async fn reconcile(&self) -> Result<Audit, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.reconcile().await,
            Self::Shared(ledger) => ledger.reconcile().await,
        }
    }
}
