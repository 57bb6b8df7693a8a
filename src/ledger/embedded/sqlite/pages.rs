//! Lists that are read page by page, each by an index in the order of its lines.

use rusqlite::{Connection, Row, ToSql, params, params_from_iter, types::ToSqlOutput};

use super::{
    calls::{self, COLUMNS},
    load::read_account,
    unreadable,
};
use crate::{
    ledger::{
        Account, Call, Entry, EntryKind,
        conditions::{Conditions, Value},
    },
    money::NanoUsd,
};

/// Where there are sums, between the first and the last of the calls that they add up.
pub fn calls(
    connection: &Connection,
    sums: Option<&Conditions>,
    mut wanted: Conditions,
    limit: usize,
) -> rusqlite::Result<Vec<Call>> {
    if let Some(sums) = sums {
        let values = params_from_iter(&sums.values);
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let times = connection.query_row(&sums.first_and_last(), values, read)?;
        let (Some(first), Some(last)) = times else {
            return Ok(Vec::new());
        };
        wanted.within(first, last);
    }
    let mut rows = connection.prepare(&calls_query(&wanted, limit))?;
    rows.query_map(params_from_iter(&wanted.values), calls::read)?
        .collect()
}

pub fn calls_query(wanted: &Conditions, limit: usize) -> String {
    // A list does without how hybrids decided, which is long.
    let columns = COLUMNS.replace("decision", "NULL");
    let (conditions, order) = (&wanted.text, wanted.newest_first("ended_ms"));
    format!("SELECT {columns} FROM calls {conditions} {order} LIMIT {limit}")
}

pub fn accounts(
    connection: &Connection,
    wanted: &Conditions,
    limit: usize,
) -> rusqlite::Result<Vec<Account>> {
    let mut rows = connection.prepare(&accounts_query(wanted, limit))?;
    rows.query_map(params_from_iter(&wanted.values), read_account)?
        .collect()
}

pub fn accounts_query(wanted: &Conditions, limit: usize) -> String {
    let (conditions, order) = (&wanted.text, wanted.newest_first("created_at"));
    format!(
        "SELECT id, email, name, track, tier, closed, created_at FROM accounts {conditions}
         {order} LIMIT {limit}"
    )
}

/// The account's books, newest first.
pub fn entries(
    connection: &Connection,
    account_id: &str,
    before: i64,
    limit: usize,
) -> rusqlite::Result<Vec<Entry>> {
    let query = format!(
        "SELECT seq, kind, ref, delta, balance_after, at FROM ledger_entries
         WHERE account_id = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT {limit}"
    );
    let mut rows = connection.prepare(&query)?;
    rows.query_map(params![account_id, before], read_entry)?
        .collect()
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let kind: String = row.get(1)?;
    let kind = EntryKind::parse(&kind).ok_or_else(|| unreadable(1, "kind of entry"))?;
    Ok(Entry {
        seq: row.get(0)?,
        kind,
        reference: kind.shown(row.get(2)?),
        delta: NanoUsd::new(row.get(3)?),
        balance_after: NanoUsd::new(row.get(4)?),
        at: row.get(5)?,
    })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Number(number) => number.to_sql(),
        }
    }
}
