//! Opening the database file: one process, a sound file, tables of today.

use std::{
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, OpenFlags,
    trace::{TraceEvent, TraceEventCodes},
};

use crate::{config::Durability, ledger::OpenError, migrations};

pub use crate::migrations::seen as version;

/// One after the other, each once: the database remembers how many it has seen.
const MIGRATIONS: [&str; 10] = [
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
];

const LOCK_PATIENCE: Duration = Duration::from_millis(100);
/// How long a start waits for a file that is in use.
const IN_USE_PATIENCE: Duration = Duration::from_secs(2);
const IN_USE_INTERVAL: Duration = Duration::from_millis(10);

/// A connection to a file that is sound and up to date.
pub fn connect(path: &Path, durability: Durability) -> Result<Connection, OpenError> {
    let failed = |source| OpenError::Database {
        path: path.display().to_string(),
        source,
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    prepare(&connection, durability).map_err(failed)?;
    check_version(path, migrations::seen(&connection).map_err(failed)?)?;
    migrations::bring_up_to_date(&mut connection, &MIGRATIONS).map_err(failed)?;
    Ok(connection)
}

/// A connection that only looks.
pub fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
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

/// Keeps a second process out. The lock is on a file of its own, because SQLite's locks on the
/// database would shut out our own readers as well.
pub fn lock_beside(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Files {
        path: path.display().to_string(),
        source,
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    // Made for this user alone; the files that SQLite puts beside it take over its mode.
    let mut create = OpenOptions::new();
    let create = create.write(true).create(true).mode(0o600);
    create.open(path).map_err(failed)?;
    let lock = create.open(lock_file(path)).map_err(failed)?;
    let started = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            // Whoever has just let go of it may have begun a process that still has it for a moment.
            Err(TryLockError::WouldBlock) if started.elapsed() < IN_USE_PATIENCE => {
                std::thread::sleep(IN_USE_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    path: path.display().to_string(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
}

fn lock_file(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    beside.into()
}

fn prepare(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What a statement of many rows would take back is kept in memory, and in no file of its own.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Only a stranger can hold the lock that we wait for: whoever wants to charge tries again.
    connection.busy_timeout(LOCK_PATIENCE)?;
    check_soundness(connection)
}

/// A damaged file is better found now than in the middle of a charge.
fn check_soundness(connection: &Connection) -> rusqlite::Result<()> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(verdict)))
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
    let lock = File::open(lock_file(path));
    if lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))) {
        return Ok(format!("{shown} is in use by a running gateway"));
    }
    let looked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(
        |connection| check_soundness(&connection).and_then(|()| migrations::seen(&connection)),
    );
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
