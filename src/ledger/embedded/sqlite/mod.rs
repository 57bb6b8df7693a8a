//! The SQLite file of the embedded ledger, and its statements.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rusqlite::Connection;

pub(crate) mod account_days;
mod accounts;
pub(crate) mod audit;
pub(crate) mod budgets;
pub(crate) mod calls;
pub(crate) mod days;
mod entries;
mod files;
mod held_now;
pub(crate) mod idempotency;
pub(crate) mod keys;
mod load;
pub(crate) mod lock;
mod open;
pub(crate) mod pages;
mod projects;
pub(crate) mod prune;
mod reader;
pub(crate) mod record;
pub(crate) mod redo_log;
mod redo_pages;
pub(crate) mod sessions;
pub(crate) mod spans;
mod unposted;

pub(crate) use held_now::HeldNow;
pub(crate) use lock::is_taken;
pub(crate) use open::{check_soundness, check_version, is_damage, probe, read_only};
pub(crate) use reader::Reader;

use self::{
    files::Files,
    lock::{Lock, beside},
    redo_log::RedoLog,
};
use crate::{
    base::durability::Durability,
    ledger::{Misplaced, OpenError},
};

/// How much a trial writes: more than a batch of charges.
const TRIAL_BYTES: u32 = 256 << 10;

/// The connection that writes.
pub(crate) struct Database {
    connection: Connection,
    redo_log: RefCell<RedoLog>,
    /// The bytes of all responses that are kept for retries, as of the open transaction; `None` if it must be computed.
    response_bytes: Cell<Option<i64>>,
    files: Arc<Files>,
    /// Whether the whole file was checked for damage when it was opened. A file that is as the last process left it is
    /// checked later.
    pub is_checked: bool,
    /// Must be dropped last.
    lock: Lock,
}

impl Database {
    /// Opens the database, creates its schema if it is new, and locks it for this process.
    pub(crate) fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        let lock = Lock::take(path)?;
        let (connection, is_checked) = open::connect(path, durability, lock.finds_it_as_left())?;
        lock.usable.store(true, Relaxed);
        let files = [
            beside(lock.database(), "-wal"),
            beside(lock.database(), ".lock"),
        ];
        let files = Files::opened(path, files).map_err(|source| OpenError::Files {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Self {
            connection,
            redo_log: RefCell::default(),
            response_bytes: Cell::new(None),
            files: Arc::new(files),
            is_checked,
            lock,
        })
    }

    /// Why data written now could not be found again later, if that is so.
    pub(crate) fn misplaced(&self) -> Option<Misplaced> {
        self.files.misplaced()
    }

    /// Set to `false` when damage is found: then the next process checks the file before it uses it.
    pub(crate) fn usable(&self) -> &Arc<AtomicBool> {
        &self.lock.usable
    }

    /// Begins the transaction for the next operations.
    pub(crate) fn begin(&self) -> rusqlite::Result<()> {
        self.redo_log.borrow_mut().begin();
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        Ok(())
    }

    /// Begins a transaction without waiting: fails if another connection writes, and its commit does not checkpoint the
    /// write-ahead log, which would wait for the disk. The next commit does that, once for thousands, and restarts the
    /// log.
    pub(crate) fn begin_at_once(&self) -> rusqlite::Result<()> {
        self.connection.busy_timeout(Duration::ZERO)?;
        let begun = open::set_checkpoint(&self.connection, 0).and_then(|()| self.begin());
        if begun.is_err() {
            self.end_at_once();
        }
        begun
    }

    /// Restores the timeout and checkpoints that [`Self::begin_at_once`] has turned off.
    pub(crate) fn end_at_once(&self) {
        let timeout = self.connection.busy_timeout(open::LOCK_TIMEOUT);
        let set = open::set_checkpoint(&self.connection, open::CHECKPOINT_PAGES);
        if let Err(error) = timeout.and(set) {
            tracing::warn!(%error, "timeout and checkpoints of the ledger database could not be restored");
        }
    }

    pub(crate) fn commit(&self) -> rusqlite::Result<()> {
        self.write_redo_log()?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        let mut log = self.redo_log.borrow_mut();
        log.committed();
        log.behind &= !log.is_empty();
        Ok(())
    }

    /// What all grants of an account have left, less its debt.
    pub(crate) fn total(&self, account_id: &str) -> rusqlite::Result<i64> {
        audit::total(&self.connection, account_id)
    }

    /// Rolls back a transaction that failed; SQLite may have done so already.
    pub(crate) fn roll_back(&self) {
        let _ = self.connection.execute_batch("ROLLBACK");
        self.response_bytes.set(None);
    }

    /// Writes something and removes it, to test whether the disk accepts it. The space it needed stays with the
    /// database.
    pub(crate) fn try_to_write(&self) -> rusqlite::Result<()> {
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

    /// Runs statements on the writer's connection, within its transaction.
    #[cfg(test)]
    pub(crate) fn execute(&self, statements: &str) -> rusqlite::Result<()> {
        self.connection.execute_batch(statements)
    }

    #[cfg(test)]
    pub(crate) fn limit_pages(&self, pages: Option<u32>) -> rusqlite::Result<()> {
        let most = pages.unwrap_or(u32::MAX >> 1);
        let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        self.connection
            .query_row(&format!("PRAGMA max_page_count = {most}"), [], set)
            .map(|_| ())
    }
}

fn unreadable(column: usize, what: &str) -> rusqlite::Error {
    let message = format!("{what} is unknown to this version");
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, message.into())
}
