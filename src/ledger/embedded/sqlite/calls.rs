//! Queries and sums of calls: of the blocks that may contain them, and of the redo log.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, RangeInclusive},
};

use rusqlite::{Connection, Params, params};

use super::{
    blocks::{ENDS_APART, IDS_APART},
    names,
    new_calls::not_entered,
    newest::{Newest, Wanted},
    record::{Framed, Record, framed, number},
};
use crate::{
    base::{money::NanoUsd, timestamp},
    ledger::{AnalyticsFilter, AnalyticsRow, Call, CallId},
};

/// The most rows of a list.
const MAX_ROWS: usize = 10_000;
/// The most calls with one request ID.
const MAX_OF_REQUEST: usize = 100;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Blocks that may have call IDs from ?1 to ?2; ?3 is the earliest first ID of such a block.
pub(crate) const BY_ID: &str = "SELECT records FROM call_blocks INDEXED BY blocks_by_id
    WHERE first_id >= ?3 AND first_id <= ?2 AND last_id >= ?1 ORDER BY first_id DESC";

const STEPPED_BY_ID: &str = "SELECT records FROM call_blocks INDEXED BY stepped_blocks
    WHERE stepped > 0 AND first_id >= ?3 AND first_id <= ?2 AND last_id >= ?1";

/// Blocks that may have calls that ended between these times.
const BY_TIME: &str = "SELECT records FROM call_blocks INDEXED BY blocks_by_time
    WHERE last_ms >= ?1 AND last_ms <= ?3 AND first_ms < ?2";

/// The account's charged calls that ended between these times, newest first.
pub(crate) fn usage(
    connection: &Connection,
    account_id: &str,
    from_ms: i64,
    to_ms: i64,
) -> rusqlite::Result<Vec<Call>> {
    let wanted = Wanted {
        account_id: Some(account_id),
        only_odd: false,
        entered: Some(from_ms..=to_ms),
    };
    let is_wanted = |record: &Record<'_>| {
        let in_range = (from_ms..to_ms).contains(&record.ended_ms);
        in_range && record.account_id == account_id && record.paid.is_some()
    };
    Newest::find(connection, &wanted, MAX_ROWS, is_wanted)
}

