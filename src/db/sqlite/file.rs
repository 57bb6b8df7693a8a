//! A connection to an SQLite file that is opened when it is needed, and again after each failure.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::{FileError, FileKind, open};

/// An SQLite file and its connection, if it is open.
pub(crate) struct File {
    path: PathBuf,
    kind: FileKind,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    file: FileId,
}

/// Device and inode.
type FileId = (u64, u64);

impl File {
    /// Does not open the file yet.
    pub(crate) fn new(path: &Path, kind: FileKind) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            open: None,
        }
    }

    /// Runs `work` with the connection. If it fails, the connection is closed, and the next call opens a new one.
    pub(crate) fn run<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, FileError> {
        let mut open = self.take_or_open()?;
        let done = work(&mut open.connection).map_err(|source| FileError::Database {
            path: self.path.display().to_string(),
            source,
        })?;
        // Only now: after an error or a panic the connection must stay closed.
        self.open = Some(open);
        Ok(done)
    }

    fn take_or_open(&mut self) -> Result<Open, FileError> {
        let file = file_id(&self.path);
        match self.open.take() {
            Some(open) if Some(open.file) == file => return Ok(open),
            // SQLite would continue to write to a file that was deleted or replaced, and these writes would be lost at
            // the next start. The old connection is closed first, because closing it removes the `-wal` and `-shm`
            // files by their names.
            gone => drop(gone),
        }
        let connection = open::connect(&self.path, &self.kind)?;
        let file = file_id(&self.path).ok_or_else(|| FileError::Files {
            path: self.path.display().to_string(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        Ok(Open { connection, file })
    }
}

fn file_id(path: &Path) -> Option<FileId> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}
