//! Stored responses of `/v1/responses`: what `previous_response_id` leads to.
//!
//! Storage is best-effort, and apart from the ledger: a file of its own, owned by a thread of its
//! own. When it fails, whoever asks hears so within a deadline, and nothing else is held up. What
//! failed is opened anew at the next use, so it heals without a restart.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

mod health;
mod open;
mod responses;
mod storage;
#[cfg(test)]
mod tests;
mod worker;

use self::{storage::Storage, worker::Worker};
use crate::ledger::clock::Clock;

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
    /// How many uses may wait for the thread.
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
    #[error("{path} cannot be used: {source}")]
    Files {
        path: String,
        source: std::io::Error,
    },
    #[error("{path} cannot be used: {source}")]
    Database {
        path: String,
        source: rusqlite::Error,
    },
    #[error("{path} was written by a newer tollgate (version {found}, this one knows {known})")]
    TooNew {
        path: String,
        found: usize,
        known: usize,
    },
    #[error("too much is waiting for it")]
    QueueFull,
    #[error("it has stopped")]
    Stopped,
}

/// Looks at the file beside a ledger's database, or at the place where it would be made; changes
/// nothing.
pub fn probe(database: &Path) -> Result<String, String> {
    open::probe(&path_beside(database))
}

/// `data/tollgate.db` → `data/tollgate.responses.db`
fn path_beside(database: &Path) -> PathBuf {
    database.with_extension("responses.db")
}

pub struct Conversations {
    worker: Worker,
    clock: Clock,
    settings: Settings,
}

impl Conversations {
    /// Beside the ledger's database, which one gateway alone has open.
    ///
    /// Never fails: what cannot be opened now is tried again at each use.
    pub fn beside(database: &Path) -> Self {
        Self::open(&path_beside(database), SETTINGS, Clock::System)
    }

    fn open(path: &Path, settings: Settings, clock: Clock) -> Self {
        let upkeep = {
            let clock = clock.clone();
            move |connection: &mut rusqlite::Connection| {
                responses::sweep(connection, clock.now_ms() - settings.retention_ms)
            }
        };
        Self {
            worker: Worker::start(Storage::new(path), settings, upkeep),
            clock,
            settings,
        }
    }

    /// Stores a record and evicts what is then too many, in one transaction.
    ///
    /// Of two records with the same ID the first is kept. An error may come after the record was
    /// stored: nobody knows of it, and it goes with time.
    pub async fn store(&self, record: Record) -> Result<Kept, StorageError> {
        if record.response.len() + record.input.len() > self.settings.record_bytes {
            return Ok(Kept::TooLarge);
        }
        let (clock, settings) = (self.clock.clone(), self.settings);
        self.worker
            .run(move |connection| responses::store(connection, &record, &settings, clock.now_ms()))
            .await?;
        Ok(Kept::Stored)
    }

    /// `None` for missing, expired, evicted and another account's alike.
    pub async fn find(&self, account_id: &str, id: &str) -> Result<Option<Record>, StorageError> {
        let (account_id, id) = (account_id.to_owned(), id.to_owned());
        let (clock, retention_ms) = (self.clock.clone(), self.settings.retention_ms);
        self.worker
            .run(move |connection| {
                let expired_ms = clock.now_ms() - retention_ms;
                responses::find(connection, &account_id, &id, expired_ms)
            })
            .await
    }

    /// Whether there was one to delete; only its owner's is.
    pub async fn delete(&self, account_id: &str, id: &str) -> Result<bool, StorageError> {
        let (account_id, id) = (account_id.to_owned(), id.to_owned());
        let (clock, retention_ms) = (self.clock.clone(), self.settings.retention_ms);
        self.worker
            .run(move |connection| {
                let expired_ms = clock.now_ms() - retention_ms;
                responses::delete(connection, &account_id, &id, expired_ms)
            })
            .await
    }
}
