//! The ledger's part of `tollgate import`: from the SQLite files of a stopped gateway into an empty PostgreSQL database.
//!
//! The database remembers an import in its table `imports`, from its beginning until everything was compared. Until then
//! no gateway starts on it.

use std::{collections::BTreeMap, path::Path};

use rusqlite::OptionalExtension as _;
use tokio_postgres::types::Type;

mod tables;
#[cfg(test)]
mod tests;

use super::{Ledger, LedgerError, OpenError, postgres};
use crate::{
    base::durability::Durability,
    db::{
        copy::Part,
        postgres::{Address, Connected, Error},
        sqlite::{FileError, read_only},
    },
};

/// Whether an import into the database has begun and is not finished.
pub(super) const IS_UNFINISHED: &str =
    "SELECT EXISTS (SELECT 1 FROM imports WHERE finished_at IS NULL)";

/// Why an import does not begin or continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error(
        "{table} has rows: gateways use or have used this database. Create an empty one for the import"
    )]
    InUse { table: String },
    #[error("an import into this database was finished before; gateways can start on it")]
    Finished,
    #[error(
        "an unfinished import into this database began with other files, or a gateway has changed the files since. \
         Create an empty database and begin again"
    )]
    OtherSource,
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<tokio_postgres::Error> for ImportError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

/// The ledger's tables in this file.
pub(crate) fn part(file: &Path) -> Part {
    Part {
        file: file.to_owned(),
        tables: tables::TABLES,
    }
}

/// Opens the ledger of a stopped gateway and posts its redo log. No gateway can start on the file until the returned
/// ledger is dropped.
pub(crate) async fn lock(file: &Path) -> Result<Ledger, String> {
    let ledger = Ledger::open(file, Durability::Power).map_err(|error| match error {
        OpenError::InUse { path } => format!("{path} is in use; stop its gateway first"),
        error => error.to_string(),
    })?;
    let posted = match &ledger {
        Ledger::Embedded(embedded) => embedded.post_redo_log().await,
        Ledger::Shared(_) => Ok(()),
    };
    let failed = |error: LedgerError| format!("the redo log could not be posted: {error}");
    posted.map_err(failed)?;
    Ok(ledger)
}

/// Connects to the database and creates the ledger's tables if it is empty.
pub(crate) async fn connect(address: &Address) -> Result<Connected, OpenError> {
    postgres::connect(address).await
}

/// Records that an import begins, or finds that it can continue. `tables` are all that are to be copied.
///
/// Gateways that start at this moment wait for the lock, and then find the import.
pub(crate) async fn begin(
    connection: &Connected,
    source: &str,
    tables: &[&str],
) -> Result<(), ImportError> {
    let lock = "BEGIN; LOCK TABLE imports, gateways IN SHARE ROW EXCLUSIVE MODE";
    connection.batch_execute(lock).await?;
    let query = "SELECT source, finished_at IS NOT NULL FROM imports";
    let rows = connection.query_typed(query, &[]).await?;
    if let Some(row) = rows.first() {
        let (begun_from, is_finished): (&str, bool) = (row.try_get(0)?, row.try_get(1)?);
        if is_finished {
            return Err(ImportError::Finished);
        }
        if begun_from != source {
            return Err(ImportError::OtherSource);
        }
    } else {
        for table in tables.iter().chain(&["gateways", "holds"]) {
            let query = format!("SELECT EXISTS (SELECT 1 FROM \"{table}\")");
            if connection.query_typed_one(&query, &[]).await?.try_get(0)? {
                let table = (*table).to_owned();
                return Err(ImportError::InUse { table });
            }
        }
        let begun = "INSERT INTO imports (source) VALUES ($1)";
        let source = [(&source as _, Type::TEXT)];
        connection.execute_typed(begun, &source).await?;
        let listed = "INSERT INTO import_tables (table_name) SELECT unnest($1)";
        let tables = [(&tables as _, Type::TEXT_ARRAY)];
        connection.execute_typed(listed, &tables).await?;
    }
    Ok(connection.batch_execute("COMMIT").await?)
}

/// Prepares the target for the calls of the source: a table for each of their months.
pub(crate) async fn add_months(connection: &Connected, file: &Path) -> Result<(), String> {
    let months = months(file).map_err(|error| error.to_string())?;
    let add = "SELECT add_month(month::date) FROM unnest($1) AS month";
    let months = [(&months as _, Type::TEXT_ARRAY)];
    let added = connection.query_typed(add, &months).await;
    added.map_err(|error| Error::from(error).to_string())?;
    Ok(())
}

/// The months that have calls, each as its first day, e.g. `2026-11-01`.
fn months(file: &Path) -> Result<Vec<String>, FileError> {
    let Some(connection) = read_only(file)? else {
        return Ok(Vec::new());
    };
    // The month of the next call, and the first ID of the month after it: an ID begins with the time of admission.
    let next = "SELECT month, (unixepoch(month, '+1 month') * 1000) << 19
        FROM (SELECT strftime('%Y-%m-01', (min(id) >> 19) / 1000, 'unixepoch') AS month FROM calls WHERE id >= ?1)
        WHERE month IS NOT NULL";
    let read = || -> rusqlite::Result<Vec<String>> {
        let (mut months, mut from) = (Vec::new(), 0_i64);
        let mut next = connection.prepare(next)?;
        let month = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        while let Some((month, after)) = next.query_row([from], month).optional()? {
            months.push(month);
            from = after;
        }
        Ok(months)
    };
    read().map_err(|source| FileError::Database {
        path: file.display().to_string(),
        source,
    })
}

/// Makes new entries continue after the copied ones.
pub(crate) async fn continue_entries(connection: &Connected) -> Result<(), Error> {
    let query = "SELECT setval('entry_seqs', max(seq)) FROM ledger HAVING max(seq) IS NOT NULL";
    connection.query_typed(query, &[]).await?;
    Ok(())
}

const BALANCES: &str = "SELECT account_id, balance_nano_usd FROM balances";

/// The balance of each account in the file, in nano-dollars.
pub(crate) fn balances_of_file(file: &Path) -> Result<BTreeMap<String, i64>, FileError> {
    let Some(connection) = read_only(file)? else {
        return Ok(BTreeMap::new());
    };
    let read = || {
        let mut balances = connection.prepare(BALANCES)?;
        let rows = balances.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<_>>()
    };
    read().map_err(|source| FileError::Database {
        path: file.display().to_string(),
        source,
    })
}

/// The balance of each account in the database, in nano-dollars.
pub(crate) async fn balances(connection: &Connected) -> Result<BTreeMap<String, i64>, Error> {
    let rows = connection.query_typed(BALANCES, &[]).await?;
    let rows = rows.iter();
    rows.map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Records that everything is copied and equal: gateways can start from now on.
pub(crate) async fn finish(connection: &Connected) -> Result<(), Error> {
    // Flushed to the disk, with all batches before it, whatever the server's default is.
    let finish = "BEGIN; SET LOCAL synchronous_commit = on;
        UPDATE imports SET finished_at = extract(epoch FROM now())::bigint;
        COMMIT";
    Ok(connection.batch_execute(finish).await?)
}