/// The call with this ID.
pub(crate) fn one(connection: &Connection, id: CallId) -> rusqlite::Result<Option<Call>> {
    let (id, mut found) = (number(id), None);
    with_ids(connection, BY_ID, id..=id, |framed| {
        found = Some(framed.read()?.call()?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// The calls with this `X-Request-ID`, newest first.
pub(crate) fn with_request_id(connection: &Connection, id: &str) -> rusqlite::Result<Vec<Call>> {
    let mut found = BTreeMap::new();
    if let Some(ids) = names::ids_soon_after(id) {
        with_ids(connection, BY_ID, ids, |framed| {
            let record = framed.read()?;
            if record.request_id == id {
                found.insert(record.id, record.call()?);
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let named = "SELECT id FROM call_names WHERE request_id = ?1 ORDER BY id DESC LIMIT 100";
    let mut named = connection.prepare_cached(named)?;
    for call in named.query_map([id], |row| row.get::<_, i64>(0))? {
        let call = CallId(u64::try_from(call?).unwrap_or(0));
        found.extend(one(connection, call)?.map(|call| (number(call.id), call)));
    }
    // Calls of the redo log are not indexed by name yet.
    for framed in framed(&not_entered(connection)?) {
        let record = framed?.read()?;
        if record.request_id == id {
            found.insert(record.id, record.call()?);
        }
    }
    let newest_first = found.into_values().rev();
    Ok(newest_first.take(MAX_OF_REQUEST).collect())
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
    let mut used = Vec::new();
    let mut add = |framed: Framed<'_>| {
        used.push((CallId(u64::try_from(framed.id).unwrap_or(0)), framed.used));
        Ok(ControlFlow::Continue(()))
    };
    with_ids(connection, BY_ID, since..=i64::MAX, &mut add)?;
    with_ids(
        connection,
        STEPPED_BY_ID,
        steps_since..=since - 1,
        |framed| {
            if framed.read()?.steps.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            add(framed)
        },
    )?;
    Ok(used)
}

pub(crate) fn analytics(
    connection: &Connection,
    filter: &AnalyticsFilter,
) -> rusqlite::Result<Vec<AnalyticsRow>> {
    let (account_id, model) = (filter.account_id.as_deref(), filter.model.as_deref());
    let mut days: BTreeMap<(i64, String, String), AnalyticsRow> = BTreeMap::new();
    let mut add = |framed: Framed<'_>| {
        let record = framed.read()?;
        let wanted = (filter.from_ms..filter.to_ms).contains(&record.ended_ms)
            && account_id.is_none_or(|account_id| record.account_id == account_id)
            && model.is_none_or(|model| record.model == model);
        if wanted {
            let day = record.ended_ms.div_euclid(DAY_MS);
            let of = (-day, record.account_id.to_owned(), record.model.to_owned());
            let row = days.entry(of).or_insert_with(|| nothing(day, &record));
            add_to(row, &record);
        }
        Ok(ControlFlow::Continue(()))
    };
    let until = filter.to_ms.saturating_add(ENDS_APART);
    let times = [filter.from_ms, filter.to_ms, until];
    let _ = each(connection, BY_TIME, times, &mut add)?;
    for framed in framed(&not_entered(connection)?) {
        let _ = add(framed?)?;
    }
    Ok(days.into_values().collect())
}

fn nothing(day: i64, record: &Record<'_>) -> AnalyticsRow {
    AnalyticsRow {
        day: timestamp::day(day * DAY_MS / 1_000),
        account_id: record.account_id.to_owned(),
        model: record.model.to_owned(),
        calls: 0,
        charged: 0,
        prompt: 0,
        cached: 0,
        completion: 0,
        reasoning: 0,
        cost: NanoUsd::default(),
        cache_write: 0,
        provider_cost: NanoUsd::default(),
        margin: NanoUsd::default(),
        below_cost: 0,
    }
}

fn add_to(row: &mut AnalyticsRow, record: &Record<'_>) {
    row.calls += 1;
    if let Some(provider_cost) = record.more.provider_cost {
        let charged = record.paid.map_or(0, |paid| paid.cost);
        row.below_cost += u64::from(charged < provider_cost);
        let plus = |sum: NanoUsd, more: i64| NanoUsd::new(sum.nanos().saturating_add(more));
        row.provider_cost = plus(row.provider_cost, provider_cost);
        row.margin = plus(row.margin, charged.saturating_sub(provider_cost));
    }
    if let Some(paid) = record.paid {
        row.charged += 1;
        row.prompt += u64::from(paid.prompt);
        row.cached += u64::from(paid.cached);
        row.cache_write += u64::from(record.more.cache_write);
        row.completion += u64::from(paid.completion);
        row.reasoning += u64::from(paid.reasoning);
        row.cost = NanoUsd::new(row.cost.nanos().saturating_add(paid.cost));
    }
}

type See<'a> = &'a mut dyn FnMut(Framed<'_>) -> rusqlite::Result<ControlFlow<()>>;

/// Passes the calls with these IDs, including those of the redo log, to `see`, until it breaks.
fn with_ids(
    connection: &Connection,
    query: &str,
    ids: RangeInclusive<i64>,
    mut see: impl FnMut(Framed<'_>) -> rusqlite::Result<ControlFlow<()>>,
) -> rusqlite::Result<()> {
    let mut see = |framed: Framed<'_>| {
        if ids.contains(&framed.id) {
            return see(framed);
        }
        Ok(ControlFlow::Continue(()))
    };
    let earliest = ids.start().saturating_sub(IDS_APART);
    let numbers = params![ids.start(), ids.end(), earliest];
    if each(connection, query, numbers, &mut see)?.is_break() {
        return Ok(());
    }
    for framed in framed(&not_entered(connection)?) {
        if see(framed?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Passes the calls of the blocks that a query selects to `see`.
fn each(
    connection: &Connection,
    query: &str,
    params: impl Params,
    see: See<'_>,
) -> rusqlite::Result<ControlFlow<()>> {
    let mut rows = connection.prepare_cached(query)?;
    let mut rows = rows.query(params)?;
    while let Some(row) = rows.next()? {
        for framed in framed(row.get_ref(0)?.as_blob()?) {
            if see(framed?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}
