//! Queries of the file on connections of their own, beside the writer.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rusqlite::Connection;
use tokio_util::task::TaskTracker;

use super::{Database, files::Files, open};

/// After how many steps of a query SQLite asks whether to go on: a fraction of a millisecond.
const STEPS: i32 = 10_000;
/// How long a stop waits for queries, which end as soon as they are cancelled.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Reader {
    path: PathBuf,
    files: Arc<Files>,
    running: TaskTracker,
}

/// Cancels a query when its caller no longer waits for the result.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Reader {
    pub(crate) fn new(path: &Path, database: &Database) -> Self {
        Self {
            path: path.to_owned(),
            files: database.files.clone(),
            running: TaskTracker::new(),
        }
    }

    /// Runs a query in one snapshot of the file: a call is either posted or in the redo log, never in both.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        self.query_file(move |connection| query(&*connection.unchecked_transaction()?))
            .await
    }

    /// The database's path, if it still leads to the files that the writer has open.
    pub(crate) fn readable_path(&self) -> rusqlite::Result<&Path> {
        self.files.check_readable()?;
        Ok(&self.path)
    }

    /// Runs a query on a blocking thread, away from those that serve requests. Dropping the future cancels it.
    pub(crate) async fn query_file<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let reader = self.clone();
        let is_cancelled = Arc::<AtomicBool>::default();
        let _cancel = CancelOnDrop(is_cancelled.clone());
        let done = self.running.spawn_blocking(move || {
            let path = reader.readable_path()?;
            let mut connection = open::read_only(path)?;
            connection.progress_handler(STEPS, Some(move || is_cancelled.load(Relaxed)))?;
            query(&connection)
        });
        done.await.unwrap_or(Err(rusqlite::Error::InvalidQuery))
    }

    /// Waits, for a bounded time, until cancelled queries have ended. An open connection would keep the file from being
    /// closed properly, and the next process would have to check it first.
    pub(crate) async fn close(&self) {
        self.running.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.running.wait()).await;
    }
}
