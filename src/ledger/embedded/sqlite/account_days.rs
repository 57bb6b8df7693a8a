//! The ledger of an account by day.

use rusqlite::{Connection, Row, params};

use super::unreadable;
use crate::{
    base::timestamp,
    ledger::{
        DayRange, HistoryEdges,
        account_days::{AccountDays, DAYS, EDGES, MAX_ENTRIES, Read},
    },
};

pub(crate) fn between(
    connection: &Connection,
    account_id: &str,
    range: &DayRange,
) -> rusqlite::Result<AccountDays> {
    let (from, until) = range.seconds();
    let mut rows = connection.prepare(DAYS)?;
    let wanted = params![
        account_id,
        range.first_day(),
        range.to_day(),
        from,
        until,
        MAX_ENTRIES
    ];
    let rows = rows.query_map(wanted, read)?;
    Ok(AccountDays::of(rows.collect::<Result<Vec<_>, _>>()?))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Read> {
    let kind: String = row.get(0)?;
    let names = (row.get(1)?, row.get(2)?);
    let place = (row.get(3)?, row.get(4)?);
    let numbers = [row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?];
    Read::of(&kind, names, place, numbers).ok_or_else(|| unreadable(0, "kind of entry"))
}

pub(crate) fn edges(
    connection: &Connection,
    account_id: &str,
    before: i64,
) -> rusqlite::Result<HistoryEdges> {
    let mut rows = connection.prepare(EDGES)?;
    let wanted = params![account_id, timestamp::day(before), before];
    rows.query_row(wanted, |row| {
        Ok(HistoryEdges::of(row.get(0)?, row.get(1)?, row.get(2)?))
    })
}
