//! Opening the database file: one process, a sound file, tables of today.

use std::{path::Path, time::Duration};

use rusqlite::{
    Connection, OpenFlags,
    backup::Backup,
    trace::{TraceEvent, TraceEventCodes},
};

use super::{files::is_linked, lock::is_taken, upgrade::put_rows_into_blocks};
use crate::{
    base::durability::Durability,
    db::{migrations, sqlite::probe_folder},
    ledger::OpenError,
};

/// One after the other, each once: the database remembers how many it has seen.
const MIGRATIONS: [&str; 13] = [
    include_str!("../migrations/1_accounts.sql"),
    include_str!("../migrations/2_limits.sql"),
    include_str!("../migrations/3_credit.sql"),
    include_str!("../migrations/4_calls.sql"),
    include_str!("../migrations/5_attempts.sql"),
    include_str!("../migrations/6_steps.sql"),
    include_str!("../migrations/7_decisions.sql"),
    include_str!("../migrations/8_usage_days.sql"),
    include_str!("../migrations/9_new_calls.sql"),
    include_str!("../migrations/10_records.sql"),
    include_str!("../migrations/11_blocks.sql"),
    include_str!("../migrations/12_pages.sql"),
    include_str!("../migrations/13_prices.sql"),
];
/// The version that has calls in rows of many: until then the file is changed from end to end.
const IN_BLOCKS: i64 = 11;

/// How many pages are written beside the database before they are taken over into it: most are written again
/// and again until then.
pub const CHECKPOINT_PAGES: u32 = 4_000;
/// For the connection that writes, in KiB, which SQLite wants as a negative number: what waits to be entered and what that
/// touches, so that neither is read again. It is taken as it is needed.
const WRITER_CACHE: i32 = -6_144;
/// For a connection that is there for one look.
const READER_CACHE: i32 = -512;
pub const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection to a file that is up to date; and whether it was looked through. One that is as it was left need not
/// be, unless it is about to be changed from end to end.
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
    let version = migrations::seen(&connection).map_err(failed)?;
    check_version(path, version)?;
    let checks = !is_as_left || i64::try_from(version).is_ok_and(|version| version < IN_BLOCKS);
    if checks {
        check_soundness(&connection).map_err(failed)?;
    }
    bring_up_to_date(&mut connection).map_err(failed)?;
    // What is written down from now on is of accounts that are in memory, and none is ever deleted: to look each of them
    // up for every row would find nothing. An audit notices a charge of an account that is not there.
    let trusted = connection.pragma_update(None, "foreign_keys", false);
    trusted.map_err(failed)?;
    Ok((connection, checks))
}

fn bring_up_to_date(connection: &mut Connection) -> rusqlite::Result<()> {
    migrations::bring_up_to_date_with(
        connection,
        &MIGRATIONS,
        |version, connection| match version {
            IN_BLOCKS => put_rows_into_blocks(connection),
            _ => Ok(()),
        },
    )
}

/// A file of an earlier version is looked at in a copy that is brought up to date: it stays as it is.
pub fn look_at<T>(
    path: &Path,
    look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let connection = read_only(path)?;
    // What no version of ours has seen is not ours.
    if !(1..MIGRATIONS.len()).contains(&migrations::seen(&connection)?) {
        return look(&connection);
    }
    let mut copy = Connection::open("")?; // a file that nobody sees, and that goes with it
    // In one step: whoever writes between two would have it begin again.
    Backup::new(&connection, &mut copy)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    bring_up_to_date(&mut copy)?;
    look(&copy)
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

fn check_version(path: &Path, found: usize) -> Result<(), OpenError> {
    let known = MIGRATIONS.len();
    if found <= known {
        return Ok(());
    }
    let path = path.display().to_string();
    Err(OpenError::TooNew { path, found, known })
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
        |connection| check_soundness(&connection).and_then(|()| migrations::seen(&connection)),
    );
    let version = looked.map_err(|error| format!("{shown} cannot be used: {error}"))?;
    check_version(path, version).map_err(|error| error.to_string())?;
    Ok(format!("{shown} exists (version {version})"))
}
