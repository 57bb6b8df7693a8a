//! The ledger of a gateway that is alone: one SQLite file, one thread that writes to it.
//!
//! Changes go, one after the other, through a thread that owns the database; each is committed
//! before its caller hears of it. Reads come from a copy in memory that the same thread keeps, so
//! a key that was disabled is refused on the very next request, and a request waits for no disk.
//! What running calls have set aside lives in that copy alone. A change that fails to be committed
//! has not happened: the copy is then made anew from the database.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64},
    },
};

use crossbeam_utils::sync::ShardedLockReadGuard;

mod audit;
mod billing;
mod directory;
mod history;
mod pages;
mod pending;
mod queue;
mod sqlite;
#[cfg(test)]
mod tests;
mod watched;
mod writer;

pub use audit::audit_file;
pub use sqlite::probe;

use self::{
    directory::{Directory, Shared},
    sqlite::Reader,
    writer::Writer,
};
use super::{
    Account, AccountChange, Balances, CallId, Caller, CeilingChange, Grant, Health, Key, KeyState,
    LedgerError, LimitRule, ModelSettings, OpenError, call_id::CallIds, credit::Funds,
};
use crate::base::{
    clock::Clock, durability::Durability, keys::KeyDigest, money::NanoUsd, rate::Ceilings,
};

pub struct Embedded {
    directory: Shared,
    writer: Writer,
    reader: Reader,
    ids: CallIds,
    clock: Clock,
    /// The file has been looked through.
    sound: Arc<AtomicBool>,
    /// The last entry of the books that an audit has seen.
    audited_to: AtomicI64,
    /// One audit at a time: two would undo each other's findings.
    auditing: tokio::sync::Mutex<()>,
}

impl Embedded {
    /// Opens the database, bringing its tables up to date, and takes it for this process alone.
    pub(super) fn open_at(
        path: &Path,
        durability: Durability,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let database = sqlite::Database::open(path, durability)?;
        let failed = |source| OpenError::Database {
            path: path.display().to_string(),
            source,
        };
        let directory = Shared::new(database.load().map_err(failed)?);
        if let Err(error) = database.enter_news_alone() {
            tracing::warn!(%error, "calls could not be entered yet");
        }
        let ids = CallIds::after(database.last_call().map_err(failed)?);
        let reader = Reader::new(path, &database);
        let sound = database.sound().clone();
        let writer = Writer::start(database, directory.clone(), durability);
        Ok(Self {
            directory,
            writer,
            reader,
            ids,
            clock,
            sound,
            audited_to: AtomicI64::new(0),
            auditing: tokio::sync::Mutex::default(),
        })
    }

    pub fn next_call(&self) -> CallId {
        self.ids.next(self.clock.now_ms())
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The caller that a key belongs to, if it is one that may be used.
    pub fn caller(&self, digest: KeyDigest) -> Option<Caller> {
        self.read().caller(digest)
    }

    pub fn account(&self, id: &str) -> Result<Account, LedgerError> {
        self.read().account(id).cloned()
    }

    pub fn accounts(&self) -> Vec<Account> {
        self.read().accounts().cloned().collect()
    }

    pub fn balances(&self, account_id: &str) -> Balances {
        let directory = self.read();
        directory.credit(account_id).balances(self.clock.now())
    }

    /// What the account was given, oldest first.
    pub fn grants(&self, account_id: &str) -> Result<Vec<Grant>, LedgerError> {
        let directory = self.read();
        directory.account(account_id)?;
        Ok(directory.grants(account_id).to_vec())
    }

    /// The account's keys, deleted ones too: their history stays.
    pub fn keys(&self, account_id: &str) -> Result<Vec<Key>, LedgerError> {
        let directory = self.read();
        directory.account(account_id)?;
        Ok(directory.keys_of(account_id).cloned().collect())
    }

    pub fn model_settings(&self, model_id: &str) -> ModelSettings {
        self.read().model_settings(model_id)
    }

    /// The ceilings of an account with a model.
    pub fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        self.read().limits().ceilings(account, model, default)
    }

    pub fn limits(&self) -> Vec<LimitRule> {
        self.read().limits().all()
    }

