//! Calls added up by day, key and model, so that a page need not go through them.
//!
//! What is committed is added up in memory and written once in a while: beside each call it would cost a
//! third of the speed. What a process that died had not written yet is added up anew from the calls when
//! the file is opened.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};

use super::{Database, calls::unsigned};
use crate::{
    ledger::{Call, DayUse},
    money::NanoUsd,
};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

const ADD: &str = "INSERT INTO usage_days
    VALUES (?1, date(?2 * 86400, 'unixepoch'), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
    ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, charged = charged + excluded.charged,
        prompt = prompt + excluded.prompt, cached = cached + excluded.cached,
        completion = completion + excluded.completion, reasoning = reasoning + excluded.reasoning,
        cost = cost + excluded.cost, last_ms = max(last_ms, excluded.last_ms)";

/// From the first millisecond of a day on.
const ADD_ANEW: &str = "INSERT OR REPLACE INTO usage_days
    SELECT account_id, date(ended_ms / 1000, 'unixepoch') AS day, model, key_id, count(*), count(cost),
        coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0),
        coalesce(sum(reasoning), 0), coalesce(sum(cost), 0), max(ended_ms)
    FROM calls WHERE ended_ms >= ?1 GROUP BY account_id, day, model, key_id";

/// What is not in the table yet.
#[derive(Default)]
pub struct Sums {
    /// Of the open transaction.
    open: HashMap<Of, Sum>,
    /// Of those that were committed.
    due: HashMap<Of, Sum>,
    /// Since then the table may lack something: it is to be added up anew.
    anew_from_ms: Option<i64>,
    /// Someone wants to read the table once the open transaction is committed.
    wanted: bool,
}

/// Whose calls, with what, on which day since 1970.
#[derive(PartialEq, Eq, Hash)]
struct Of {
    account_id: String,
    day: i64,
    model: String,
    key_id: String,
}

#[derive(Default)]
struct Sum {
    calls: i64,
    charged: i64,
    prompt: i64,
    cached: i64,
    completion: i64,
    reasoning: i64,
    cost: i64,
    last_ms: i64,
}

impl Sums {
    /// What an earlier transaction did that came to nothing is forgotten.
    pub fn begin(&mut self) {
        self.open.clear();
        self.wanted = false;
    }

    fn add(&mut self, call: &Call) {
        let of = Of {
            account_id: call.account_id.clone(),
            day: call.ended_ms.div_euclid(DAY_MS),
            model: call.model.clone(),
            key_id: call.key_id.clone(),
        };
        self.open.entry(of).or_default().add(&Sum::of(call));
    }

    pub fn committed(&mut self) {
        for (of, sum) in self.open.drain() {
            self.due.entry(of).or_default().add(&sum);
        }
    }
}

impl Sum {
    fn of(call: &Call) -> Self {
        let mut sum = Self {
            calls: 1,
            last_ms: call.ended_ms,
            ..Self::default()
        };
        if let Some(charged) = call.charged {
            let usage = charged.usage;
            sum.charged = 1;
            sum.prompt = usage.prompt.into();
            sum.cached = usage.cached.into();
            sum.completion = usage.completion.into();
            sum.reasoning = usage.reasoning.into();
            sum.cost = charged.cost.nanos();
        }
        sum
    }

    fn add(&mut self, more: &Self) {
        self.calls += more.calls;
        self.charged += more.charged;
        self.prompt += more.prompt;
        self.cached += more.cached;
        self.completion += more.completion;
        self.reasoning += more.reasoning;
        self.cost = self.cost.saturating_add(more.cost);
        self.last_ms = self.last_ms.max(more.last_ms);
    }
}

impl Database {
    /// Adds up anew what an earlier process may not have written: the last day that it did, the one before
    /// it, for calls that ended about midnight, and whatever came after them.
    pub fn catch_up(&self) -> rusqlite::Result<()> {
        let from = "SELECT coalesce(unixepoch(max(day), '-1 day') * 1000, 0) FROM usage_days";
        let from = self.connection.query_row(from, [], |row| row.get(0))?;
        self.sums.borrow_mut().anew_from_ms = Some(from);
        if let Err(error) = self.write_sums() {
            tracing::warn!(%error, "calls could not be added up yet");
        }
        Ok(())
    }

    /// A call was written within the open transaction.
    pub(super) fn add_up(&self, call: &Call) {
        self.sums.borrow_mut().add(call);
    }

    /// Within the open transaction: what was committed before it, and with it, is wanted in the table.
    pub fn want_sums(&self) {
        self.sums.borrow_mut().wanted = true;
    }

    pub fn sums_are_wanted(&self) -> bool {
        self.sums.borrow().wanted
    }

    /// Whether there is something to write.
    pub fn has_sums(&self) -> bool {
        let sums = self.sums.borrow();
        !sums.due.is_empty() || sums.anew_from_ms.is_some()
    }

    /// Writes them in a transaction of their own. Where that fails they stay for the next time.
    pub fn write_sums(&self) -> rusqlite::Result<()> {
        if !self.has_sums() {
            return Ok(());
        }
        let mut sums = self.sums.borrow_mut();
        let transaction = self.connection.unchecked_transaction()?;
        let mut add = transaction.prepare_cached(ADD)?;
        for (of, sum) in &sums.due {
            add.execute(params![
                of.account_id,
                of.day,
                of.model,
                of.key_id,
                sum.calls,
                sum.charged,
                sum.prompt,
                sum.cached,
                sum.completion,
                sum.reasoning,
                sum.cost,
                sum.last_ms,
            ])?;
        }
        drop(add);
        // What was just added is among the calls: those days are replaced, not added to.
        if let Some(from) = sums.anew_from_ms {
            transaction.execute(ADD_ANEW, [from])?;
        }
        transaction.commit()?;
        sums.due.clear();
        sums.anew_from_ms = None;
        Ok(())
    }
}

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
