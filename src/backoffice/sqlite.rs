//! The backoffice store in an SQLite file.
//!
//! One operation at a time runs on a blocking thread; the others wait for an async mutex, so a disk that hangs blocks one
//! thread only. An operation that has started is finished even if its caller has timed out; one that still waits is
//! cancelled with its caller.

use std::{path::Path, sync::Arc};

use rusqlite::{
    Connection, ToSql, TransactionBehavior, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};
use tokio::{sync::Mutex, task::spawn_blocking};

use super::{
    BackofficeError, schema,
    sql::{Row, Statement, Value},
};
use crate::{
    base::durability::Durability,
    db::sqlite::{File, FileError, FileKind},
};

/// Each commit is flushed to the disk: writes are few, and a new password must survive a power cut.
pub(crate) const KIND: FileKind = FileKind {
    schema: schema::SQLITE,
    durability: Durability::Power,
};

pub(crate) struct SqliteStore(Arc<Mutex<File>>);

impl SqliteStore {
    pub(crate) fn new(path: &Path) -> Self {
        Self(Arc::new(Mutex::new(File::new(path, KIND))))
    }

    pub(crate) async fn run(
        &self,
        statements: Vec<Statement>,
    ) -> Result<Vec<Row>, BackofficeError> {
        let rows = self
            .work(move |connection| in_one_transaction(connection, &statements))
            .await?;
        Ok(rows)
    }

    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, BackofficeError> {
        let mut file = self.0.clone().lock_owned().await;
        let worked = spawn_blocking(move || file.run(work)).await;
        let worked = worked.map_err(|error| BackofficeError::Unavailable(error.to_string()))?;
        Ok(worked?)
    }
}

impl From<FileError> for BackofficeError {
    fn from(error: FileError) -> Self {
        let reason = error.to_string();
        match error {
            FileError::OtherVersion { .. } => Self::OtherVersion(reason),
            _ => Self::Unavailable(reason),
        }
    }
}

fn in_one_transaction(
    connection: &mut Connection,
    statements: &[Statement],
) -> rusqlite::Result<Vec<Row>> {
    // A single statement is a transaction by itself; if it only reads, it needs no write lock.
    if let [only] = statements {
        return query(connection, only);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut rows = Vec::new();
    for statement in statements {
        rows = query(&transaction, statement)?;
    }
    transaction.commit()?;
    Ok(rows)
}

fn query(connection: &Connection, statement: &Statement) -> rusqlite::Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(statement.sql)?;
    let columns = prepared.column_count();
    let mut found = prepared.query(params_from_iter(&statement.values))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let values = (0..columns).map(|column| value(row, column));
        rows.push(Row::new(values.collect::<Result<_, _>>()?));
    }
    Ok(rows)
}

fn value(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        _ => Value::Text(row.get(column)?),
    })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Text(text) => text.as_str().into(),
            Self::Int(number) => (*number).into(),
            Self::Null => rusqlite::types::Null.into(),
        })
    }
}
