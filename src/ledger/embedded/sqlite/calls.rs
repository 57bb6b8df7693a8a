//! Calls, as they are remembered and added up.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::de::DeserializeOwned;

use super::unreadable;
use crate::{
    catalog::Prices,
    ledger::{AnalyticsFilter, AnalyticsRow, Call, CallId, Charged, Outcome},
    money::{NanoUsd, TokenPrice},
    wire::chat::Usage,
};

pub const COLUMNS: &str =
    "id, request_id, account_id, key_id, model, routed_model, upstream, stream,
    outcome, failure, reserved_tokens, held, most, input_price, cached_price, output_price,
    admitted_ms, first_byte_ms, ended_ms, prompt, cached, completion, reasoning, cost,
    balance_before, balance_after, attempts, steps, decision";

/// How many rows a list has at most.
const MAX_ROWS: usize = 10_000;

/// The account's charged calls that ended within these times, newest first.
pub fn usage(
    connection: &Connection,
    account_id: &str,
    from_ms: i64,
    to_ms: i64,
) -> rusqlite::Result<Vec<Call>> {
    // A list does without how hybrids decided, which is long.
    let columns = COLUMNS.replace("decision", "NULL");
    let query = format!(
        "SELECT {columns} FROM calls WHERE account_id = ?1 AND ended_ms >= ?2 AND ended_ms < ?3
             AND cost IS NOT NULL ORDER BY ended_ms DESC, id DESC LIMIT {MAX_ROWS}"
    );
    let mut rows = connection.prepare(&query)?;
    rows.query_map(params![account_id, from_ms, to_ms], read)?
        .collect()
}

/// The call of this number.
pub fn one(connection: &Connection, id: CallId) -> rusqlite::Result<Option<Call>> {
    let query = format!("SELECT {COLUMNS} FROM calls WHERE id = ?1 LIMIT 1");
    let id = i64::try_from(id.0).unwrap_or(i64::MAX);
    let mut rows = connection.prepare_cached(&query)?;
    rows.query_row([id], read).optional()
}

/// The calls whose client was told to quote this ID, newest first.
pub fn with_request_id(connection: &Connection, id: &str) -> rusqlite::Result<Vec<Call>> {
    let query =
        format!("SELECT {COLUMNS} FROM calls WHERE request_id = ?1 ORDER BY id DESC LIMIT 100");
    let mut rows = connection.prepare(&query)?;
    rows.query_map([id], read)?.collect()
}

/// What calls admitted since then have used in the end; where nothing was charged, what the steps used
/// that came before the failure. Calls of several steps may have been admitted long before their last
/// one: they are looked for since `steps_since_ms`.
pub fn tokens_since(
    connection: &Connection,
    admitted_ms: i64,
    steps_since_ms: i64,
) -> rusqlite::Result<Vec<(CallId, u64)>> {
    let first = |ms| i64::try_from(CallId::first_of(ms).0).unwrap_or(i64::MAX);
    let mut rows = connection.prepare(
        "SELECT id, coalesce(
             prompt + completion,
             (SELECT sum(value ->> 'prompt_tokens' + value ->> 'completion_tokens')
                FROM json_each(steps)),
             0
         ) FROM calls WHERE id >= ?1 OR (id >= ?2 AND steps IS NOT NULL)",
    )?;
    let read = |row: &Row<'_>| Ok((CallId(unsigned(row, 0)?), unsigned(row, 1)?));
    rows.query_map([first(admitted_ms), first(steps_since_ms)], read)?
        .collect()
}

pub fn analytics(
    connection: &Connection,
    filter: &AnalyticsFilter,
) -> rusqlite::Result<Vec<AnalyticsRow>> {
    let mut rows = connection.prepare(
        "SELECT date(ended_ms / 1000, 'unixepoch') AS day, account_id, model, count(*), count(cost),
             coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0),
             coalesce(sum(reasoning), 0), coalesce(sum(cost), 0)
         FROM calls
         WHERE ended_ms >= ?1 AND ended_ms < ?2 AND (?3 IS NULL OR account_id = ?3)
             AND (?4 IS NULL OR model = ?4)
         GROUP BY day, account_id, model ORDER BY day DESC, account_id, model",
    )?;
    let read = |row: &Row<'_>| {
        Ok(AnalyticsRow {
            day: row.get(0)?,
            account_id: row.get(1)?,
            model: row.get(2)?,
            calls: unsigned(row, 3)?,
            charged: unsigned(row, 4)?,
            prompt: unsigned(row, 5)?,
            cached: unsigned(row, 6)?,
            completion: unsigned(row, 7)?,
            reasoning: unsigned(row, 8)?,
            cost: NanoUsd::new(row.get(9)?),
        })
    };
    let filter = params![
        filter.from_ms,
        filter.to_ms,
        filter.account_id,
        filter.model
    ];
    rows.query_map(filter, read)?.collect()
}

pub fn read(row: &Row<'_>) -> rusqlite::Result<Call> {
    let price = |column| row.get(column).map(TokenPrice::from_picos);
    let amount = |column| row.get(column).map(NanoUsd::new);
    let outcome: String = row.get(8)?;
    let charged = match row.get::<_, Option<i64>>(23)? {
        None => None,
        Some(cost) => Some(Charged {
            usage: Usage {
                prompt: row.get(19)?,
                cached: row.get(20)?,
                completion: row.get(21)?,
                reasoning: row.get(22)?,
            },
            cost: NanoUsd::new(cost),
            balance_before: amount(24)?,
            balance_after: amount(25)?,
        }),
    };
    Ok(Call {
        id: CallId(unsigned(row, 0)?),
        request_id: row.get(1)?,
        account_id: row.get(2)?,
        key_id: row.get(3)?,
        model: row.get(4)?,
        routed_model: row.get(5)?,
        upstream: row.get::<_, Option<String>>(6)?.map(Arc::from),
        stream: row.get(7)?,
        outcome: Outcome::parse(&outcome).ok_or_else(|| unreadable(8, "outcome"))?,
        failure: row.get(9)?,
        reserved_tokens: unsigned(row, 10)?,
        held: amount(11)?,
        most: amount(12)?,
        prices: Prices {
            input: price(13)?,
            cached_input: price(14)?,
            output: price(15)?,
        },
        admitted_ms: row.get(16)?,
        first_byte_ms: row.get(17)?,
        ended_ms: row.get(18)?,
        attempts: read_list(row, 26)?,
        steps: read_list(row, 27)?,
        decision: row.get(28)?,
        places: Vec::new(),
        charged,
    })
}

fn read_list<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<T>> {
    let list: Option<String> = row.get(column)?;
    let list = list.and_then(|list| serde_json::from_str(&list).ok());
    Ok(list.unwrap_or_default())
}

pub fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}
