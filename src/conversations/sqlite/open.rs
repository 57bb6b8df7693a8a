//! Opening the file of stored responses.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use super::Cause;
use crate::migrations;

/// One after the other, each once: the file remembers how many it has seen.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/1_responses.sql")];

/// Well below the deadline: whoever waits behind still gets an answer.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// A connection to a file that is there, with tables of today.
pub fn connect(path: &Path) -> Result<Connection, Cause> {
    create(path).map_err(|source| Cause::Files {
        path: path.display().to_string(),
        source,
    })?;
    let failed = |source| Cause::Database {
        path: path.display().to_string(),
        source,
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(LOCK_PATIENCE).map_err(failed)?;
    // Before anything is changed: a newer file may need what this version does not know.
    check_version(path, migrations::seen(&connection).map_err(failed)?)?;
    prepare(&connection).map_err(failed)?;
    migrations::bring_up_to_date(&mut connection, &MIGRATIONS).map_err(failed)?;
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

/// A flush only now and then: a power cut may take the last responses with it, and the ledger
/// does not wait for the disk behind them.
///
/// The whole file is not looked through for damage, which could take longer than the deadline;
/// SQLite says so when it meets some. The file does not shrink, but what was deleted makes room
/// for what comes: it stays at the size of the most that was ever kept, at most some 260 MB.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")
}

fn check_version(path: &Path, found: usize) -> Result<(), Cause> {
    let known = MIGRATIONS.len();
    if found <= known {
        return Ok(());
    }
    let path = path.display().to_string();
    Err(Cause::TooNew { path, found, known })
}

pub fn probe(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if !path.exists() {
        return crate::ledger::probe_folder(path).map(|()| format!("{shown} will be created"));
    }
    let looked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|connection| migrations::seen(&connection));
    let version = looked.map_err(|error| format!("{shown} cannot be used: {error}"))?;
    check_version(path, version).map_err(|error| error.to_string())?;
    Ok(format!("{shown} exists (version {version})"))
}