    /// Changes the ceilings for this account and model; lasts across restarts.
    pub async fn set_limit(
        &self,
        account: Option<String>,
        model: Option<String>,
        requests: CeilingChange,
        tokens: CeilingChange,
    ) -> Result<LimitRule, LedgerError> {
        self.writer
            .run(move |database, directory| {
                let before = directory
                    .read()
                    .limits()
                    .get(account.as_deref(), model.as_deref());
                let rule = LimitRule {
                    account,
                    model,
                    requests: requests.applied_to(before.requests),
                    tokens: tokens.applied_to(before.tokens),
                };
                database.put_limit(&rule)?;
                directory.write().put_limit(&rule);
                Ok(rule)
            })
            .await
    }

    pub async fn create_account(&self, account: Account) -> Result<Account, LedgerError> {
        self.writer
            .run(move |database, directory| {
                database.insert_account(&account)?;
                Ok(directory.write().put_account(account))
            })
            .await
    }

    pub async fn change_account(
        &self,
        id: &str,
        change: AccountChange,
    ) -> Result<Account, LedgerError> {
        let id = id.to_owned();
        self.writer
            .run(move |database, directory| {
                let account = change.applied_to(directory.read().account(&id)?)?;
                database.update_account(&account)?;
                Ok(directory.write().put_account(account))
            })
            .await
    }

    /// Makes a key. Only its digest is kept: what is returned is the one chance to see it.
    pub async fn create_key(&self, key: Key) -> Result<Key, LedgerError> {
        self.writer
            .run(move |database, directory| {
                directory.read().account(&key.account_id)?;
                database.insert_key(&key)?;
                Ok(directory.write().put_key(key))
            })
            .await
    }

    pub async fn set_key_state(&self, id: &str, state: KeyState) -> Result<Key, LedgerError> {
        let id = id.to_owned();
        self.writer
            .run(move |database, directory| {
                let key = directory.read().key(&id)?.clone();
                if key.state == KeyState::Deleted && state != KeyState::Deleted {
                    return Err(LedgerError::KeyDeleted);
                }
                let key = Key { state, ..key };
                database.update_key(&key)?;
                Ok(directory.write().put_key(key))
            })
            .await
    }

    pub async fn add_grant(&self, account_id: &str, grant: Grant) -> Result<Grant, LedgerError> {
        let account_id = account_id.to_owned();
        self.writer
            .run(move |database, directory| {
                directory.read().account(&account_id)?;
                if let Some(before) = directory.read().same_grant(&account_id, &grant)? {
                    return Ok(before);
                }
                let (update, granted) = {
                    let directory = directory.read();
                    let mut credit = directory.credit(&account_id);
                    let fits = credit.total().checked_add(grant.amount);
                    fits.ok_or(LedgerError::TooMuchCredit)?;
                    let id = Arc::from(grant.id.as_str());
                    let funds = Funds::new(id, grant.amount, grant.expires_at);
                    let update = credit.bring_up_to_date(grant.created_at);
                    (update, credit.grant(&funds))
                };
                database.enter_update(&account_id, &update, grant.created_at)?;
                database.enter_grant(&account_id, &grant, &granted)?;
                let mut directory = directory.write();
                directory.put_grant(&account_id, grant.clone());
                Ok(grant)
            })
            .await
    }

    /// Sets what is given, keeps the rest; lasts across restarts.
    pub async fn set_model(
        &self,
        model_id: &str,
        enabled: Option<bool>,
        unlisted: Option<bool>,
    ) -> Result<ModelSettings, LedgerError> {
        let model_id = model_id.to_owned();
        self.writer
            .run(move |database, directory| {
                let before = directory.read().model_settings(&model_id);
                let settings = ModelSettings {
                    enabled: enabled.unwrap_or(before.enabled),
                    unlisted: unlisted.or(before.unlisted),
                };
                database.put_model_settings(&model_id, settings)?;
                directory.write().put_model_settings(model_id, settings);
                Ok(settings)
            })
            .await
    }

    /// How many calls have credit set aside, and how much.
    pub fn all_held(&self) -> (usize, NanoUsd) {
        self.read().all_held()
    }

    /// How the thread that writes is doing.
    pub fn health(&self) -> &Health {
        self.writer.health()
    }

    fn read(&self) -> ShardedLockReadGuard<'_, Directory> {
        self.directory.read()
    }
}
