//! Numbers of rows and sums of both sides, which are equal when everything is copied.

use rusqlite::Connection;

use super::{
    reader::Part,
    table::{PART, Side, Table},
};
use crate::db::{
    postgres::{Connected, Error},
    sqlite::FileError,
};

/// The number of rows of a table, and its sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub table: &'static str,
    pub rows: u64,
    /// By the name of their columns.
    sums: Vec<(&'static str, i128)>,
}

impl Totals {
    /// From the texts that [`Table::totals`] selects.
    fn new(table: &Table, texts: &[String]) -> Self {
        let number = |at: usize| -> i128 {
            let text = texts.get(at);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let sums = table.numbers().enumerate().map(|(at, column)| {
            let (parts, rest) = (number(1 + at * 2), number(2 + at * 2));
            (column.name, parts * i128::from(PART) + rest)
        });
        Self {
            table: table.name,
            rows: u64::try_from(number(0)).unwrap_or(0),
            sums: sums.collect(),
        }
    }

    /// What differs in the copy of this table, one sentence each.
    pub(crate) fn differences(&self, copy: &Self) -> Vec<String> {
        let table = self.table;
        let mut found = Vec::new();
        if self.rows != copy.rows {
            let (rows, copied) = (self.rows, copy.rows);
            found.push(format!("{table} has {rows} rows, and its copy {copied}"));
        }
        for ((name, sum), (_, copied)) in self.sums.iter().zip(&copy.sums) {
            if sum != copied {
                found.push(format!(
                    "{table}.{name} adds up to {sum}, and its copy to {copied}"
                ));
            }
        }
        found
    }

    /// Everything as text, for a fingerprint.
    pub(super) fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl Part {
    /// The totals of its tables.
    pub(crate) fn totals(&self) -> Result<Vec<Totals>, FileError> {
        let connection = self.open()?;
        let tables = self.tables.iter();
        tables
            .map(|table| match &connection {
                Some(connection) => totals(connection, table).map_err(|error| self.failed(error)),
                None => Ok(Totals::new(table, &[])),
            })
            .collect()
    }
}

fn totals(connection: &Connection, table: &Table) -> rusqlite::Result<Totals> {
    let query = table.totals(Side::Source);
    connection.query_row(&query, [], |row| {
        let columns = 0..row.as_ref().column_count();
        let texts = columns.map(|column| row.get(column));
        Ok(Totals::new(table, &texts.collect::<Result<Vec<_>, _>>()?))
    })
}

/// The totals of a copied table.
pub(crate) async fn totals_of(connection: &Connected, table: &Table) -> Result<Totals, Error> {
    let query = table.totals(Side::Target);
    let row = connection.query_typed_one(&query, &[]).await?;
    let texts = (0..row.len()).map(|column| Ok(row.try_get(column)?));
    Ok(Totals::new(
        table,
        &texts.collect::<Result<Vec<_>, Error>>()?,
    ))
}
