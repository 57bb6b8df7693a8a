//! Rows on their way: the values of each column as an array of PostgreSQL.

use rusqlite::{
    Row,
    types::{Type as SqliteType, ValueRef},
};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{ToSql, Type};

use super::table::{Kind, Table};
use crate::db::postgres::storable;

/// The key of a row, in the order of [`Table::key`]; stored as JSON.
pub(super) type Key = Vec<KeyValue>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum KeyValue {
    Int(i64),
    Text(String),
}

pub(super) struct Batch {
    columns: Vec<Values>,
    pub rows: i64,
    /// About how much memory the values need.
    pub bytes: usize,
    /// The key of the last row.
    pub last: Key,
}

/// The values of one column.
enum Values {
    Text(Vec<Option<String>>),
    Int(Vec<Option<i64>>),
    Flag(Vec<Option<bool>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Json(Vec<Option<String>>),
}

impl Batch {
    pub(super) fn new(table: &Table) -> Self {
        let columns = table.columns.iter().map(|column| match column.kind {
            Kind::Text => Values::Text(Vec::new()),
            Kind::Int => Values::Int(Vec::new()),
            Kind::Flag => Values::Flag(Vec::new()),
            Kind::Bytes => Values::Bytes(Vec::new()),
            Kind::Json => Values::Json(Vec::new()),
        });
        Self {
            columns: columns.collect(),
            rows: 0,
            bytes: 0,
            last: Key::new(),
        }
    }

    /// Appends a row of [`Table::select`].
    pub(super) fn push(&mut self, table: &Table, row: &Row<'_>) -> rusqlite::Result<()> {
        for (at, values) in self.columns.iter_mut().enumerate() {
            let value = row.get_ref(at)?;
            self.bytes += size(value);
            if values.push(value).is_none() {
                let name = table.columns[at].name.to_owned();
                return Err(rusqlite::Error::InvalidColumnType(
                    at,
                    name,
                    value.data_type(),
                ));
            }
        }
        self.last.clear();
        for at in 0..table.key.len() {
            let at = self.columns.len() + at;
            self.last.push(match row.get_ref(at)? {
                ValueRef::Integer(number) => KeyValue::Int(number),
                _ => KeyValue::Text(row.get(at)?),
            });
        }
        self.rows += 1;
        Ok(())
    }

    /// The parameters of [`Table::insert`].
    pub(super) fn parameters(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        let columns = self.columns.iter();
        columns.map(Values::parameter).collect()
    }
}

impl Values {
    /// Appends a value; `None` if it does not have the column's type.
    fn push(&mut self, value: ValueRef<'_>) -> Option<()> {
        let is_null = value.data_type() == SqliteType::Null;
        let text = || value.as_str().ok();
        match self {
            Self::Text(values) if is_null => values.push(None),
            Self::Int(values) if is_null => values.push(None),
            Self::Flag(values) if is_null => values.push(None),
            Self::Bytes(values) if is_null => values.push(None),
            Self::Json(values) if is_null => values.push(None),
            Self::Text(values) => values.push(Some(storable::text(text()?).into_owned())),
            Self::Int(values) => values.push(Some(value.as_i64().ok()?)),
            Self::Flag(values) => values.push(Some(value.as_i64().ok()? != 0)),
            Self::Bytes(values) => values.push(Some(value.as_bytes().ok()?.to_vec())),
            Self::Json(values) => values.push(Some(storable::json(text()?).into_owned())),
        }
        Some(())
    }

    fn parameter(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(values) | Self::Json(values) => (values, Type::TEXT_ARRAY),
            Self::Int(values) => (values, Type::INT8_ARRAY),
            Self::Flag(values) => (values, Type::BOOL_ARRAY),
            Self::Bytes(values) => (values, Type::BYTEA_ARRAY),
        }
    }
}

fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
    }
}
