//! Opening a file, or looking at the place where it would be.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};

use super::{FileError, FileKind, schema};
use crate::base::durability::Durability;

/// Well below every deadline, so that the operations waiting behind this one still finish in time.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection to a file that is there, with tables of today.
pub(crate) fn connect(path: &Path, kind: &FileKind) -> Result<Connection, FileError> {
    create(path).map_err(|source| FileError::Files {
        path: path.display().to_string(),
        source,
    })?;
    let failed = |source| FileError::Database {
        path: path.display().to_string(),
        source,
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(LOCK_TIMEOUT).map_err(failed)?;
    // Checked before anything is changed: this program must not write to tables of another version.
    check_version(path, schema::unusable(&connection).map_err(failed)?)?;
    prepare(&connection, kind.durability).map_err(failed)?;
    schema::create(&mut connection, kind.schema).map_err(failed)?;
    Ok(connection)
}

/// Creates the file for this user only; SQLite gives the files beside it the same mode.
fn create(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)?;
    }
    let mut create = OpenOptions::new();
    create.write(true).create(true).mode(0o600).open(path)?;
    Ok(())
}

/// The file is not checked for damage as a whole, which could take longer than a deadline; SQLite reports damage when it
/// reads it. The file does not shrink; deleted rows leave room for new ones.
fn prepare(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)
}

fn check_version(path: &Path, unusable: Option<u32>) -> Result<(), FileError> {
    match unusable {
        None => Ok(()),
        Some(found) => Err(FileError::OtherVersion {
            path: path.display().to_string(),
            found,
            known: schema::VERSION,
        }),
    }
}

/// A connection that only reads; `None` if the file has no tables yet.
pub(crate) fn read_only(path: &Path) -> Result<Option<Connection>, FileError> {
    let failed = |source| FileError::Database {
        path: path.display().to_string(),
        source,
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(LOCK_TIMEOUT).map_err(failed)?;
    check_version(path, schema::unusable(&connection).map_err(failed)?)?;
    let is_empty = schema::version(&connection).map_err(failed)? == 0;
    Ok((!is_empty).then_some(connection))
}

/// Checks a file without changing it, or the folder in which it would be created.
pub(crate) fn probe(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if !path.exists() {
        return probe_folder(path).map(|()| format!("{shown} will be created"));
    }
    probe_file(path)?;
    let probed = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(
        |connection| {
            Ok((
                schema::version(&connection)?,
                schema::unusable(&connection)?,
            ))
        },
    );
    let (version, unusable) = probed.map_err(|error| format!("{shown} cannot be used: {error}"))?;
    check_version(path, unusable).map_err(|error| error.to_string())?;
    Ok(format!("{shown} exists (version {version})"))
}

/// Whether this process could create a file at `path`; its folder may have to be created too.
pub(crate) fn probe_folder(path: &Path) -> Result<(), String> {
    let here = Path::new(".");
    let mut folders = path.ancestors().skip(1);
    let folder = folders.find(|folder| folder.exists()).unwrap_or(here);
    let (shown, place) = (path.display(), folder.display());
    if !folder.is_dir() {
        return Err(format!("{shown} cannot be created: {place} is no folder"));
    }
    may_write(folder, Access::EXEC_OK)
        .map_err(|error| format!("{shown} cannot be created: {error}"))
}

/// Whether this process may write to an existing file and create others beside it, as SQLite does.
pub(crate) fn probe_file(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    may_write(path, Access::READ_OK)?;
    may_write(folder.unwrap_or(Path::new(".")), Access::EXEC_OK)
}

/// Asks the system instead of reading the mode: whether this user may write, and whether the disk is mounted read-only.
fn may_write(path: &Path, besides: Access) -> Result<(), String> {
    access(path, Access::WRITE_OK | besides).map_err(|error| {
        let (shown, error) = (path.display(), io::Error::from(error));
        format!("{shown} cannot be written by this user ({error})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_created_where_this_user_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/tollgate.db");
        assert_eq!(probe_folder(&file), Ok(()));
        std::fs::write(folder.path().join("a"), "").unwrap();
        let refused = probe_folder(&file).unwrap_err();
        assert!(refused.contains("is no folder"), "{refused}");
    }
}
