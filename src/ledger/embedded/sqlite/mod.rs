//! The database file and its statements.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rusqlite::Connection;

mod accounts;
pub mod audit;
mod books;
pub mod calls;
pub mod days;
mod fresh;
mod load;
pub mod lock;
mod new_calls;
mod open;
pub mod pages;
mod record;
mod rows;

pub use open::{check_soundness, is_damage, probe, probe_folder, read_only as open_to_read};

use self::{lock::Lock, new_calls::News};
use crate::{config::Durability, ledger::OpenError};

/// How much a trial writes: more than what a batch of charges takes.
const TRIAL_BYTES: u32 = 256 << 10;

/// The connection that changes things.
pub struct Database {
    connection: Connection,
    news: RefCell<News>,
    /// The last to be dropped.
    lock: Lock,
}

impl Database {
    /// Opens a database, bringing its tables up to date, and takes it for this process alone.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        let lock = Lock::take(path)?;
        let (connection, checked) = open::connect(path, durability, lock.finds_it_as_left())?;
        lock.sound.store(checked, Relaxed);
        Ok(Self {
            connection,
            news: RefCell::default(),
            lock,
        })
    }

    /// Whether it has been looked through: what is as the last process left it is used before that.
    pub fn sound(&self) -> &Arc<AtomicBool> {
        &self.lock.sound
    }

    /// Opens the transaction that the next steps belong to.
    pub fn begin(&self) -> rusqlite::Result<()> {
        self.news.borrow_mut().begin();
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        Ok(())
    }

    pub fn commit(&self) -> rusqlite::Result<()> {
        self.write_news()?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        let news = self.news.borrow();
        if news.is_empty() {
            news.behind.store(false, Relaxed);
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
pub struct Reader {
    path: PathBuf,
    behind: Arc<AtomicBool>,
}

impl Reader {
    pub fn new(path: &Path, writer: &Database) -> Self {
        Self {
            path: path.to_owned(),
            behind: writer.news.borrow().behind.clone(),
        }
    }

    /// Whether there are calls that could not be entered yet.
    pub fn is_behind(&self) -> bool {
        self.behind.load(Relaxed)
    }

    /// Runs a query, with calls that could not be entered among the others.
    pub async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let behind = self.behind.clone();
        self.query_file(move |connection| {
            if !behind.load(Relaxed) {
                return query(connection);
            }
            let moment = connection.unchecked_transaction()?;
            fresh::show(&moment)?;
            query(&moment)
        })
        .await
    }

    /// Runs a query on the file as it is, away from the threads that serve requests.
    pub async fn query_file<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || query(&open::read_only(&path)?));
        done.await.unwrap_or(Err(rusqlite::Error::InvalidQuery))
    }
}

fn unreadable(column: usize, what: &str) -> rusqlite::Error {
    let message = format!("{what} is none that this version knows");
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, message.into())
}
