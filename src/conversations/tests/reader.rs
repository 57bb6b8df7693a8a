//! Reads the records over a connection of its own.

use std::{path::Path, sync::Mutex};

use super::*;
use crate::db::postgres::Connected;

/// All records, oldest first.
const ROWS: &str = "SELECT account_id, id, stored_ms FROM responses ORDER BY sequence";
/// The largest number of records of one account, and the total.
const COUNTS: &str =
    "SELECT CAST(coalesce(max(n), 0) AS bigint), CAST(coalesce(sum(n), 0) AS bigint)
                      FROM (SELECT count(*) AS n FROM responses GROUP BY account_id) AS counted";

pub(crate) enum Reader {
    /// In a mutex, because a `Connection` is not `Sync`.
    File(Mutex<Connection>),
    Database(Connected),
}

impl Reader {
    pub(crate) fn file(path: &Path) -> Self {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        Self::File(Connection::open_with_flags(path, flags).unwrap().into())
    }

    pub(crate) async fn database(address: &Address) -> Self {
        Self::Database(address.connect().await.unwrap())
    }

    /// Account, ID and time of each record, oldest first.
    pub(crate) async fn rows(&self) -> Vec<(String, String, i64)> {
        match self {
            Self::File(connection) => {
                let connection = connection.lock().unwrap();
                let mut select = connection.prepare(ROWS).unwrap();
                let rows = select
                    .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                    .unwrap();
                rows.map(Result::unwrap).collect()
            }
            Self::Database(connected) => {
                let rows = connected.query_typed(ROWS, &[]).await.unwrap();
                let rows = rows.iter();
                rows.map(|row| (row.get(0), row.get(1), row.get(2)))
                    .collect()
            }
        }
    }

    /// The largest number of records of one account, and the total.
    pub(crate) async fn counts(&self) -> (i64, i64) {
        match self {
            Self::File(connection) => connection
                .lock()
                .unwrap()
                .query_row(COUNTS, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap(),
            Self::Database(connected) => {
                let row = connected.query_typed_one(COUNTS, &[]).await.unwrap();
                (row.get(0), row.get(1))
            }
        }
    }
}
