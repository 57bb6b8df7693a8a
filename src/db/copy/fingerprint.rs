//! Recognises files by what is in them, wherever they are.

use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension as _};
use sha2::{Digest as _, Sha256};

use super::{
    reader::Part,
    table::{Table, quoted},
    totals::Totals,
};
use crate::{base::hex::hex, db::sqlite::FileError};

/// A digest of the totals, and of the first and last key of each table. It differs for other files, and for the same
/// files after a gateway has written to them.
pub(crate) fn fingerprint(parts: &[Part], totals: &[Totals]) -> Result<String, FileError> {
    let mut text = String::new();
    for one in totals {
        let _ = writeln!(text, "{}", one.text());
    }
    for part in parts {
        let Some(connection) = part.open()? else {
            continue;
        };
        for table in part.tables {
            for order in ["ASC", "DESC"] {
                let key = end(&connection, table, order).map_err(|error| part.failed(error))?;
                let _ = writeln!(text, "{} {order} {key:?}", table.name);
            }
        }
    }
    let digest = Sha256::digest(text.as_bytes());
    Ok(hex(&digest))
}

/// The key of the first or the last row.
fn end(
    connection: &Connection,
    table: &Table,
    order: &str,
) -> rusqlite::Result<Option<Vec<String>>> {
    let columns = table.key.iter();
    let texts: Vec<_> = columns
        .clone()
        .map(|column| format!("CAST({column} AS TEXT)"))
        .collect();
    let ordered: Vec<_> = columns.map(|column| format!("{column} {order}")).collect();
    let query = format!(
        "SELECT {} FROM {} ORDER BY {} LIMIT 1",
        texts.join(", "),
        quoted(table.name),
        ordered.join(", ")
    );
    connection
        .query_row(&query, [], |row| {
            (0..texts.len()).map(|column| row.get(column)).collect()
        })
        .optional()
}
