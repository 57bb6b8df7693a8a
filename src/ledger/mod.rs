//! The ledger: accounts, keys, credit, charged calls, and the operator's settings of models and limits.
//!
//! It has two backends: `embedded`, a SQLite file of one gateway, and `postgres`, a database that several gateways
//! share. This folder has what both share: the types, one account's credit as a pure state machine, and the record of a
//! call.
//!
//! A change is committed before its method returns `Ok`. Charges, and grants with a reference, can be repeated without
//! being applied twice. While charges cannot be committed, new holds are refused. A hold that is dropped is released,
//! and the charge of a delivered response that cannot be committed goes to the [`spool`].
//!
//! This room may use `limits` and the rooms below it in `src/lib.rs`. It uses `db`, `net`, `wire`, `catalog` and
//! `base`.

use std::{collections::HashMap, path::Path, time::Duration};

mod account_days;
mod bill;
pub(crate) mod budgets;
mod call;
mod call_id;
mod caller;
mod calls_page;
mod conditions;
mod credit;
mod detail;
mod edit;
mod embedded;
mod erasure;
mod error;
pub(crate) mod export;
mod health;
mod held;
mod idempotency;
pub(crate) mod import;
mod key_terms;
mod keys;
mod limits;
mod pages;
mod pending;
mod postgres;
mod projects;
mod prune;
mod records;
mod rotation;
mod sessions;
mod spans;
pub(crate) mod spool;
#[cfg(test)]
mod tests;
mod watched;

pub(crate) use account_days::{AccountDays, DayRange, HistoryEdges};
pub(crate) use bill::Breakdown;
pub use budgets::BudgetShortage;
pub(crate) use budgets::{
    BadSchedule, Budget, BudgetChange, BudgetScope, BudgetState, Period, Schedule,
};
pub use call::Outcome;
pub(crate) use call::{Attempt, Call, Charged, Step};
pub use call_id::CallId;
pub use caller::Caller;
pub(crate) use caller::Seen;
pub(crate) use calls_page::{CallsFound, CallsPage};
pub(crate) use credit::Shortage;
pub(crate) use edit::Edit;
pub use embedded::audit_file;
pub(crate) use embedded::{back_up_file, export_file, is_in_use, probe, prune_file};
pub(crate) use error::{LedgerError, OpenError};
pub(crate) use health::{Health, Misplaced};
pub use held::HoldRequest;
pub(crate) use held::{Held, HoldRefused};
pub use idempotency::{Idempotency, IdempotencyKey, KeepLimits, RequestHash};
pub(crate) use idempotency::{
    IdempotentResponse, KeyTaken, MAX_REPLAYS_OF_CALL, Replay, ReplayKind,
};
pub(crate) use key_terms::{DEFAULT_PROJECT, KeyChange};
pub use key_terms::{KeyTerms, Payer};
pub use keys::MAX_KEYS;
pub(crate) use keys::{KeyFilter, KeysPage};
pub(crate) use limits::LimitRule;
pub(crate) use pages::{AccountFound, DayUse, Entry, EntryKind, GrantLeft, SeenCalls, SumsOf};
pub(crate) use pending::PendingCharge;
pub(crate) use postgres::{
    audit_database, export_database, probe as probe_database, prune_database,
};
pub(crate) use projects::Project;
pub(crate) use prune::Pruned;
pub(crate) use records::{
    Account, AccountChange, AnalyticsFilter, AnalyticsRow, Audit, Balances, Grant, Key,
    ModelSettings, StrayHold, Violation,
};
pub use records::{KeyState, NewAccount, NewGrant, NewKey};
pub(crate) use rotation::{DEFAULT_GRACE, MAX_GRACE, PreviousSecret};
pub(crate) use sessions::{SessionCursor, SessionUse, SessionsPage};
pub(crate) use spans::{MAX_TIMINGS, SpansPage, Timing};
pub(crate) use watched::{Expiring, ExpiringPage};

use self::{embedded::Embedded, postgres::Shared};
use crate::{
    base::{
        clock::Clock,
        durability::Durability,
        keys::KeyDigest,
        money::NanoUsd,
        rate::{Ceilings, StoredReservation},
    },
    db::postgres::Address,
};

/// Default timeout of placing a hold in a shared database.
pub const DEADLINE: Duration = Duration::from_millis(500);

/// The ledger, in one of its two backends.
pub enum Ledger {
    Embedded(Embedded),
    Shared(Shared),
}

