//! The embedded ledger: one SQLite file, and one thread that writes to it.
//!
//! Changes are commands (`command.rs`) to a thread that owns the database; each is committed before its caller gets a
//! reply. Reads come from memory that the same thread maintains (`directory.rs`), so a disabled key is refused on the very
//! next request, and no request waits for the disk. Holds exist in that memory only.
//!
//! A change that cannot be committed has not happened: the memory is then read again from the database.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64},
    },
};

use crossbeam_utils::sync::ShardedLockReadGuard;

mod audit;
mod backup;
mod billing;
mod budgets;
mod command;
mod directory;
mod export;
mod history;
mod idempotency;
mod keys;
mod pages;
mod pending;
mod projects;
mod prune;
mod queue;
mod spans;
mod sqlite;
mod steps;
#[cfg(test)]
mod tests;
mod watched;
mod writer;

pub use audit::audit_file;
pub(crate) use backup::back_up_file;
pub(crate) use export::export_file;
pub(crate) use prune::prune_file;
pub(crate) use sqlite::{is_taken as is_in_use, probe};

use self::{
    command::{Command, LimitChange, ModelChange},
    directory::{Directory, Shared},
    sqlite::Reader,
    writer::Writer,
};
use super::{
    Account, AccountChange, Balances, CallId, Caller, Edit, Grant, Health, LedgerError, LimitRule,
    ModelSettings, OpenError, call_id::CallIds,
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
    /// The whole file has been checked for damage.
    is_checked: AtomicBool,
    /// Set to `false` when damage is found.
    usable: Arc<AtomicBool>,
    /// The last ledger entry that an audit has checked.
    audited_to: AtomicI64,
    /// One audit at a time: two would overwrite each other's findings.
    auditing: tokio::sync::Mutex<()>,
}

impl Embedded {
    /// Opens the database, creates its tables if it is new, and locks it for this process.
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
        if let Err(error) = database.post_redo_log_alone(Some(Vec::new())) {
            tracing::warn!(%error, "posting calls from the redo log failed; retrying in 1000 ms");
        }
        let ids = CallIds::after(database.last_call().map_err(failed)?);
        let reader = Reader::new(path, &database);
        let (is_checked, usable) = (database.is_checked, database.usable().clone());
        let writer = Writer::start(database, directory.clone(), durability);
        Ok(Self {
            directory,
            writer,
            reader,
            ids,
            clock,
            is_checked: is_checked.into(),
            usable,
            audited_to: AtomicI64::new(0),
            auditing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn next_call(&self) -> CallId {
        self.ids.next(self.clock.now_ms())
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The caller that an active key belongs to.
    pub(crate) fn caller(&self, digest: KeyDigest) -> Option<Caller> {
        self.read().caller(digest, self.clock.now())
    }

    pub(crate) fn account(&self, id: &str) -> Result<Account, LedgerError> {
        self.read().account(id).cloned()
    }

    pub(crate) fn accounts(&self) -> Vec<Account> {
        self.read().accounts().cloned().collect()
    }

    pub(crate) fn balances(&self, account_id: &str) -> Balances {
        let directory = self.read();
        directory.credit(account_id).balances(self.clock.now())
    }

    /// The grants of an account, oldest first.
    pub(crate) fn grants(&self, account_id: &str) -> Result<Vec<Grant>, LedgerError> {
        let directory = self.read();
        directory.account(account_id)?;
        Ok(directory.grants(account_id).to_vec())
    }

    pub(crate) fn model_settings(&self, model_id: &str) -> ModelSettings {
        self.read().model_settings(model_id)
    }

    /// The ceilings of an account with a model.
    pub(crate) fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        self.read().limits().ceilings(account, model, default)
    }

    pub(crate) fn limits(&self) -> Vec<LimitRule> {
        self.read().limits().all()
    }

    /// Changes the ceilings for this account and model; lasts across restarts.
    pub(crate) async fn set_limit(
        &self,
        account: Option<String>,
        model: Option<String>,
        requests: Edit<u32>,
        tokens: Edit<u32>,
    ) -> Result<LimitRule, LedgerError> {
        let change = LimitChange {
            account,
            model,
            requests,
            tokens,
        };
        self.writer
            .execute(|reply| Command::SetLimit(change, reply))
            .await
    }

    pub(crate) async fn create_account(&self, account: Account) -> Result<Account, LedgerError> {
        self.writer
            .execute(|reply| Command::CreateAccount(account, reply))
            .await
    }

    pub(crate) async fn change_account(
        &self,
        id: &str,
        change: AccountChange,
    ) -> Result<Account, LedgerError> {
        self.writer
            .execute(|reply| Command::ChangeAccount(id.to_owned(), change, reply))
            .await
    }

    pub(crate) async fn erase_texts(
        &self,
        account_id: &str,
        reasons: Vec<(String, String)>,
    ) -> Result<(), LedgerError> {
        let id = account_id.to_owned();
        self.writer
            .execute(|reply| Command::EraseTexts(id, reasons, reply))
            .await
    }

    pub(crate) async fn add_grant(
        &self,
        account_id: &str,
        grant: Grant,
    ) -> Result<Grant, LedgerError> {
        self.writer
            .execute(|reply| Command::AddGrant(account_id.to_owned(), grant, reply))
            .await
    }

    /// Changes the settings of a model; `None` keeps what there is. Lasts across restarts.
    pub(crate) async fn set_model(
        &self,
        model_id: &str,
        enabled: Option<bool>,
        unlisted: Option<bool>,
    ) -> Result<ModelSettings, LedgerError> {
        let change = ModelChange {
            model_id: model_id.to_owned(),
            enabled,
            unlisted,
        };
        self.writer
            .execute(|reply| Command::SetModel(change, reply))
            .await
    }

    /// How many holds there are, and their sum.
    pub(crate) fn all_held(&self) -> (usize, NanoUsd) {
        self.read().all_held()
    }

    /// Waits until no query reads the file any more, so that it is closed properly when the ledger is dropped.
    pub(crate) async fn close(&self) {
        self.reader.close().await;
    }

    /// The state of the writer thread.
    pub(crate) fn health(&self) -> &Health {
        self.writer.health()
    }

    fn read(&self) -> ShardedLockReadGuard<'_, Directory> {
        self.directory.read()
    }
}
