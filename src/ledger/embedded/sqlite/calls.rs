//! Queries and sums of calls: of their rows, and of the redo log.

use std::{cmp::Reverse, collections::BTreeMap};

use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use super::{
    record::{COLUMNS, Record, framed, list_columns, number, unsigned},
    redo_log::{unposted_calls, unposted_records},
};
use crate::{
    base::{money::NanoUsd, timestamp},
    ledger::{AnalyticsFilter, AnalyticsRow, Call, CallId},
};

/// The most rows of a list.
const MAX_ROWS: usize = 10_000;
/// The most calls with one request ID.
const MAX_OF_REQUEST: usize = 100;

/// The account's charged calls that ended between these times, newest first.
pub(crate) fn usage(
    connection: &Connection,
    account_id: &str,
    from_ms: i64,
    to_ms: i64,
) -> rusqlite::Result<Vec<Call>> {
    let columns = list_columns();
    let query = format!(
        "SELECT {columns} FROM calls WHERE account_id = ?1 AND ended_at_ms >= ?2 AND ended_at_ms < ?3
             AND cost_nano_usd IS NOT NULL ORDER BY ended_at_ms DESC, id DESC LIMIT {MAX_ROWS}"
    );
    let calls = read(connection, &query, params![account_id, from_ms, to_ms])?;
    with_unposted(connection, calls, MAX_ROWS, |record| {
        let in_range = (from_ms..to_ms).contains(&record.ended_at_ms);
        in_range && record.account_id == account_id && record.paid.is_some()
    })
}

/// The call with this ID.
pub(crate) fn one(connection: &Connection, id: CallId) -> rusqlite::Result<Option<Call>> {
    let id = number(id);
    let query = format!("SELECT {COLUMNS} FROM calls WHERE id = ?1");
    let mut query = connection.prepare_cached(&query)?;
    let posted = query.query_row([id], |row| Record::from_row(row)?.call());
    if let Some(call) = posted.optional()? {
        return Ok(Some(call));
    }
    let unposted = unposted_calls(connection, |record| record.id == id)?;
    Ok(unposted.into_iter().next().map(|(_, call)| call))
}

/// The calls with this `X-Request-ID`, and those whose response a request with it got, newest first: of all accounts, or
/// of one.
pub(crate) fn with_request_id(
    connection: &Connection,
    account_id: Option<&str>,
    id: &str,
) -> rusqlite::Result<Vec<Call>> {
    let query = format!(
        "SELECT {COLUMNS} FROM calls WHERE id IN (SELECT id FROM calls WHERE request_id = ?1
             UNION SELECT call_id FROM replays WHERE request_id = ?1) AND (?2 IS NULL OR account_id = ?2)
         ORDER BY id DESC LIMIT {MAX_OF_REQUEST}"
    );
    let mut calls = read(connection, &query, params![id, account_id])?;
    let unposted = unposted_calls(connection, |record| {
        record.request_id == id && account_id.is_none_or(|account| record.account_id == account)
    })?;
    calls.extend(unposted.into_iter().map(|(_, call)| call));
    calls.sort_by_key(|call| Reverse(call.id));
    calls.truncate(MAX_OF_REQUEST);
    Ok(calls)
}

/// The tokens used by calls admitted since then; if nothing was charged, those of the steps before the failure. Calls
/// with several steps may have been admitted long before their last step: they are included since `steps_since_ms`.
pub(crate) fn tokens_since(
    connection: &Connection,
    admitted_ms: i64,
    steps_since_ms: i64,
) -> rusqlite::Result<Vec<(CallId, u64)>> {
    let first = |ms| number(CallId::first_of(ms));
    let (since, steps_since) = (first(admitted_ms), first(steps_since_ms));
    let mut found = Vec::new();
    let charged = "SELECT id, prompt_tokens + completion_tokens FROM calls
        WHERE id >= ?1 AND id <= ?2 AND cost_nano_usd IS NOT NULL";
    let uncharged = format!(
        "SELECT {COLUMNS} FROM calls WHERE id >= ?1 AND id <= ?2 AND cost_nano_usd IS NULL"
    );
    let with_steps = format!(
        "SELECT {COLUMNS} FROM calls
         WHERE id >= ?1 AND id <= ?2 AND json_extract(detail, '$.steps') IS NOT NULL"
    );
    let mut charged = connection.prepare_cached(charged)?;
    let charged = charged.query_map([since, i64::MAX], |row| {
        Ok((call_id(row.get(0)?), unsigned(row.get(1)?)))
    })?;
    for call in charged {
        found.push(call?);
    }
    let used = |record: &Record<'_>| Ok((call_id(record.id), record.used_tokens()?));
    for (query, from, to) in [
        (uncharged, since, i64::MAX),
        (with_steps, steps_since, since - 1),
    ] {
        let mut rows = connection.prepare_cached(&query)?;
        let rows = rows.query_map([from, to], |row| used(&Record::from_row(row)?))?;
        for row in rows {
            found.push(row?);
        }
    }
    for framed in framed(&unposted_records(connection)?) {
        let record = framed?.read()?;
        if record.id >= since || (record.id >= steps_since && record.has_steps()?) {
            found.push(used(&record)?);
        }
    }
    Ok(found)
}

