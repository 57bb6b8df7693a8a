//! The office in a file of its own.
//!
//! Whoever wants the file waits for it without a thread, so a disk that hangs holds up one thread and
//! no more. What has begun is carried out, even if nobody waits any more.

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

/// Writes are few, and a new password must not be forgotten.
pub const KIND: FileKind = FileKind {
    schema: schema::IN_SQLITE[0],
    durability: Durability::Power,
};

pub struct InFile(Arc<Mutex<File>>);

impl InFile {
    pub fn new(path: &Path) -> Self {
        Self(Arc::new(Mutex::new(File::new(path, KIND))))
    }

    pub async fn run(&self, statements: Vec<Statement>) -> Result<Vec<Row>, BackofficeError> {
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
        Self::Unavailable(error.to_string())
    }
}

fn in_one_transaction(
    connection: &mut Connection,
    statements: &[Statement],
) -> rusqlite::Result<Vec<Row>> {
    // One alone is a transaction by itself, and where it only reads it waits for nobody's lock.
    if let [only] = statements {
        return ask(connection, only);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut rows = Vec::new();
    for statement in statements {
        rows = ask(&transaction, statement)?;
    }
    transaction.commit()?;
    Ok(rows)
}

fn ask(connection: &Connection, statement: &Statement) -> rusqlite::Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(statement.sql)?;
    let columns = prepared.column_count();
    let mut answer = prepared.query(params_from_iter(&statement.values))?;
    let mut rows = Vec::new();
    while let Some(row) = answer.next()? {
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
