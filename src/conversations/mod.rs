//! Stored responses of `/v1/responses`: what `previous_response_id` leads to.
//!
//! Storage is best-effort, and apart from the ledger: a file of its own or connections of its own.
//! When it fails, whoever asks hears so within a deadline, and nothing else is held up. What failed
//! is opened anew at the next use, so it heals without a restart.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

mod health;
mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;

use self::{postgres::InDatabase, sqlite::InFile};
use crate::{base::clock::Clock, db::postgres::Address};

/// What is kept (SPEC §8.4), and how long anyone waits for it.
const SETTINGS: Settings = Settings {
    retention_ms: 30 * 24 * 60 * 60 * 1_000,
    record_bytes: 256 << 10,
    per_account: 100,
    in_all: 1_000,
    // Each may bring a record: 64 MiB at most.
    waiting: 256,
    deadline: Duration::from_secs(2),
    sweep_every: Duration::from_hours(1),
};

#[derive(Clone, Copy)]
struct Settings {
    /// From this age on a record is gone.
    retention_ms: i64,
    record_bytes: usize,
    per_account: u32,
    in_all: u32,
    /// How many uses may wait for an answer.
    waiting: usize,
    deadline: Duration,
    /// How often expired records are deleted when nothing is stored meanwhile.
    sweep_every: Duration,
}

/// A stored response: everything needed to show it again and to go on from it.
///
/// It stands alone, because the one it followed may be evicted before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// `resp_…`
    pub id: String,
    pub account_id: String,
    /// The response object, JSON as the caller got it.
    pub response: String,
    /// What the model was sent before it, as a JSON array; opaque here.
    pub input: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Stored,
    /// Over what a record may hold; nothing has changed.
    TooLarge,
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("the storage of responses is unavailable: {0}")]
    Unavailable(#[from] Cause),
    /// What was asked may still be done.
    #[error("the storage of responses did not answer in time")]
    TimedOut,
}

/// Why responses can be neither stored nor found; for the log.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    File(#[from] crate::db::sqlite::FileError),
    #[error("{address} cannot be used: {source}")]
    Postgres {
        address: String,
        source: crate::db::postgres::Error,
    },
    #[error("too much is waiting for it")]
    QueueFull,
    #[error("it has stopped")]
    Stopped,
}

/// Looks at the file beside a ledger's database, or at the place where it would be made; changes
/// nothing.
pub fn probe(database: &Path) -> Result<String, String> {
    crate::db::sqlite::probe(&path_beside(database))
}

/// `data/tollgate.db` → `data/tollgate.responses.db`
fn path_beside(database: &Path) -> PathBuf {
    database.with_extension("responses.db")
}

/// Of one gateway, in a file; or of several, in their database.
pub enum Conversations {
    File(InFile),
    Shared(InDatabase),
}

impl Conversations {
    /// Beside the ledger's database, which one gateway alone has open.
    ///
    /// Never fails: what cannot be opened now is tried again at each use.
    pub fn beside(database: &Path) -> Self {
        Self::File(InFile::open(
            &path_beside(database),
            SETTINGS,
            Clock::System,
        ))
    }

    /// In the database of the ledger, which several gateways share and whose tables are there.
    ///
    /// Never fails either. Needs a runtime, for the upkeep.
    pub fn shared(address: Address) -> Self {
        Self::Shared(InDatabase::open(address, SETTINGS, Clock::System))
    }

    /// Stores a record and evicts what is then too many, in one transaction.
    ///
    /// Of two records with the same ID the first is kept. An error may come after the record was
    /// stored: nobody knows of it, and it goes with time.
    pub async fn store(&self, record: Record) -> Result<Kept, StorageError> {
        let bytes = record.response.len() + record.input.len();
        if bytes > self.settings().record_bytes {
            return Ok(Kept::TooLarge);
        }
        match self {
            Self::File(file) => file.store(record).await?,
            Self::Shared(database) => database.store(&record).await?,
        }
        Ok(Kept::Stored)
    }

    /// `None` for missing, expired, evicted and another account's alike.
    pub async fn find(&self, account_id: &str, id: &str) -> Result<Option<Record>, StorageError> {
        match self {
            Self::File(file) => file.find(account_id, id).await,
            Self::Shared(database) => database.find(account_id, id).await,
        }
    }

    /// Whether there was one to delete; only its owner's is.
    pub async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
        match self {
            Self::File(file) => file.delete(account_id, id).await,
            Self::Shared(database) => database.delete(account_id, id).await,
        }
    }

    fn settings(&self) -> &Settings {
        match self {
            Self::File(file) => &file.settings,
            Self::Shared(database) => database.settings(),
        }
    }
}
