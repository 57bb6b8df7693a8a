//! Stores responses of `/v1/responses`, to which `previous_response_id` refers.
//!
//! Storage is best effort and separate from the ledger, in an SQLite file or over PostgreSQL connections of its own. When
//! it fails, an operation returns an error within a deadline and delays nothing else; the file or connection that failed
//! is reopened at the next operation, without a restart.
//!
//! It may use the rooms after it in `src/lib.rs`; in fact it uses `db` and `base`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

mod health;
pub(crate) mod import;
mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;

use self::{postgres::PostgresStore, sqlite::SqliteStore};
use crate::{base::clock::Clock, db::postgres::Address};

/// Retention, limits (§8.4) and deadlines.
const SETTINGS: Settings = Settings {
    retention_ms: 30 * 24 * 60 * 60 * 1_000,
    record_bytes: 256 << 10,
    per_account: 100,
    in_all: 1_000,
    // Each may have a record of 256 KiB: 64 MiB at most.
    max_waiting: 256,
    deadline: Duration::from_secs(2),
    sweep_every: Duration::from_hours(1),
};

#[derive(Clone, Copy)]
struct Settings {
    /// Records of this age or older cannot be found and are deleted.
    retention_ms: i64,
    /// Maximum size of a record, response and input together.
    record_bytes: usize,
    /// Maximum number of records of an account.
    per_account: u32,
    /// Maximum number of records of all accounts together.
    in_all: u32,
    /// Maximum number of operations in progress; more are refused.
    max_waiting: usize,
    /// Deadline of one operation.
    deadline: Duration,
    /// Interval at which expired records are deleted; storing deletes them too.
    sweep_every: Duration,
}

/// A stored response, with everything needed to return it and to continue the conversation.
///
/// It contains the whole conversation, because the responses before it may be evicted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// `resp_…`
    pub id: String,
    pub account_id: String,
    /// The response object, JSON as it was sent to the caller.
    pub response: String,
    /// The input items of the conversation up to this response, as a JSON array; not parsed here.
    pub input: String,
    /// The events of a streamed response but the last one, which has the response itself. They do not count against
    /// the maximum size of a record; `None` if they are too long.
    pub events: Option<Arc<str>>,
}

/// Whether a record was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreOutcome {
    Stored,
    /// The record exceeds the maximum size; nothing was changed.
    TooLarge,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    #[error("response storage is unavailable: {0}")]
    Unavailable(#[from] Cause),
    /// The deadline has passed; the operation may still be executed.
    #[error("response storage timed out")]
    TimedOut,
}

/// Why response storage is unavailable, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    File(#[from] crate::db::sqlite::FileError),
    #[error("{address} cannot be used: {source}")]
    Postgres {
        address: String,
        source: crate::db::postgres::Error,
    },
    #[error("too many operations are waiting")]
    QueueFull,
    #[error("its worker has stopped")]
    Stopped,
}

/// Checks the file beside a ledger's database, or the folder in which it would be created; changes nothing.
pub(crate) fn probe(database: &Path) -> Result<String, String> {
    crate::db::sqlite::probe(&path_beside(database))
}

/// `data/tollgate.db` → `data/tollgate.responses.db`
pub(crate) fn path_beside(database: &Path) -> PathBuf {
    database.with_extension("responses.db")
}

/// The storage of one gateway, in an SQLite file, or of several gateways, in their PostgreSQL database.
pub enum Conversations {
    File(SqliteStore),
    Shared(PostgresStore),
}

impl Conversations {
    /// Storage in a file beside the ledger's SQLite database, which only one gateway has open.
    ///
    /// Never fails: a file that cannot be opened is opened again at each operation.
    pub(crate) fn beside(database: &Path) -> Self {
        Self::File(SqliteStore::open(
            &path_beside(database),
            SETTINGS,
            Clock::System,
        ))
    }

    /// Storage in the ledger's PostgreSQL database, which several gateways share; the ledger has created the tables.
    ///
    /// Never fails: a connection that cannot be opened is opened again at each operation. Must be called within a Tokio
    /// runtime, because it spawns the task that deletes expired records.
    pub(crate) fn shared(address: Address) -> Self {
        Self::Shared(PostgresStore::open(address, SETTINGS, Clock::System))
    }

    /// Whether a record of `bytes` or more bytes is small enough to be stored.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.settings().record_bytes
    }

    /// Stores a record and evicts records above the limits, in one transaction.
    ///
    /// If a record with the ID exists, it is kept and the new one dropped. An error may be returned although the record
    /// was stored; its ID is then unknown to the client, and it is evicted or expires like any other.
    pub(crate) async fn store(&self, record: Record) -> Result<StoreOutcome, StorageError> {
        if !self.fits(record.response.len() + record.input.len()) {
            return Ok(StoreOutcome::TooLarge);
        }
        match self {
            Self::File(file) => file.store(record).await?,
            Self::Shared(database) => database.store(&record).await?,
        }
        Ok(StoreOutcome::Stored)
    }

    /// Finds a record; `None` if it is missing, expired, evicted or another account's.
    pub(crate) async fn find(
        &self,
        account_id: &str,
        id: &str,
    ) -> Result<Option<Record>, StorageError> {
        match self {
            Self::File(file) => file.find(account_id, id).await,
            Self::Shared(database) => database.find(account_id, id).await,
        }
    }

    /// Deletes a record of the account; returns whether there was one.
    pub(crate) async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
        match self {
            Self::File(file) => file.delete(account_id, id).await,
            Self::Shared(database) => database.delete(account_id, id).await,
        }
    }

    /// Deletes all records of an account.
    pub(crate) async fn delete_all_of(&self, account_id: &str) -> Result<(), StorageError> {
        match self {
            Self::File(file) => file.delete_all_of(account_id).await,
            Self::Shared(database) => database.delete_all_of(account_id).await,
        }
    }

    fn settings(&self) -> &Settings {
        match self {
            Self::File(file) => &file.settings,
            Self::Shared(database) => database.settings(),
        }
    }
}
