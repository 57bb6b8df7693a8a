//! One process at a time; and whether the file is as the last one left it.
//!
//! The lock is on a file of its own, because SQLite's locks on the database would shut out our own readers as well.
//! A process that ends as it should writes down there how it left the database: size, and when it was changed.

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

/// How long a start waits for a file that is in use.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(2);
const IN_USE_INTERVAL: Duration = Duration::from_millis(10);

/// Held for as long as the database is open; the system lets go of it when a process dies. Dropped after the
/// database is closed, it takes note of how that was left, if it is known to be sound.
pub struct Lock {
    file: File,
    database: PathBuf,
    /// Device and inode of the database.
    id: (u64, u64),
    /// Somebody has looked through the database since it was opened, and found nothing.
    pub sound: Arc<AtomicBool>,
}

impl Lock {
    pub fn take(database: &Path) -> Result<Self, OpenError> {
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
        // Made for this user alone; the files that SQLite puts beside it take over its mode.
        let mut create = OpenOptions::new();
        let create = create.read(true).write(true).create(true).mode(0o600);
        let opened = create.open(database).map_err(failed)?;
        let metadata = opened.metadata().map_err(failed)?;
        drop(opened);
        if is_linked(&metadata) {
            let path = database.display().to_string();
            return Err(OpenError::Linked { path });
        }
        // Where SQLite has its own files, whatever leads there.
        let database = database.canonicalize().map_err(failed)?;
        let file = create.open(beside(&database, ".lock")).map_err(failed)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // Whoever has just let go of it may have begun a process that still has it for a moment.
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
            sound: Arc::default(),
        })
    }

    /// Where it is, whatever leads there.
    pub fn database(&self) -> &Path {
        &self.database
    }

    /// Whether nobody has touched the database since it was closed. The note is good for one time.
    pub fn finds_it_as_left(&self) -> bool {
        let mut noted = String::new();
        let read = (&self.file).read_to_string(&mut noted);
        let is_erased = self.file.set_len(0).is_ok();
        is_erased && read.is_ok() && self.state().is_some_and(|state| state == noted)
    }

    /// What changes with the database; none where not all that was written is in it, or where another file is in its place.
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
        // Without a note the next start looks at the whole file.
        if self.sound.load(Relaxed) {
            let _ = self.note();
        }
    }
}

/// Whether a process has the database open.
pub fn is_taken(database: &Path) -> bool {
    let database = database.canonicalize();
    let lock = database.and_then(|database| File::open(beside(&database, ".lock")));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

pub fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut beside = database.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}
