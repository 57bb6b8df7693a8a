//! Reads the tables of a SQLite file in batches, on a thread of its own: while a batch is written, the next is read.

use std::path::PathBuf;

use rusqlite::{Connection, ToSql, params_from_iter, types::ToSqlOutput};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    batch::{Batch, Key, KeyValue},
    table::Table,
};
use crate::db::sqlite::{FileError, read_only};

/// A batch ends with the row that makes it this large, however few rows it has.
const MAX_BYTES: usize = 4 << 20;

/// The tables of one file.
pub(crate) struct Part {
    /// It may be missing: files are created when the first row is written.
    pub file: PathBuf,
    pub tables: &'static [Table],
}

impl Part {
    /// Opens the file for reading; `None` if there is nothing in it yet.
    pub(super) fn open(&self) -> Result<Option<Connection>, FileError> {
        if self.file.exists() {
            read_only(&self.file)
        } else {
            Ok(None)
        }
    }

    pub(super) fn failed(&self, source: rusqlite::Error) -> FileError {
        FileError::Database {
            path: self.file.display().to_string(),
            source,
        }
    }

    /// Reads the rows after this key. The last batch is followed by the end of the channel.
    pub(super) fn batches(
        &self,
        table: &'static Table,
        after: Key,
        batch_rows: u32,
    ) -> mpsc::Receiver<Result<Batch, FileError>> {
        let (batches, received) = mpsc::channel(1);
        let part = Self {
            file: self.file.clone(),
            tables: self.tables,
        };
        spawn_blocking(move || {
            if let Err(error) = part.send_batches(table, after, batch_rows, &batches) {
                let _ = batches.blocking_send(Err(error));
            }
        });
        received
    }

    fn send_batches(
        &self,
        table: &Table,
        mut after: Key,
        batch_rows: u32,
        batches: &mpsc::Sender<Result<Batch, FileError>>,
    ) -> Result<(), FileError> {
        let Some(connection) = self.open()? else {
            return Ok(());
        };
        loop {
            let batch = read(&connection, table, &after, batch_rows);
            let batch = batch.map_err(|error| self.failed(error))?;
            if batch.rows == 0 {
                return Ok(());
            }
            after.clone_from(&batch.last);
            // The receiver is gone if the copy failed.
            if batches.blocking_send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
    }
}

fn read(
    connection: &Connection,
    table: &Table,
    after: &[KeyValue],
    batch_rows: u32,
) -> rusqlite::Result<Batch> {
    let mut statement = connection.prepare_cached(&table.select(after.is_empty()))?;
    let limit = KeyValue::Int(batch_rows.into());
    let parameters = after.iter().chain([&limit]);
    let mut rows = statement.query(params_from_iter(parameters))?;
    let mut batch = Batch::new(table);
    while batch.bytes < MAX_BYTES
        && let Some(row) = rows.next()?
    {
        batch.push(table, row)?;
    }
    Ok(batch)
}

impl ToSql for KeyValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        })
    }
}