/// Opening, and lookups.
impl Ledger {
    /// Opens the SQLite file, migrates its schema, and locks it for this process.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        Self::open_at(path, durability, Clock::System)
    }

    /// As [`Self::open`], with a clock of the caller's choice.
    pub fn open_at(path: &Path, durability: Durability, clock: Clock) -> Result<Self, OpenError> {
        Embedded::open_at(path, durability, clock).map(Self::Embedded)
    }

    /// Connects to a PostgreSQL database that several gateways share, migrates its schema, and takes a lease.
    ///
    /// A call whose hold is not placed within `deadline` is refused.
    pub async fn share(
        address: &Address,
        durability: Durability,
        deadline: Duration,
    ) -> Result<Self, OpenError> {
        let shared = Shared::open(address.clone(), durability, deadline, Clock::System);
        shared.await.map(Self::Shared)
    }

    /// Waits, for a bounded time, until everything is written; called when the gateway stops.
    pub async fn close(&self) {
        match self {
            // It writes the rest when it is dropped.
            Self::Embedded(ledger) => ledger.close().await,
            Self::Shared(ledger) => ledger.close().await,
        }
    }

    /// A new call ID, higher than all before it.
    pub fn next_call(&self) -> CallId {
        match self {
            Self::Embedded(ledger) => ledger.next_call(),
            Self::Shared(ledger) => ledger.next_call(),
        }
    }

    /// The caller with this key, if the key is active; from the cache if it is there.
    pub(crate) async fn caller(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.caller(digest)),
            Self::Shared(ledger) => Box::pin(ledger.caller(digest)).await,
        }
    }

    /// The caller with this key, read from the store; refreshes the cached settings as well.
    pub async fn fresh_caller(&self, digest: KeyDigest) -> Result<Option<Caller>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.caller(digest)),
            Self::Shared(ledger) => Box::pin(ledger.fresh_caller(digest)).await,
        }
    }

    /// Whether [`Self::caller`] finds out about this key without asking the store.
    pub(crate) fn has_in_memory(&self, digest: KeyDigest) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Shared(ledger) => ledger.has_in_memory(digest),
        }
    }

    /// Reads model settings and limits from the store into memory.
    pub(crate) async fn refresh(&self) -> Result<(), LedgerError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Shared(ledger) => ledger.refresh().await,
        }
    }

    pub(crate) async fn account(&self, id: &str) -> Result<Account, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.account(id),
            Self::Shared(ledger) => ledger.account(id).await,
        }
    }

    pub(crate) async fn accounts(&self) -> Result<Vec<Account>, LedgerError> {
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

    /// When the account's credit begins to expire. `seen` is the expiry that was read together with the caller; a
    /// shared ledger uses it, the embedded one reads its memory.
    pub(crate) fn credits_expire_at(&self, account_id: &str, seen: Option<i64>) -> Option<i64> {
        match self {
            Self::Embedded(ledger) => ledger.balances(account_id).expires_at,
            Self::Shared(ledger) => seen.filter(|expiry| *expiry > ledger.clock().now()),
        }
    }

    /// The account's grants, oldest first.
    pub async fn grants(&self, account_id: &str) -> Result<Vec<Grant>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.grants(account_id),
            Self::Shared(ledger) => ledger.grants(account_id).await,
        }
    }

    /// Whether the account is frozen: its entries do not add up, so it starts no new calls.
    pub(crate) async fn is_frozen(&self, account_id: &str) -> Result<bool, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.is_frozen(account_id)),
            Self::Shared(ledger) => ledger.is_frozen(account_id).await,
        }
    }

    pub(crate) fn model_settings(&self, model_id: &str) -> ModelSettings {
        match self {
            Self::Embedded(ledger) => ledger.model_settings(model_id),
            Self::Shared(ledger) => ledger.model_settings(model_id),
        }
    }

    /// The ceilings of an account with a model.
    pub(crate) fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        match self {
            Self::Embedded(ledger) => ledger.ceilings(account, model, default),
            Self::Shared(ledger) => ledger.ceilings(account, model, default),
        }
    }

    pub(crate) fn limits(&self) -> Vec<LimitRule> {
        match self {
            Self::Embedded(ledger) => ledger.limits(),
            Self::Shared(ledger) => ledger.limits(),
        }
    }

    /// How many holds are open, and their sum.
    pub fn all_held(&self) -> (usize, NanoUsd) {
        match self {
            Self::Embedded(ledger) => ledger.all_held(),
            Self::Shared(ledger) => ledger.all_held(),
        }
    }

    /// How many accounts are frozen because their entries do not add up.
    pub(crate) fn violations(&self) -> usize {
        match self {
            Self::Embedded(ledger) => ledger.violations(),
            Self::Shared(ledger) => ledger.violations(),
        }
    }

    /// Whether charges can be committed.
    pub(crate) fn health(&self) -> &Health {
        match self {
            Self::Embedded(ledger) => ledger.health(),
            Self::Shared(ledger) => ledger.health(),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        match self {
            Self::Embedded(ledger) => ledger.clock(),
            Self::Shared(ledger) => ledger.clock(),
        }
    }
}

