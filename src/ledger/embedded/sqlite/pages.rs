//! Paged lists, each read through an index in the order of its rows.

use std::cmp::Reverse;

use rusqlite::{Connection, Row, ToSql, params, params_from_iter, types::ToSqlOutput};

use super::{
    load::read_account,
    new_calls::not_entered,
    newest::{Newest, Wanted},
    record::{Record, framed, number},
    unreadable,
};
use crate::{
    base::money::NanoUsd,
    ledger::{
        Account, Call, CallId, CallsPage, Entry, EntryKind, Outcome,
        conditions::{Conditions, Sql, Value},
    },
};

/// Selects the calls of a page. With `sums`, only blocks between the first and the last call of these sums are read.
pub(crate) struct Calls {
    pub account_id: Option<String>,
    pub key_id: Option<String>,
    pub model: Option<String>,
    pub outcome: Option<Outcome>,
    pub before: Option<(i64, CallId)>,
    pub limit: usize,
    pub sums: Option<Conditions>,
}

impl Calls {
    pub(crate) fn of(page: &CallsPage<'_>) -> Self {
        Self {
            account_id: page.account_id.map(str::to_owned),
            key_id: page.key_id.map(str::to_owned),
            model: page.model.map(str::to_owned),
            outcome: page.outcome,
            before: page.before,
            limit: page.limit,
            sums: Conditions::of_sums(Sql::Lite, page),
        }
    }

    pub(crate) fn find(&self, connection: &Connection) -> rusqlite::Result<Vec<Call>> {
        let wanted = self.wanted(connection)?;
        Newest::find(connection, &wanted, self.limit, |call| self.shows(call))
    }

    /// The blocks that may have calls of the page.
    pub(crate) fn wanted(&self, connection: &Connection) -> rusqlite::Result<Wanted<'_>> {
        let times = self.sums.as_ref().map(|sums| times_of(connection, sums));
        let times = times.unwrap_or(Ok(Some((0, i64::MAX))))?;
        let latest = self.before.map_or(i64::MAX, |(ended_ms, _)| ended_ms);
        Ok(Wanted {
            account_id: self.account_id.as_deref(),
            only_odd: self.outcome.is_some_and(|one| one != Outcome::Answered),
            entered: times.map(|(first, last)| first..=last.min(latest)),
        })
    }

    fn shows(&self, call: &Record<'_>) -> bool {
        let is = |wanted: &Option<String>, name| wanted.as_ref().is_none_or(|one| one == name);
        let place = (call.ended_ms, call.id);
        let outcome = self.outcome.map(Outcome::as_str);
        is(&self.account_id, call.account_id)
            && is(&self.key_id, call.key_id)
            && is(&self.model, call.model)
            && outcome.is_none_or(|outcome| call.outcome == outcome)
            && self.before.is_none_or(|(ms, id)| place < (ms, number(id)))
    }
}

/// The first and the last time of sums.
fn times_of(connection: &Connection, sums: &Conditions) -> rusqlite::Result<Option<(i64, i64)>> {
    let values = params_from_iter(&sums.values);
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let times: (Option<i64>, Option<i64>) =
        connection.query_row(&sums.first_and_last(), values, read)?;
    Ok(times.0.zip(times.1))
}

pub(crate) fn accounts(
    connection: &Connection,
    wanted: &Conditions,
    limit: usize,
) -> rusqlite::Result<Vec<Account>> {
    let mut rows = connection.prepare(&accounts_query(wanted, limit))?;
    rows.query_map(params_from_iter(&wanted.values), read_account)?
        .collect()
}

pub(crate) fn accounts_query(wanted: &Conditions, limit: usize) -> String {
    let (conditions, order) = (&wanted.text, wanted.newest_first("created_at"));
    format!(
        "SELECT id, email, name, track, tier, closed, created_at FROM accounts {conditions}
         {order} LIMIT {limit}"
    )
}

/// Blocks with charges of an account, beginning with the one that has the entry before ?2.
pub(crate) const CHARGES: &str = "SELECT records FROM call_blocks INDEXED BY blocks_with_charges
    WHERE account_id = ?1 AND charges > 0 AND seq <= coalesce((
        SELECT min(seq) FROM call_blocks INDEXED BY blocks_with_charges
        WHERE account_id = ?1 AND charges > 0 AND seq >= ?2
    ), ?2) ORDER BY seq DESC";

/// The account's entries, newest first.
pub(crate) fn entries(
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
    let lines = rows.query_map(params![account_id, before], read_entry)?;
    let mut entries: Vec<Entry> = lines.collect::<Result<_, _>>()?;
    let mut charges = charges_of(account_id, before, &not_entered(connection)?)?;
    let mut rows = connection.prepare(CHARGES)?;
    let mut rows = rows.query(params![account_id, before])?;
    while let Some(row) = rows.next()? {
        if charges.len() >= limit {
            break;
        }
        let records = row.get_ref(0)?.as_blob()?;
        charges.extend(charges_of(account_id, before, records)?);
    }
    entries.extend(charges);
    entries.sort_unstable_by_key(|entry| Reverse(entry.seq));
    entries.truncate(limit);
    Ok(entries)
}

/// The entries of an account's charged calls among these records.
fn charges_of(account_id: &str, before: i64, records: &[u8]) -> rusqlite::Result<Vec<Entry>> {
    let mut charges = Vec::new();
    for framed in framed(records) {
        let framed = framed?;
        let record = framed.read()?;
        let Some(paid) = record.paid else { continue };
        if framed.seq >= before || record.account_id != account_id {
            continue;
        }
        charges.push(Entry {
            seq: framed.seq,
            kind: EntryKind::Charge,
            reference: EntryKind::Charge.shown(record.id.to_string()),
            delta: NanoUsd::new(record.delta()),
            balance_after: NanoUsd::new(paid.after),
            at: record.ended_ms.div_euclid(1_000),
        });
    }
    Ok(charges)
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
