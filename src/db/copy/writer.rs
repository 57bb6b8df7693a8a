//! Writes batches and the progress into PostgreSQL.

use tokio_postgres::types::Type;

use super::{
    batch::{Batch, Key},
    reader::Part,
    table::{Table, quoted},
};
use crate::{
    base::failpoint,
    db::{
        postgres::{Connected, Error},
        sqlite::FileError,
    },
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Source(#[from] FileError),
    #[error(transparent)]
    Target(#[from] Error),
    #[error("another import is copying into this database")]
    Concurrent,
}

impl From<tokio_postgres::Error> for CopyError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Target(error.into())
    }
}

/// How far a table is copied.
struct Progress {
    rows: i64,
    /// The key of the last copied row; empty at the beginning.
    last: Key,
}

/// Copies the rest of a table, and calls `report` with the number of copied rows after each batch.
pub(crate) async fn copy_table(
    connection: &Connected,
    part: &Part,
    table: &'static Table,
    batch_rows: u32,
    mut report: impl FnMut(u64),
) -> Result<(), CopyError> {
    let mut progress = progress(connection, table).await?;
    report(progress.rows.unsigned_abs());
    let insert = table.insert();
    let mut batches = part.batches(table, progress.last.clone(), batch_rows);
    while let Some(batch) = batches.recv().await {
        progress = write(connection, table, &insert, batch?, progress).await?;
        report(progress.rows.unsigned_abs());
    }
    Ok(())
}

/// How many rows of all tables are copied.
pub(crate) async fn rows_copied(connection: &Connected) -> Result<i64, Error> {
    let query = "SELECT coalesce(sum(copied_rows), 0)::bigint FROM import_tables";
    let row = connection.query_typed_one(query, &[]).await?;
    Ok(row.try_get(0)?)
}

async fn progress(connection: &Connected, table: &Table) -> Result<Progress, Error> {
    let query = "SELECT copied_rows, last_key FROM import_tables WHERE table_name = $1";
    let row = connection
        .query_typed_one(query, &[(&table.name, Type::TEXT)])
        .await?;
    let last: Option<&str> = row.try_get(1)?;
    let last = last.map_or(Ok(Key::new()), serde_json::from_str);
    Ok(Progress {
        rows: row.try_get(0)?,
        last: last
            .map_err(|error| Error::Unexpected(format!("import_tables.last_key: {error}")))?,
    })
}

/// Commits a batch with the progress after it. Not flushed: the commit that finishes the import flushes everything, and a
/// crash of the server loses a batch and its progress together.
async fn write(
    connection: &Connected,
    table: &Table,
    insert: &str,
    batch: Batch,
    before: Progress,
) -> Result<Progress, CopyError> {
    connection
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = off")
        .await?;
    let rows = before.rows + batch.rows;
    let key = serde_json::to_string(&batch.last).unwrap_or_default();
    // First, because it locks the progress: another import waits here, and then finds that the rows are copied.
    let update = "UPDATE import_tables SET copied_rows = $2, last_key = $3
        WHERE table_name = $1 AND copied_rows = $4";
    let updated = connection
        .execute_typed(
            update,
            &[
                (&table.name, Type::TEXT),
                (&rows, Type::INT8),
                (&key, Type::TEXT),
                (&before.rows, Type::INT8),
            ],
        )
        .await?;
    if updated != 1 {
        return Err(CopyError::Concurrent);
    }
    connection
        .execute_typed(insert, &batch.parameters())
        .await?;
    failpoint::reached("import_copied");
    connection.batch_execute("COMMIT").await?;
    failpoint::reached("import_committed");
    Ok(Progress {
        rows,
        last: batch.last,
    })
}

/// Makes the numbers that PostgreSQL assigns to new rows continue after the copied ones.
pub(crate) async fn continue_identities(
    connection: &Connected,
    tables: impl Iterator<Item = &'static Table>,
) -> Result<(), Error> {
    for table in tables {
        let Some(identity) = table.identity else {
            continue;
        };
        let (name, column) = (quoted(table.name), quoted(identity));
        let query = format!(
            "SELECT setval(pg_get_serial_sequence('{name}', '{identity}'), max({column}))
             FROM {name} HAVING max({column}) IS NOT NULL"
        );
        connection.query_typed(&query, &[]).await?;
    }
    Ok(())
}