/// Changes.
impl Ledger {
    pub async fn create_account(&self, new: NewAccount) -> Result<Account, LedgerError> {
        let account = new.into_account(self.clock().now())?;
        match self {
            Self::Embedded(ledger) => ledger.create_account(account).await,
            Self::Shared(ledger) => ledger.create_account(account).await,
        }
    }

    pub(crate) async fn change_account(
        &self,
        id: &str,
        change: AccountChange,
    ) -> Result<Account, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.change_account(id, change).await,
            Self::Shared(ledger) => ledger.change_account(id, change).await,
        }
    }

    pub async fn add_grant(&self, account_id: &str, new: NewGrant) -> Result<Grant, LedgerError> {
        let (grant, _) = self.grant_once(account_id, new).await?;
        Ok(grant)
    }

    /// Adds a grant and returns `true`; returns the earlier grant and `false` if its reference was used before.
    pub(crate) async fn grant_once(
        &self,
        account_id: &str,
        new: NewGrant,
    ) -> Result<(Grant, bool), LedgerError> {
        let new = new.into_grant(self.clock().now());
        let id = new.id.clone();
        let grant = match self {
            Self::Embedded(ledger) => ledger.add_grant(account_id, new).await?,
            Self::Shared(ledger) => ledger.add_grant(account_id, new).await?,
        };
        let is_new = grant.id == id;
        Ok((grant, is_new))
    }

    /// Sets the values that are `Some`, keeps the others; persistent.
    pub(crate) async fn set_model(
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

    /// Changes the ceilings for this account and model; persistent.
    pub(crate) async fn set_limit(
        &self,
        account: Option<String>,
        model: Option<String>,
        requests: Edit<u32>,
        tokens: Edit<u32>,
    ) -> Result<LimitRule, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.set_limit(account, model, requests, tokens).await,
            Self::Shared(ledger) => ledger.set_limit(account, model, requests, tokens).await,
        }
    }
}

/// History and audits.
impl Ledger {
    /// The account's charged calls between two times in seconds, newest first.
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

    /// The calls with this call ID or this `X-Request-ID`, and those whose response a request with it got, newest
    /// first.
    pub(crate) async fn find_calls(&self, id: &str) -> Result<Vec<Call>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.find_calls(id).await,
            Self::Shared(ledger) => ledger.find_calls(id).await,
        }
    }

    /// Like [`Self::find_calls`], of one account: others can use the same `X-Request-ID`.
    pub(crate) async fn find_calls_of(
        &self,
        account_id: &str,
        id: &str,
    ) -> Result<Vec<Call>, LedgerError> {
        if let Some(id) = CallId::parse(id)
            && let Some(call) = self.call(id).await?
        {
            let own = Some(call).filter(|call| call.account_id == account_id);
            return Ok(own.into_iter().collect());
        }
        match self {
            Self::Embedded(ledger) => ledger.calls_of_request(account_id, id).await,
            Self::Shared(ledger) => ledger.calls_of_request(account_id, id).await,
        }
    }

    /// Sums of calls by day, account and model.
    pub(crate) async fn analytics(
        &self,
        filter: AnalyticsFilter,
    ) -> Result<Vec<AnalyticsRow>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.analytics(filter).await,
            Self::Shared(ledger) => ledger.analytics(filter).await,
        }
    }

    /// The tokens used by calls of the last rate-limit window, by call ID.
    pub(crate) async fn tokens_in_window(&self) -> Result<HashMap<u64, u64>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.tokens_in_window().await,
            // The shared ledger stores reservations with the calls: see `reservations_in_window`.
            Self::Shared(_) => Ok(HashMap::new()),
        }
    }

    /// Every reservation of the current rate-limit window, for a limiter that has lost its state.
    pub(crate) async fn reservations_in_window(
        &self,
    ) -> Result<Vec<StoredReservation>, LedgerError> {
        match self {
            // The embedded limiter has its own journal.
            Self::Embedded(_) => Ok(Vec::new()),
            Self::Shared(ledger) => ledger.reservations_in_window().await,
        }
    }

    /// Audits every account.
    pub(crate) async fn audit(&self) -> Result<Audit, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.audit().await,
            Self::Shared(ledger) => ledger.audit().await,
        }
    }

    /// Audits what has changed since the last audit of this process; the first time everything.
    pub(crate) async fn reconcile(&self) -> Result<Audit, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.reconcile().await,
            Self::Shared(ledger) => ledger.reconcile().await,
        }
    }
}
