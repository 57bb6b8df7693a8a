//! Opening the database file: one process, a sound file, tables of today.

use std::{path::Path, time::Duration};

use rusqlite::{
    Connection, OpenFlags,
    trace::{TraceEvent, TraceEventCodes},
};

use super::{files::is_linked, lock::is_taken};
use crate::{
    base::durability::Durability,
    db::sqlite::{probe_folder, schema},
    ledger::OpenError,
};

const SCHEMA: &str = include_str!("../schema.sql");

/// How many pages are written beside the database before they are taken over into it: most are written again
/// and again until then.
pub const CHECKPOINT_PAGES: u32 = 4_000;
/// For the connection that writes, in KiB, which SQLite wants as a negative number: what waits to be entered and what that
/// touches, so that neither is read again. It is taken as it is needed.
const WRITER_CACHE: i32 = -6_144;
/// For a connection that is there for one look.
const READER_CACHE: i32 = -512;
pub const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Opens the file and creates its tables if it is new; also returns whether the whole file was checked for damage.
/// `is_as_left` skips that check: the file is as the last process closed it.
pub fn connect(
    path: &Path,
    durability: Durability,
    is_as_left: bool,
) -> Result<(Connection, bool), OpenError> {
    let failed = |source| OpenError::Database {
        path: path.display().to_string(),
        source,
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    prepare(&connection, durability).map_err(failed)?;
    check_version(path, schema::version(&connection).map_err(failed)?)?;
    let checks = !is_as_left;
    if checks {
        check_soundness(&connection).map_err(failed)?;
    }
    schema::create(&mut connection, SCHEMA).map_err(failed)?;
    // The accounts of all rows written from here on are in memory and are never deleted, so a look-up for each row
    // would find nothing wrong. An audit reports a charge without an account.
    let trusted = connection.pragma_update(None, "foreign_keys", false);
    trusted.map_err(failed)?;
    Ok((connection, checks))
}

/// A connection that only looks.
pub fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "cache_size", READER_CACHE)?;
    tell_of_statements(&mut connection)?;
    Ok(connection)
}

/// For who wants to know what is asked for (`log.level = "tollgate::sql=trace"`); nobody else pays for it.
fn tell_of_statements(connection: &mut Connection) -> rusqlite::Result<()> {
    if !tracing::enabled!(target: "tollgate::sql", tracing::Level::TRACE) {
        return Ok(());
    }
    let tell = |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(statement, _) = event {
            let statement = statement.expanded_sql().unwrap_or_default();
            tracing::trace!(target: "tollgate::sql", %statement);
        }
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(tell))
}

fn prepare(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    set_checkpoint(connection, CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "cache_size", WRITER_CACHE)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Only a stranger can hold the lock that we wait for: whoever wants to charge tries again.
    connection.busy_timeout(LOCK_TIMEOUT)
}

/// After how many pages they are taken over; zero for never.
pub fn set_checkpoint(connection: &Connection, pages: u32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", pages)
}

/// A damaged file is better found now than in the middle of a charge.
pub fn check_soundness(connection: &Connection) -> rusqlite::Result<()> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(verdict)))
}

/// Whether it is the file that is at fault, and not the moment.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase)
    )
}

fn check_version(path: &Path, found: u32) -> Result<(), OpenError> {
    if schema::is_usable(found) {
        return Ok(());
    }
    Err(OpenError::TooNew {
        path: path.display().to_string(),
        found,
        known: schema::VERSION,
    })
}

/// Looks at a database without changing it, or at the place where it would be made.
pub fn probe(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if !path.exists() {
        return probe_folder(path).map(|()| format!("{shown} will be created"));
    }
    if is_taken(path) {
        return Ok(format!("{shown} is in use by a running gateway"));
    }
    if path.metadata().is_ok_and(|file| is_linked(&file)) {
        let path = path.display().to_string();
        return Err(OpenError::Linked { path }.to_string());
    }
    let looked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(
        |connection| check_soundness(&connection).and_then(|()| schema::version(&connection)),
    );
    let version = looked.map_err(|error| format!("{shown} cannot be used: {error}"))?;
    check_version(path, version).map_err(|error| error.to_string())?;
    Ok(format!("{shown} exists (version {version})"))
}
