//! The lock that gives one process the database, with a note of how the last process left the file.
//!
//! The lock is on a separate file, because a lock on the database itself would exclude our own readers as well. A
//! process that closes the database properly writes the database's size and time of change into the lock file.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::files::{id, is_linked};
use crate::ledger::OpenError;

/// How long a start waits for a database that is in use.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(2);
const IN_USE_INTERVAL: Duration = Duration::from_millis(10);

/// Held while the database is open; the operating system releases it when the process dies. Dropped after the database
/// is closed, it notes how the database was left.
pub(crate) struct Lock {
    file: File,
    database: PathBuf,
    /// Device and inode of the database.
    id: (u64, u64),
    /// The database was opened, and no damage was found since. Otherwise nothing is noted.
    pub usable: Arc<AtomicBool>,
}

impl Lock {
    pub(crate) fn take(database: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Files {
            path: database.display().to_string(),
            source,
        };
        if let Some(folder) = database
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        // Created for this user alone; the files that SQLite creates beside it get the same mode.
        let mut create = OpenOptions::new();
        let create = create.read(true).write(true).create(true).mode(0o600);
        let opened = create.open(database).map_err(failed)?;
        let metadata = opened.metadata().map_err(failed)?;
        drop(opened);
        if is_linked(&metadata) {
            let path = database.display().to_string();
            return Err(OpenError::Linked { path });
        }
        // Symbolic links resolved, because SQLite creates its own files beside the target.
        let database = database.canonicalize().map_err(failed)?;
        let file = create.open(beside(&database, ".lock")).map_err(failed)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // A child process of the previous holder may have the lock for a moment longer.
                Err(TryLockError::WouldBlock) if started.elapsed() < IN_USE_TIMEOUT => {
                    std::thread::sleep(IN_USE_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenError::InUse {
                        path: database.display().to_string(),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        Ok(Self {
            file,
            database,
            id: id(&metadata),
            usable: Arc::default(),
        })
    }

    /// Path of the database with symbolic links resolved.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Whether the database is unchanged since it was closed. The note is erased: it is valid once.
    pub(crate) fn finds_it_as_left(&self) -> bool {
        let mut noted = String::new();
        let read = (&self.file).read_to_string(&mut noted);
        let is_erased = self.file.set_len(0).is_ok();
        is_erased && read.is_ok() && self.state().is_some_and(|state| state == noted)
    }

    /// A description that changes with the database; `None` if the write-ahead log is not empty, or if the file was
    /// replaced.
    fn state(&self) -> Option<String> {
        let log = std::fs::metadata(beside(&self.database, "-wal"));
        if log.is_ok_and(|log| log.len() > 0) {
            return None;
        }
        let file = std::fs::metadata(&self.database).ok()?;
        if id(&file) != self.id {
            return None;
        }
        let (size, inode) = (file.len(), file.ino());
        let (seconds, nanos) = (file.ctime(), file.ctime_nsec());
        Some(format!("closed {inode} {size} {seconds}.{nanos:09}\n"))
    }

    fn note(&mut self) -> Option<()> {
        let state = self.state()?;
        self.file.rewind().ok()?;
        self.file.write_all(state.as_bytes()).ok()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without a note the next start checks the whole file.
        if self.usable.load(Relaxed) {
            let _ = self.note();
        }
    }
}

/// Whether a process has the database open.
pub(crate) fn is_taken(database: &Path) -> bool {
    let database = database.canonicalize();
    let lock = database.and_then(|database| File::open(beside(&database, ".lock")));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut beside = database.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}
