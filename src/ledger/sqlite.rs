//! The database file: tables, migrations, statements.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Account, Grant, Key, KeyState, ModelSettings, OpenError, directory::Directory};
use crate::{
    auth::KeyDigest,
    catalog::{Plan, Tier, Track},
    config::Durability,
    money::NanoUsd,
};

/// One after the other, each once: the database remembers how many it has seen.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/1_accounts.sql")];

pub struct Database {
    connection: Connection,
    /// Held for as long as the database is open; the system lets go of it when a process dies.
    _lock: File,
}

impl Database {
    pub fn open(path: &Path, durability: Durability) -> Result<Self, OpenError> {
        let shown = || path.display().to_string();
        let lock = lock_beside(path)?;
        let mut connection = Connection::open(path).map_err(|source| OpenError::Database {
            path: shown(),
            source,
        })?;
        prepare(&connection, durability).map_err(|source| OpenError::Database {
            path: shown(),
            source,
        })?;
        migrate(&mut connection, path)?;
        Ok(Self {
            connection,
            _lock: lock,
        })
    }

    pub fn load(&self) -> rusqlite::Result<Directory> {
        let mut directory = Directory::default();
        let mut accounts = self
            .connection
            .prepare("SELECT id, email, name, track, tier, closed, created_at FROM accounts")?;
        for account in accounts.query_map([], read_account)? {
            let mut account = account?;
            account.grants = self.grants_of(&account.id)?;
            directory.put_account(account);
        }
        let mut keys = self.connection.prepare(
            "SELECT id, account_id, name, prefix, state, created_at, digest FROM api_keys",
        )?;
        for key in keys.query_map([], read_key)? {
            directory.put_key(key?);
        }
        let mut models = self
            .connection
            .prepare("SELECT model_id, enabled, unlisted FROM model_settings")?;
        let settings = models.query_map([], |row| {
            Ok((
                row.get(0)?,
                ModelSettings {
                    enabled: row.get(1)?,
                    unlisted: row.get(2)?,
                },
            ))
        })?;
        for model in settings {
            let (id, settings) = model?;
            directory.put_model_settings(id, settings);
        }
        Ok(directory)
    }

    /// In the order in which they were given.
    fn grants_of(&self, account_id: &str) -> rusqlite::Result<Vec<Grant>> {
        let mut grants = self.connection.prepare_cached(
            "SELECT id, amount, expires_at, reason, created_at FROM credit_grants
             WHERE account_id = ?1 ORDER BY rowid",
        )?;
        let read = |row: &Row<'_>| {
            Ok(Grant {
                id: row.get(0)?,
                amount: NanoUsd::new(row.get(1)?),
                expires_at: row.get(2)?,
                reason: row.get(3)?,
                created_at: row.get(4)?,
            })
        };
        grants.query_map([account_id], read)?.collect()
    }

    pub fn insert_account(&self, account: &Account) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO accounts (id, email, name, track, tier, closed, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                account.id,
                account.email,
                account.name,
                account.plan.track().as_str(),
                account.plan.tier().as_str(),
                account.closed,
                account.created_at
            ],
        )?;
        Ok(())
    }

    pub fn update_account(&self, account: &Account) -> rusqlite::Result<()> {
        self.connection.execute(
            "UPDATE accounts SET track = ?2, tier = ?3, closed = ?4 WHERE id = ?1",
            params![
                account.id,
                account.plan.track().as_str(),
                account.plan.tier().as_str(),
                account.closed
            ],
        )?;
        Ok(())
    }

    pub fn insert_key(&self, key: &Key) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO api_keys (id, account_id, name, prefix, state, created_at, digest)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                key.id,
                key.account_id,
                key.name,
                key.prefix,
                key.state.as_str(),
                key.created_at,
                key.digest.0
            ],
        )?;
        Ok(())
    }

    pub fn update_key(&self, key: &Key) -> rusqlite::Result<()> {
        self.connection.execute(
            "UPDATE api_keys SET state = ?2 WHERE id = ?1",
            params![key.id, key.state.as_str()],
        )?;
        Ok(())
    }

    pub fn insert_grant(&self, account_id: &str, grant: &Grant) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO credit_grants (id, account_id, amount, expires_at, reason, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                grant.id,
                account_id,
                grant.amount.nanos(),
                grant.expires_at,
                grant.reason,
                grant.created_at
            ],
        )?;
        Ok(())
    }

    pub fn put_model_settings(&self, id: &str, settings: ModelSettings) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO model_settings (model_id, enabled, unlisted) VALUES (?1, ?2, ?3)
             ON CONFLICT (model_id) DO UPDATE SET enabled = ?2, unlisted = ?3",
            params![id, settings.enabled, settings.unlisted],
        )?;
        Ok(())
    }
}

