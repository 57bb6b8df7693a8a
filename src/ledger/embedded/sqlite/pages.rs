//! Paged lists, each read through an index in the order of its rows.

use std::cmp::Reverse;

use rusqlite::{
    Connection, OptionalExtension as _, Row, ToSql, params, params_from_iter, types::ToSqlOutput,
};

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
        Account, CallsFound, CallsPage, DEFAULT_PROJECT, Entry, EntryKind, Outcome, SeenCalls,
        calls_page::CallsQuery,
        conditions::{Conditions, Sql, Value},
        detail::Detail,
    },
};

/// Selects the calls of a page. It owns its names, because the query runs in another thread.
#[derive(Clone)]
pub(crate) struct Calls {
    account_id: Option<String>,
    key_id: Option<String>,
    model: Option<String>,
    project_id: Option<String>,
    member_id: Option<String>,
    session: Option<String>,
    upstream: Option<String>,
    seen: Option<SeenCalls>,
    /// The rest of the page.
    plain: CallsPage<'static>,
}

impl Calls {
    pub(crate) fn of(page: &CallsPage<'_>) -> Self {
        Self {
            account_id: page.account_id.map(str::to_owned),
            key_id: page.key_id.map(str::to_owned),
            model: page.model.map(str::to_owned),
            project_id: page.project_id.map(str::to_owned),
            member_id: page.member_id.map(str::to_owned),
            session: page.session.map(str::to_owned),
            upstream: page.upstream.map(str::to_owned),
            seen: page.seen.cloned(),
            plain: CallsPage {
                outcome: page.outcome,
                errors_only: page.errors_only,
                from_ms: page.from_ms,
                to_ms: page.to_ms,
                before: page.before,
                limit: page.limit,
                ..CallsPage::default()
            },
        }
    }

    fn page(&self) -> CallsPage<'_> {
        CallsPage {
            account_id: self.account_id.as_deref(),
            key_id: self.key_id.as_deref(),
            model: self.model.as_deref(),
            project_id: self.project_id.as_deref(),
            member_id: self.member_id.as_deref(),
            session: self.session.as_deref(),
            upstream: self.upstream.as_deref(),
            seen: self.seen.as_ref(),
            ..self.plain
        }
    }

    pub(crate) fn find(&self, connection: &Connection) -> rusqlite::Result<CallsFound> {
        let (mut posted, mut floor_ms) = (Vec::new(), None);
        if let Some(page) = self.restricted(connection)? {
            floor_ms = floor_of(connection, &page)?;
            let CallsQuery { text, values } = Self::query(&page.down_to(floor_ms));
            posted = read(connection, &text, params_from_iter(&values))?;
        }
        let limit = self.plain.limit;
        let calls = with_unposted(connection, posted, limit, |call| self.shows(call))?;
        Ok(CallsFound::new(calls, limit, floor_ms))
    }

    /// The page restricted to the times of the sums; `None` if there are none, and so no posted calls.
    pub(crate) fn restricted(
        &self,
        connection: &Connection,
    ) -> rusqlite::Result<Option<CallsPage<'_>>> {
        let page = self.page();
        let Some(sums) = Conditions::of_sums(Sql::Lite, &page) else {
            return Ok(Some(page));
        };
        let times = times_of(connection, &sums)?;
        Ok(times.map(|(first, last)| page.within(first, last)))
    }

    pub(crate) fn query(page: &CallsPage<'_>) -> CallsQuery {
        page.query(Sql::Lite, &list_columns())
    }

    fn shows(&self, call: &Record<'_>) -> bool {
        let is =
            |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|one| one == name);
        let place = (call.ended_at_ms, call.id);
        let page = &self.plain;
        let outcome = Outcome::parse(call.outcome);
        is(&self.account_id, call.account_id)
            && is(&self.key_id, call.key_id)
            && is(&self.model, call.model)
            && is(&self.project_id, call.project_id.unwrap_or(DEFAULT_PROJECT))
            && is(&self.member_id, call.member_id.unwrap_or_default())
            && is(&self.upstream, call.upstream.unwrap_or_default())
            && self.has_session(call)
            && page.outcome.is_none_or(|wanted| outcome == Some(wanted))
            && (!page.errors_only || outcome.is_some_and(Outcome::is_error))
            && page.from_ms.is_none_or(|from| call.ended_at_ms >= from)
            && page.to_ms.is_none_or(|to| call.ended_at_ms < to)
            && (self.seen.as_ref()).is_none_or(|seen| seen.include(call.member_id, call.project_id))
            && page.before.is_none_or(|(ms, id)| place < (ms, number(id)))
    }

    fn has_session(&self, call: &Record<'_>) -> bool {
        let Some(wanted) = &self.session else {
            return true;
        };
        let agent = Detail::read(call.detail).and_then(|detail| detail.agent);
        agent.is_some_and(|agent| agent.session.as_deref() == Some(wanted.as_str()))
    }
}

/// The end of the last call that a page may look at.
fn floor_of(connection: &Connection, page: &CallsPage<'_>) -> rusqlite::Result<Option<i64>> {
    let Some(CallsQuery { text, values }) = page.floor_query(Sql::Lite) else {
        return Ok(None);
    };
    let mut query = connection.prepare_cached(&text)?;
    query
        .query_row(params_from_iter(&values), |row| row.get(0))
        .optional()
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
