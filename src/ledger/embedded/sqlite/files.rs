//! Checks whether the database's files are still those that were opened.
//!
//! SQLite keeps writing to a file that was moved, deleted or replaced, and whatever it writes there is lost for the
//! next process that opens the path. A file with a second name (hard link) can be opened by that name past our lock and
//! with another write-ahead log, which damages it. There is no notification, so the files are checked from time to
//! time.

use std::{
    fs::Metadata,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::ledger::Misplaced;

/// Device and inode.
type FileId = (u64, u64);

pub(crate) fn id(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

pub(crate) fn is_linked(file: &Metadata) -> bool {
    file.nlink() > 1
}

/// The files of an open database as they were when it was opened.
pub(crate) struct Files {
    database: (PathBuf, FileId),
    /// The write-ahead log and the lock file.
    beside: Vec<(PathBuf, FileId)>,
}

impl Files {
    /// `path` is the configured path of the database; it may contain symbolic links, which may be changed too.
    pub(crate) fn opened(path: &Path, beside: [PathBuf; 2]) -> io::Result<Self> {
        let found = |path: PathBuf| -> io::Result<(PathBuf, FileId)> {
            let id = id(&path.metadata()?);
            Ok((path, id))
        };
        Ok(Self {
            database: found(path.to_owned())?,
            // There is no write-ahead log if the file system does not support one.
            beside: beside.into_iter().flat_map(found).collect(),
        })
    }

    /// What is wrong with the files, if anything.
    pub(crate) fn misplaced(&self) -> Option<Misplaced> {
        let (path, opened) = &self.database;
        match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Misplaced::Moved),
            // It cannot be compared at present; writing to it will show what is wrong.
            Err(_) => return None,
            Ok(file) if id(&file) != *opened => return Some(Misplaced::Replaced),
            Ok(file) if is_linked(&file) => return Some(Misplaced::Linked),
            Ok(_) => {}
        }
        let is_there = |(path, opened): &(PathBuf, FileId)| match path.metadata() {
            Ok(file) => id(&file) == *opened,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        (!self.beside.iter().all(is_there)).then_some(Misplaced::Companion)
    }

    /// Fails if a new connection would open other files than the writer has open: it would read wrong data, and could
    /// change the index of the write-ahead log under the writer.
    pub(crate) fn check_readable(&self) -> rusqlite::Result<()> {
        match self.misplaced() {
            None | Some(Misplaced::Linked) => Ok(()),
            Some(misplaced) => {
                let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
                let reason = Some(misplaced.to_string());
                Err(rusqlite::Error::SqliteFailure(error, reason))
            }
        }
    }
}
