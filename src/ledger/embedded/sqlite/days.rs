//! Calls added up by day, key and model, so that a page need not go through them.

use std::collections::HashMap;

use rusqlite::{Connection, Row};

use super::calls::unsigned;
use crate::{ledger::DayUse, money::NanoUsd};

/// The account's sums from one day to another, by day, then model, then key.
pub fn between(
    connection: &Connection,
    account_id: &str,
    from_day: &str,
    to_day: &str,
) -> rusqlite::Result<Vec<DayUse>> {
    let mut rows = connection.prepare(
        "SELECT day, key_id, model, calls, charged, prompt, cached, completion, reasoning, cost, last_ms
         FROM usage_days WHERE account_id = ?1 AND day >= ?2 AND day <= ?3
         ORDER BY day, model, key_id",
    )?;
    rows.query_map([account_id, from_day, to_day], read)?
        .collect()
}

/// When each key of the account was last used.
pub fn last_used(
    connection: &Connection,
    account_id: &str,
) -> rusqlite::Result<HashMap<String, i64>> {
    let mut rows = connection.prepare(
        "SELECT key_id, max(last_ms) FROM usage_days WHERE account_id = ?1 GROUP BY key_id",
    )?;
    rows.query_map([account_id], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<DayUse> {
    Ok(DayUse {
        day: row.get(0)?,
        key_id: row.get(1)?,
        model: row.get(2)?,
        calls: unsigned(row, 3)?,
        charged: unsigned(row, 4)?,
        prompt: unsigned(row, 5)?,
        cached: unsigned(row, 6)?,
        completion: unsigned(row, 7)?,
        reasoning: unsigned(row, 8)?,
        cost: NanoUsd::new(row.get(9)?),
        last_ms: row.get(10)?,
    })
}
