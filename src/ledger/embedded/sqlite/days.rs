//! Sums of calls by day, key and model, so that pages need not read the calls.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};

use super::record::Record;
use crate::{
    base::{fast_map::FastMap, money::NanoUsd, timestamp},
    ledger::{DEFAULT_PROJECT, DayUse, SumsOf, conditions::Sql},
};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

const POST: &str = "INSERT INTO usage_days
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
    ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,
        charged_calls = charged_calls + excluded.charged_calls,
        prompt_tokens = prompt_tokens + excluded.prompt_tokens,
        cached_tokens = cached_tokens + excluded.cached_tokens,
        cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
        completion_tokens = completion_tokens + excluded.completion_tokens,
        reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
        cost_nano_usd = cost_nano_usd + excluded.cost_nano_usd,
        costed_calls = costed_calls + excluded.costed_calls,
        provider_cost_nano_usd = provider_cost_nano_usd + excluded.provider_cost_nano_usd,
        margin_nano_usd = margin_nano_usd + excluded.margin_nano_usd,
        last_ended_at_ms = max(last_ended_at_ms, excluded.last_ended_at_ms)";

/// The sums of calls that are posted together.
#[derive(Default)]
pub(crate) struct Sums {
    all: FastMap<Of, Sum>,
    /// Names are numbered, so that finding a sum copies no strings.
    numbers: FastMap<Box<str>, usize>,
    names: Vec<Box<str>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Of {
    account_id: usize,
    day: i64,
    model: usize,
    key_id: usize,
    project_id: usize,
}

#[derive(Default)]
struct Sum {
    calls: i64,
    charged: i64,
    prompt: i64,
    cached: i64,
    cache_write: i64,
    completion: i64,
    reasoning: i64,
    cost: i64,
    costed: i64,
    provider_cost: i64,
    margin: i64,
    last_ms: i64,
}

impl Sums {
    pub(crate) fn add(&mut self, record: &Record<'_>) {
        let of = Of {
            account_id: self.number_of(record.account_id),
            day: record.ended_at_ms.div_euclid(DAY_MS),
            model: self.number_of(record.model),
            key_id: self.number_of(record.key_id),
            project_id: self.number_of(record.project_id.unwrap_or(DEFAULT_PROJECT)),
        };
        let sum = self.all.entry(of).or_default();
        sum.calls += 1;
        sum.last_ms = sum.last_ms.max(record.ended_at_ms);
        if let Some(provider_cost) = record.provider_cost {
            sum.costed += 1;
            sum.provider_cost += provider_cost;
            sum.margin -= record.delta() + provider_cost;
        }
        if let Some(paid) = record.paid {
            sum.charged += 1;
            sum.prompt += i64::from(paid.prompt);
            sum.cached += i64::from(paid.cached);
            sum.cache_write += i64::from(paid.cache_write);
            sum.completion += i64::from(paid.completion);
            sum.reasoning += i64::from(paid.reasoning);
            sum.cost += paid.cost;
        }
    }

    fn number_of(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    /// Adds them to the stored sums.
    pub(crate) fn post(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut post = connection.prepare_cached(POST)?;
        for (of, sum) in &self.all {
            let day = timestamp::day(of.day * DAY_MS / 1_000);
            post.execute(params![
                self.names[of.account_id],
                day,
                self.names[of.model],
                self.names[of.key_id],
                self.names[of.project_id],
                sum.calls,
                sum.charged,
                sum.prompt,
                sum.cached,
                sum.cache_write,
                sum.completion,
                sum.reasoning,
                sum.cost,
                sum.costed,
                sum.provider_cost,
                sum.margin,
                sum.last_ms,
            ])?;
        }
        Ok(())
    }
}

/// An account's sums from one day to another.
pub(crate) fn between(
    connection: &Connection,
    account_and_days: &[String; 3],
    sums_of: SumsOf,
) -> rusqlite::Result<Vec<DayUse>> {
    let mut rows = connection.prepare(&sums_of.query(Sql::Lite))?;
    rows.query_map(account_and_days.each_ref(), read)?.collect()
}

/// When each of the account's keys was last used.
pub(crate) fn last_used(
    connection: &Connection,
    account_id: &str,
) -> rusqlite::Result<HashMap<String, i64>> {
    let mut rows = connection.prepare(
        "SELECT key_id, max(last_ended_at_ms) FROM usage_days WHERE account_id = ?1 GROUP BY key_id",
    )?;
    rows.query_map([account_id], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<DayUse> {
    read_sum(row, row.get(0)?)
}

/// Reads the columns after the first, which is the day or another span.
pub(crate) fn read_sum(row: &Row<'_>, day: String) -> rusqlite::Result<DayUse> {
    Ok(DayUse {
        day,
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
        project_id: row.get(11)?,
    })
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}
