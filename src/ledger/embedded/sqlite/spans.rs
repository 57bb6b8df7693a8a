//! Sums by hour or minute and latencies, of rows and of the redo log.

use rusqlite::{Connection, params_from_iter};

use super::{days::read_sum, redo_log::unposted_calls};
use crate::{
    base::timestamp,
    ledger::{
        Call, DayUse, Timing,
        conditions::{Sql, Value},
        spans::{self, SpansPage},
    },
};

pub(crate) fn sums(connection: &Connection, page: &SpansPage) -> rusqlite::Result<Vec<DayUse>> {
    let (query, values) = spans::sums(Sql::Lite, page);
    let mut rows = connection.prepare_cached(&query)?;
    let rows = rows.query_map(params_from_iter(&values), |row| {
        let start_ms: i64 = row.get(0)?;
        read_sum(row, timestamp::shown(start_ms.div_euclid(1_000)))
    })?;
    let mut sums: Vec<DayUse> = rows.collect::<Result<_, _>>()?;
    // Usually none, because the redo log was posted before. Their sums are rows of their own.
    let unposted = unposted_calls(connection, |record| {
        (page.from_ms..page.to_ms).contains(&record.ended_at_ms)
            && record.account_id == page.account_id
            && (page.seen.as_ref())
                .is_none_or(|seen| seen.include(record.member_id, record.project_id))
    })?;
    sums.extend(unposted.iter().map(|(_, call)| sum_of(call, page.step_ms)));
    Ok(sums)
}

fn sum_of(call: &Call, step_ms: i64) -> DayUse {
    let start_ms = call.ended_ms.div_euclid(step_ms).saturating_mul(step_ms);
    let charged = call.charged;
    let usage = charged.map(|charged| charged.usage).unwrap_or_default();
    DayUse {
        day: timestamp::shown(start_ms.div_euclid(1_000)),
        key_id: call.payer.key_id.clone(),
        project_id: call.payer.project().to_owned(),
        model: call.model.clone(),
        calls: 1,
        charged: charged.is_some().into(),
        prompt: usage.prompt.into(),
        cached: usage.cached.into(),
        completion: usage.completion.into(),
        reasoning: usage.reasoning.into(),
        cost: charged.map(|charged| charged.cost).unwrap_or_default(),
        last_ms: call.ended_ms,
    }
}

/// Latencies of posted calls: what is in the redo log is as old as a second.
pub(crate) fn timings(
    connection: &Connection,
    query: &str,
    values: &[Value],
) -> rusqlite::Result<Vec<Timing>> {
    let mut rows = connection.prepare_cached(query)?;
    rows.query_map(params_from_iter(values), |row| {
        Ok(Timing {
            key_id: row.get(0)?,
            project_id: row.get(1)?,
            model: row.get(2)?,
            first_ms: row.get(3)?,
            total_ms: row.get(4)?,
        })
    })?
    .collect()
}