/// Looks at a database without changing it, or at the place where it would be made.
pub fn probe(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if path.exists() {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let version = Connection::open_with_flags(path, flags).and_then(|connection| {
            connection.query_row("PRAGMA user_version", [], |row| row.get(0))
        });
        let version: i64 = version.map_err(|error| format!("{shown} cannot be read: {error}"))?;
        return Ok(format!("{shown} exists (version {version})"));
    }
    let mut folders = path.ancestors().skip(1).map(|folder| {
        if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        }
    });
    let folder = folders
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("."));
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() && !metadata.permissions().readonly() => {
            Ok(format!("{shown} will be created"))
        }
        Ok(_) => Err(format!(
            "{shown} cannot be created: {} is no folder to write in",
            folder.display()
        )),
        Err(error) => Err(format!("{shown} cannot be created: {error}")),
    }
}

/// Keeps a second process out. The lock is on a file of its own, because SQLite's locks on the
/// database would shut out our own readers as well.
fn lock_beside(path: &Path) -> Result<File, OpenError> {
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
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let file = File::create(beside).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn prepare(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Power => "FULL",
        Durability::Process => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // A damaged file is better found now than in the middle of a charge.
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(corrupt, Some(verdict)))
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Database {
        path: path.display().to_string(),
        source,
    };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let done: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .optional()
        .map_err(failed)?
        .unwrap_or(0);
    if done > known {
        return Err(OpenError::TooNew {
            path: path.display().to_string(),
            found: done,
            known,
        });
    }
    let first = usize::try_from(done).unwrap_or(0);
    for (version, migration) in (1_i64..).zip(MIGRATIONS).skip(first) {
        let transaction = connection.transaction().map_err(failed)?;
        transaction.execute_batch(migration).map_err(failed)?;
        transaction
            .pragma_update(None, "user_version", version)
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

fn read_account(row: &Row<'_>) -> rusqlite::Result<Account> {
    let (track, tier): (String, String) = (row.get(3)?, row.get(4)?);
    let plan = Track::parse(&track).zip(Tier::parse(&tier));
    let plan = plan.and_then(|(track, tier)| Plan::new(track, tier));
    Ok(Account {
        id: row.get(0)?,
        email: row.get(1)?,
        name: row.get(2)?,
        plan: plan.ok_or_else(|| unreadable(3, "track and tier"))?,
        closed: row.get(5)?,
        created_at: row.get(6)?,
        grants: Vec::new(),
    })
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<Key> {
    let state: String = row.get(4)?;
    Ok(Key {
        id: row.get(0)?,
        account_id: row.get(1)?,
        name: row.get(2)?,
        prefix: row.get(3)?,
        state: KeyState::parse(&state).ok_or_else(|| unreadable(4, "state"))?,
        created_at: row.get(5)?,
        digest: KeyDigest(row.get(6)?),
    })
}

fn unreadable(column: usize, what: &str) -> rusqlite::Error {
    let message = format!("{what} is none that this version knows");
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, message.into())
}
