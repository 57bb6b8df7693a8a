//! Opening a file, or looking at the place where it would be.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use super::{FileError, FileKind, schema};
use crate::base::durability::Durability;

/// Well below every deadline, so that the operations waiting behind this one still finish in time.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection to a file that is there, with tables of today.
pub fn connect(path: &Path, kind: &FileKind) -> Result<Connection, FileError> {
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
    // Before anything is changed: a newer file may need what this version does not know.
    check_version(path, schema::version(&connection).map_err(failed)?)?;
    prepare(&connection, kind.durability).map_err(failed)?;
    schema::create(&mut connection, kind.schema).map_err(failed)?;
    Ok(connection)
}

/// Made for this user alone; the files that SQLite puts beside it take over its mode.
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

/// The whole file is not looked through for damage, which could take longer than a deadline; SQLite
/// says so when it meets some. The file does not shrink, but what was deleted makes room for what
/// comes.
fn prepare(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)
}

fn check_version(path: &Path, found: u32) -> Result<(), FileError> {
    if schema::is_usable(found) {
        return Ok(());
    }
    Err(FileError::TooNew {
        path: path.display().to_string(),
        found,
        known: schema::VERSION,
    })
}

/// Looks at a file, or at the place where it would be made; changes nothing.
pub fn probe(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if !path.exists() {
        return probe_folder(path).map(|()| format!("{shown} will be created"));
    }
    let looked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|connection| schema::version(&connection));
    let version = looked.map_err(|error| format!("{shown} cannot be used: {error}"))?;
    check_version(path, version).map_err(|error| error.to_string())?;
    Ok(format!("{shown} exists (version {version})"))
}

/// Whether a file could be made in the folder of `path`, or the folder itself.
pub fn probe_folder(path: &Path) -> Result<(), String> {
    let here = Path::new(".");
    let mut folders = path.ancestors().skip(1);
    let folder = folders.find(|folder| folder.exists()).unwrap_or(here);
    let writable = folder
        .metadata()
        .is_ok_and(|metadata| metadata.is_dir() && !metadata.permissions().readonly());
    if writable {
        return Ok(());
    }
    let (path, folder) = (path.display(), folder.display());
    Err(format!(
        "{path} cannot be created: {folder} is no folder to write in"
    ))
}