fn call_id(number: i64) -> CallId {
    CallId(unsigned(number))
}

/// Sums of calls by day, account and model: the latest day first.
pub(crate) fn analytics(
    connection: &Connection,
    filter: &AnalyticsFilter,
) -> rusqlite::Result<Vec<AnalyticsRow>> {
    let (account_id, model) = (filter.account_id.as_deref(), filter.model.as_deref());
    // Without an account the condition must not hide the index of times.
    let account = account_id.map_or("?3 IS NULL", |_| "account_id = ?3");
    let query = format!(
        "SELECT date(ended_at_ms / 1000, 'unixepoch') AS day, account_id, model, count(*), count(cost_nano_usd),
             coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
             coalesce(sum(completion_tokens), 0), coalesce(sum(reasoning_tokens), 0),
             coalesce(sum(cost_nano_usd), 0), coalesce(sum(cache_write_tokens), 0),
             coalesce(sum(provider_cost_nano_usd), 0),
             coalesce(sum(coalesce(cost_nano_usd, 0) - provider_cost_nano_usd), 0),
             count(*) FILTER (WHERE coalesce(cost_nano_usd, 0) < provider_cost_nano_usd)
         FROM calls
         WHERE ended_at_ms >= ?1 AND ended_at_ms < ?2 AND {account} AND (?4 IS NULL OR model = ?4)
         GROUP BY day, account_id, model"
    );
    let mut days = BTreeMap::new();
    let mut rows = connection.prepare_cached(&query)?;
    let rows = rows.query_map(
        params![filter.from_ms, filter.to_ms, account_id, model],
        read_sums,
    )?;
    for row in rows {
        let row = row?;
        let of = (
            Reverse(row.day.clone()),
            row.account_id.clone(),
            row.model.clone(),
        );
        days.insert(of, row);
    }
    let unposted = unposted_calls(connection, |record| {
        (filter.from_ms..filter.to_ms).contains(&record.ended_at_ms)
            && account_id.is_none_or(|account_id| record.account_id == account_id)
            && model.is_none_or(|model| record.model == model)
    })?;
    for (_, call) in unposted {
        let day = timestamp::day(call.ended_ms.div_euclid(1_000));
        let of = (
            Reverse(day.clone()),
            call.account_id.clone(),
            call.model.clone(),
        );
        let row = days.entry(of).or_insert_with(|| AnalyticsRow {
            day,
            account_id: call.account_id.clone(),
            model: call.model.clone(),
            ..AnalyticsRow::default()
        });
        row.add(&call);
    }
    Ok(days.into_values().collect())
}

fn read_sums(row: &Row<'_>) -> rusqlite::Result<AnalyticsRow> {
    let count = |column| row.get(column).map(unsigned);
    let amount = |column| row.get(column).map(NanoUsd::new);
    Ok(AnalyticsRow {
        day: row.get(0)?,
        account_id: row.get(1)?,
        model: row.get(2)?,
        calls: count(3)?,
        charged: count(4)?,
        prompt: count(5)?,
        cached: count(6)?,
        completion: count(7)?,
        reasoning: count(8)?,
        cost: amount(9)?,
        cache_write: count(10)?,
        provider_cost: amount(11)?,
        margin: amount(12)?,
        below_cost: count(13)?,
    })
}

/// Reads the calls that a query selects.
pub(crate) fn read(
    connection: &Connection,
    query: &str,
    params: impl Params,
) -> rusqlite::Result<Vec<Call>> {
    let mut rows = connection.prepare_cached(query)?;
    rows.query_map(params, |row| Record::from_row(row)?.call())?
        .collect()
}

/// Adds the matching calls of the redo log to a list of posted ones, newest first.
pub(crate) fn with_unposted(
    connection: &Connection,
    mut calls: Vec<Call>,
    limit: usize,
    is_wanted: impl Fn(&Record<'_>) -> bool,
) -> rusqlite::Result<Vec<Call>> {
    let unposted = unposted_calls(connection, is_wanted)?;
    if unposted.is_empty() {
        return Ok(calls);
    }
    let short = |(_, call)| Call {
        decision: None, // as in the rows
        ..call
    };
    calls.extend(unposted.into_iter().map(short));
    calls.sort_by_key(|call| Reverse((call.ended_ms, call.id)));
    calls.truncate(limit);
    Ok(calls)
}
