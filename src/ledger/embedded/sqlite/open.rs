//! Opening the database file: one process, an undamaged file, the current schema.

use std::{path::Path, time::Duration};

use rusqlite::{
    Connection, OpenFlags,
    trace::{TraceEvent, TraceEventCodes},
};

use super::{files::is_linked, lock::is_taken};
use crate::{
    base::durability::Durability,
    db::sqlite::{probe_file, probe_folder, schema},
    ledger::OpenError,
};

const SCHEMA: &str = include_str!("../schema.sql");

/// After how many pages of write-ahead log they are copied into the database: most pages are rewritten many times
/// before.
pub(crate) const CHECKPOINT_PAGES: u32 = 4_000;
/// Cache of the writer's connection in KiB, which SQLite takes as a negative number: enough for the redo log and the
/// pages that posting it changes, so that neither is read again. Memory is allocated as needed.
const WRITER_CACHE: i32 = -6_144;
/// Cache of a connection for one query.
const READER_CACHE: i32 = -512;
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Opens the file and creates its tables if it is new; also returns whether the whole file was checked for damage.
/// `is_as_left` skips that check: the file is as the last process closed it.
pub(crate) fn connect(
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
    check_version(path, &connection)?;
    let checks = !is_as_left;
    if checks {
        check_soundness(&connection).map_err(failed)?;
        // The check has read the whole file through the cache.
        let emptied = connection.execute_batch("PRAGMA shrink_memory");
        emptied.map_err(failed)?;
    }
    schema::create(&mut connection, SCHEMA).map_err(failed)?;
    // All rows written from here on belong to accounts that are in memory and are never deleted, so checking each row
    // would find nothing. An audit reports a charge without an account.
    let trusted = connection.pragma_update(None, "foreign_keys", false);
    trusted.map_err(failed)?;
    Ok((connection, checks))
}

/// Opens a read-only connection.
pub(crate) fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "cache_size", READER_CACHE)?;
    log_statements(&mut connection)?;
    Ok(connection)
}

/// Logs every statement if `log.level = "tollgate::sql=trace"`; otherwise it costs nothing.
fn log_statements(connection: &mut Connection) -> rusqlite::Result<()> {
    if !tracing::enabled!(target: "tollgate::sql", tracing::Level::TRACE) {
        return Ok(());
    }
    let log = |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(statement, _) = event {
            let statement = statement.expanded_sql().unwrap_or_default();
            tracing::trace!(target: "tollgate::sql", %statement);
        }
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(log))
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
    // Only another program can hold the lock; charges that time out are retried.
    connection.busy_timeout(LOCK_TIMEOUT)
}

/// Sets after how many pages the write-ahead log is copied into the database; zero for never.
pub(crate) fn set_checkpoint(connection: &Connection, pages: u32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", pages)
}

/// Checks the whole file for damage, which is better found now than in the middle of a charge.
pub(crate) fn check_soundness(connection: &Connection) -> rusqlite::Result<()> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(verdict)))
}

/// Whether the error means that the file is damaged, rather than a temporary failure.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase)
    )
}

pub(crate) fn check_version(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let path = path.display().to_string();
    match schema::unusable(connection) {
        Ok(None) => Ok(()),
        Ok(Some(found)) => Err(OpenError::OtherVersion {
            path,
            found,
            known: schema::VERSION,
        }),
        Err(source) => Err(OpenError::Database { path, source }),
    }
}

/// Checks a database without changing it, or the folder in which it would be created.
pub(crate) fn probe(path: &Path) -> Result<String, String> {
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
    probe_file(path)?;
    let failed = |error| format!("{shown} cannot be used: {error}");
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = connection.map_err(failed)?;
    check_soundness(&connection).map_err(failed)?;
    check_version(path, &connection).map_err(|error| error.to_string())?;
    let version = schema::version(&connection).map_err(failed)?;
    Ok(format!("{shown} exists (version {version})"))
}
