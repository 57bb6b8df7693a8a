//! Paged lists, each read through an index in the order of its rows.

use std::cmp::Reverse;

use rusqlite::{Connection, Row, ToSql, params, params_from_iter, types::ToSqlOutput};

use super::{
    calls::{read, with_unposted},
    load::read_account,
    record::{Record, list_columns, number},
    redo_log::unposted_calls,
    unreadable,
};
use crate::{
    base::money::NanoUsd,
    ledger::{
        Account, Call, CallId, CallsPage, Entry, EntryKind, Outcome, SeenCalls,
        conditions::{Conditions, Sql, Value},
    },
};

/// Selects the calls of a page.
pub(crate) struct Calls {
    account_id: Option<String>,
    key_id: Option<String>,
    model: Option<String>,
    outcome: Option<Outcome>,
    seen: Option<SeenCalls>,
    before: Option<(i64, CallId)>,
    limit: usize,
    conditions: Conditions,
    /// Of the daily sums that tell within which times the calls lie.
    sums: Option<Conditions>,
}

impl Calls {
    pub(crate) fn of(page: &CallsPage<'_>) -> Self {
        Self {
            account_id: page.account_id.map(str::to_owned),
            key_id: page.key_id.map(str::to_owned),
            model: page.model.map(str::to_owned),
            outcome: page.outcome,
            seen: page.seen.cloned(),
            before: page.before,
            limit: page.limit,
            conditions: Conditions::of_calls(Sql::Lite, page),
            sums: Conditions::of_sums(Sql::Lite, page),
        }
    }

    pub(crate) fn find(mut self, connection: &Connection) -> rusqlite::Result<Vec<Call>> {
        let posted = if self.restrict(connection)? {
            read(
                connection,
                &self.query(),
                params_from_iter(&self.conditions.values),
            )?
        } else {
            Vec::new()
        };
        with_unposted(connection, posted, self.limit, |call| self.shows(call))
    }

    /// Restricts the query to the times of the sums; `false` if there are none, and so no posted calls.
    pub(crate) fn restrict(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let Some(sums) = &self.sums else {
            return Ok(true);
        };
        let times = times_of(connection, sums)?;
        if let Some((first, last)) = times {
            self.conditions.within(first, last);
        }
        Ok(times.is_some())
    }

    pub(crate) fn query(&self) -> String {
        let (columns, limit) = (list_columns(), self.limit);
        let (conditions, order) = (
            &self.conditions.text,
            self.conditions.newest_first("ended_at_ms"),
        );
        format!("SELECT {columns} FROM calls {conditions} {order} LIMIT {limit}")
    }

    fn shows(&self, call: &Record<'_>) -> bool {
        let is = |wanted: &Option<String>, name| wanted.as_ref().is_none_or(|one| one == name);
        let place = (call.ended_at_ms, call.id);
        let outcome = self.outcome.map(Outcome::as_str);
        is(&self.account_id, call.account_id)
            && is(&self.key_id, call.key_id)
            && is(&self.model, call.model)
            && outcome.is_none_or(|outcome| call.outcome == outcome)
            && (self.seen.as_ref()).is_none_or(|seen| seen.include(call.member_id, call.project_id))
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

/// Entries of an account before ?2, newest first: each table is read through its index and the two are merged.
pub(crate) const ENTRIES: &str = "
    SELECT seq, kind, ref, delta_nano_usd, balance_after_nano_usd, at FROM ledger_entries
    WHERE account_id = ?1 AND seq < ?2
    UNION ALL
    SELECT entry_seq, 'charge', CAST(id AS TEXT), -cost_nano_usd, balance_after_nano_usd, ended_at_ms / 1000
    FROM calls WHERE account_id = ?1 AND entry_seq < ?2
    ORDER BY 1 DESC LIMIT ?3";

/// The account's entries, newest first.
pub(crate) fn entries(
    connection: &Connection,
    account_id: &str,
    before: i64,
    limit: usize,
) -> rusqlite::Result<Vec<Entry>> {
    let mut rows = connection.prepare_cached(ENTRIES)?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = rows.query_map(params![account_id, before, most], read_entry)?;
    let mut entries: Vec<Entry> = rows.collect::<Result<_, _>>()?;
    let unposted = unposted_calls(connection, |record| record.account_id == account_id)?;
    let earlier = unposted.into_iter().filter(|(seq, _)| *seq < before);
    entries.extend(earlier.filter_map(|(seq, call)| {
        let paid = call.charged?;
        Some(Entry {
            seq,
            kind: EntryKind::Charge,
            reference: call.id.to_string(),
            delta: NanoUsd::new(-paid.cost.nanos()),
            balance_after: paid.balance_after,
            at: call.ended_ms.div_euclid(1_000),
        })
    }));
    entries.sort_unstable_by_key(|entry| Reverse(entry.seq));
    entries.truncate(limit);
    Ok(entries)
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
