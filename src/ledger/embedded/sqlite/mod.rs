//! The database file and its statements.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, params};

mod accounts;
pub mod audit;
mod books;
pub mod calls;
pub mod days;
mod load;
mod open;
pub mod pages;

pub use open::{probe, probe_folder, read_only as open_to_read};

use self::days::Sums;
use crate::{config::Durability, ledger::OpenError, money::NanoUsd};

/// How much a trial writes: more than what a batch of charges takes.
const TRIAL_BYTES: u32 = 256 << 10;

/// The connection that changes things.
pub struct Database {
    connection: Connection,
    /// What the open transaction leaves of grants. Written once at its end: a busy account draws
    /// on one grant hundreds of times in a batch.
    left: RefCell<HashMap<Arc<str>, NanoUsd>>,
    sums: RefCell<Sums>,
    /// Held for as long as the database is open; the system lets go of it when a process dies.
    _lock: File,
}

impl Database {
    /// Opens a database, bringing its tables up to date, and takes it for this process alone.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        let lock = open::lock_beside(path)?;
        let connection = open::connect(path, durability)?;
        Ok(Self {
            connection,
            left: RefCell::default(),
            sums: RefCell::default(),
            _lock: lock,
        })
    }

    /// Opens the transaction that the next steps belong to.
    pub fn begin(&self) -> rusqlite::Result<()> {
        self.left.borrow_mut().clear();
        self.sums.borrow_mut().begin();
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        Ok(())
    }

    pub fn commit(&self) -> rusqlite::Result<()> {
        self.write_what_is_left()?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.sums.borrow_mut().committed();
        Ok(())
    }

    /// Brings the grants up to date within the open transaction.
    pub fn write_what_is_left(&self) -> rusqlite::Result<()> {
        let mut update = self
            .connection
            .prepare_cached("UPDATE credit_grants SET remaining = ?2 WHERE id = ?1")?;
        for (grant_id, remaining) in self.left.borrow_mut().drain() {
            update.execute(params![grant_id, remaining.nanos()])?;
        }
        Ok(())
    }

    /// What all grants of an account have left, less what it owes.
    pub fn total(&self, account_id: &str) -> rusqlite::Result<i64> {
        audit::total(&self.connection, account_id)
    }

    /// Ends a transaction that failed; SQLite may have ended it already.
    pub fn roll_back(&self) {
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    /// Writes something and takes it back, to see whether the disk takes it. The room it needed
    /// stays with the database.
    pub fn try_to_write(&self) -> rusqlite::Result<()> {
        let trial = format!(
            "BEGIN IMMEDIATE;
             CREATE TABLE trial (bytes BLOB) STRICT;
             INSERT INTO trial VALUES (zeroblob({TRIAL_BYTES}));
             DROP TABLE trial;
             COMMIT"
        );
        let tried = self.connection.execute_batch(&trial);
        if tried.is_err() {
            self.roll_back();
        }
        tried
    }

    #[cfg(test)]
    pub fn limit_pages(&self, pages: Option<u32>) -> rusqlite::Result<()> {
        let most = pages.unwrap_or(u32::MAX >> 1);
        let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        self.connection
            .query_row(&format!("PRAGMA max_page_count = {most}"), [], set)
            .map(|_| ())
    }
}

/// Looks things up on connections of its own, beside the writer.
#[derive(Clone)]
pub struct Reader(PathBuf);

impl Reader {
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Runs a query away from the threads that serve requests.
    pub async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let path = self.0.clone();
        let done = tokio::task::spawn_blocking(move || query(&open::read_only(&path)?));
        done.await.unwrap_or(Err(rusqlite::Error::InvalidQuery))
    }
}

fn unreadable(column: usize, what: &str) -> rusqlite::Error {
    let message = format!("{what} is none that this version knows");
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, message.into())
}
