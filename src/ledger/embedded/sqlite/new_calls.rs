//! Calls that have just ended: written down at once, entered where they are looked for soon after.
//!
//! A call has its place in the list of calls, in the books and in the sums of its day, each with its indexes.
//! To write a page of every one of them for a single charge would cost more than all else that is done for it.
//! So a charge adds one row to the end of one table, which is all that its transaction writes. Once in a while,
//! and before anybody looks, all new rows are entered together in one transaction. Until then they count
//! wherever something is added up: when the file is loaded, and in an audit.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rusqlite::{Connection, Row, params};
use serde::Serialize;

use super::{Database, unreadable};
use crate::{
    ledger::{
        Call, Charged,
        credit::{Charge, Left},
    },
    money::NanoUsd,
};

/// Told again of what was entered before, the first telling counts: it is the one that was charged.
const FORGET_KNOWN: &str =
    "DELETE FROM new_calls WHERE EXISTS (SELECT 1 FROM calls WHERE calls.id = new_calls.id)";

const ENTER_SUMS: &str = "INSERT INTO usage_days
    SELECT account_id, date(ended_ms / 1000, 'unixepoch') AS day, model, key_id, count(*), count(cost),
        coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0),
        coalesce(sum(reasoning), 0), coalesce(sum(cost), 0), max(ended_ms)
    FROM new_calls WHERE true GROUP BY account_id, ended_ms / 86400000, model, key_id
    ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, charged = charged + excluded.charged,
        prompt = prompt + excluded.prompt, cached = cached + excluded.cached,
        completion = completion + excluded.completion, reasoning = reasoning + excluded.reasoning,
        cost = cost + excluded.cost, last_ms = max(last_ms, excluded.last_ms)";

const ENTER_CHARGES: &str =
    "INSERT INTO ledger_entries (account_id, kind, ref, delta, balance_after, at)
    SELECT account_id, 'charge', CAST(id AS TEXT), balance_after - balance_before, balance_after,
        ended_ms / 1000
    FROM new_calls WHERE cost IS NOT NULL ORDER BY seq";

/// What is known of rows that are not entered yet.
#[derive(Default)]
pub struct News {
    rows: usize,
    last_seq: i64,
    /// What they leave of grants, and what accounts owe since.
    left: HashMap<Arc<str>, NanoUsd>,
    debts: HashMap<Arc<str>, NanoUsd>,
    /// Someone wants to read them once the open transaction is committed.
    wanted: bool,
    /// The last time they could not be entered: whoever reads has to look at them as well.
    pub behind: Arc<AtomicBool>,
}

impl News {
    pub fn begin(&mut self) {
        self.wanted = false;
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// There are none any more.
    fn clear(&mut self) {
        self.rows = 0;
        self.left.clear();
        self.debts.clear();
    }

    fn leave(&mut self, account_id: &str, left: &[Left], debt: Option<NanoUsd>) {
        for left in left {
            self.left.insert(left.grant_id.clone(), left.remaining);
        }
        if let Some(debt) = debt {
            self.debts.insert(account_id.into(), debt);
        }
    }

    /// What is left of a grant, where it is not what the grant's own row says.
    pub fn left_of(&self, grant_id: &str) -> Option<NanoUsd> {
        self.left.get(grant_id).copied()
    }

    pub fn debt_of(&self, account_id: &str) -> Option<NanoUsd> {
        self.debts.get(account_id).copied()
    }
}

impl Database {
    /// Writes down how a call ended, and what its charge did.
    pub fn insert_call(&self, call: &Call, charge: Option<&Charge>) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        let (prices, charged) = (call.prices, call.charged);
        let usage = charged.map(|charged| charged.usage);
        let nanos = |amount: fn(Charged) -> NanoUsd| charged.map(amount).map(NanoUsd::nanos);
        let left = charge.map_or(&[][..], |charge| &charge.left);
        let debt = charge.and_then(|charge| charge.debt);
        let inserted = self
            .connection
            .prepare_cached(
                "INSERT OR IGNORE INTO new_calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                     ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27,
                     ?28, ?29, ?30, ?31, ?32)",
            )?
            .execute(params![
                i64::try_from(call.id.0).unwrap_or(i64::MAX),
                call.request_id,
                call.account_id,
                call.key_id,
                call.model,
                call.routed_model,
                call.upstream,
                call.stream,
                call.outcome.as_str(),
                call.failure,
                i64::try_from(call.reserved_tokens).unwrap_or(i64::MAX),
                call.held.nanos(),
                call.most.nanos(),
                prices.input.picos(),
                prices.cached_input.picos(),
                prices.output.picos(),
                call.admitted_ms,
                call.first_byte_ms,
                call.ended_ms,
                usage.map(|usage| usage.prompt),
                usage.map(|usage| usage.cached),
                usage.map(|usage| usage.completion),
                usage.map(|usage| usage.reasoning),
                nanos(|charged| charged.cost),
                nanos(|charged| charged.balance_before),
                nanos(|charged| charged.balance_after),
                json_list(&call.attempts),
                json_list(&call.steps),
                call.decision,
                news.last_seq + 1,
                lines(left),
                debt.map(NanoUsd::nanos),
            ])?;
        if inserted > 0 {
            news.last_seq += 1;
            news.rows += 1;
            news.leave(&call.account_id, left, debt);
        } else if charge.is_some() {
            // Told again it would be no charge: this is another call of the same number.
            return Err(rusqlite::Error::StatementChangedRows(inserted));
        }
        Ok(())
    }

    /// Within the open transaction: what was written before it, and in it, is wanted where it is looked for.
    pub fn want_news(&self) {
        self.news.borrow_mut().wanted = true;
    }

    pub fn news_are_wanted(&self) -> bool {
        self.news.borrow().wanted
    }

    /// How many rows are not entered yet.
    pub fn news(&self) -> usize {
        self.news.borrow().rows
    }

    /// Whether they could not be entered the last time.
    pub fn is_behind(&self) -> bool {
        self.news.borrow().behind.load(Relaxed)
    }

    /// Nothing can be entered just now.
    pub fn fall_behind(&self) {
        let news = self.news.borrow();
        news.behind.store(news.rows > 0, Relaxed);
    }

    /// Enters all of them, within the open transaction.
    pub fn enter_news(&self) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        if news.rows == 0 {
            return Ok(());
        }
        self.enter(&news)?;
        news.clear();
        Ok(())
    }

    /// The same, in a transaction of its own. Where that fails, they stay for the next time.
    pub fn enter_news_alone(&self) -> rusqlite::Result<()> {
        let mut news = self.news.borrow_mut();
        let entered = if news.rows == 0 {
            Ok(())
        } else {
            let transaction = self.connection.unchecked_transaction();
            transaction.and_then(|transaction| {
                self.enter(&news)?;
                transaction.commit()
            })
        };
        news.behind.store(entered.is_err(), Relaxed);
        entered?;
        news.clear();
        Ok(())
    }

    fn enter(&self, news: &News) -> rusqlite::Result<()> {
        let run = |sql: &str| self.connection.prepare_cached(sql)?.execute([]);
        run(FORGET_KNOWN)?;
        run(ENTER_SUMS)?;
        run("INSERT INTO calls SELECT id, request_id, account_id, key_id, model, routed_model, upstream, stream,
                 outcome, failure, reserved_tokens, held, most, input_price, cached_price, output_price,
                 admitted_ms, first_byte_ms, ended_ms, prompt, cached, completion, reasoning, cost,
                 balance_before, balance_after, attempts, steps, decision
             FROM new_calls ORDER BY id")?;
        run(ENTER_CHARGES)?;
        run("DELETE FROM new_calls")?;
        for (grant_id, remaining) in &news.left {
            self.set_remaining(grant_id, *remaining)?;
        }
        for (account_id, debt) in &news.debts {
            self.set_debt(account_id, *debt)?;
        }
        Ok(())
    }

    /// Finds out anew what is not entered, from the rows themselves.
    pub(super) fn read_news(&self) -> rusqlite::Result<()> {
        let mut found = News::default();
        let mut rows = self.connection.prepare_cached(
            "SELECT account_id, seq, grants_left, debt FROM new_calls ORDER BY seq",
        )?;
        let read = |row: &Row<'_>| {
            let left: Option<String> = row.get(2)?;
            let debt = row.get::<_, Option<i64>>(3)?.map(NanoUsd::new);
            let left = read_lines(left.as_deref().unwrap_or_default());
            let left = left.ok_or_else(|| unreadable(2, "what is left of grants"))?;
            Ok((row.get::<_, String>(0)?, row.get(1)?, left, debt))
        };
        for row in rows.query_map([], read)? {
            let (account_id, seq, left, debt) = row?;
            found.rows += 1;
            found.last_seq = seq;
            found.leave(&account_id, &left, debt);
        }
        // All of them or none: what is known must be what is entered.
        let mut news = self.news.borrow_mut();
        found.last_seq = found.last_seq.max(news.last_seq);
        found.behind = news.behind.clone();
        *news = found;
        Ok(())
    }

    /// What the charges that are not entered yet have changed, by account.
    pub fn not_entered(&self) -> rusqlite::Result<HashMap<String, i64>> {
        not_entered(&self.connection)
    }
}

/// What the charges that are not entered yet have changed, by account.
pub fn not_entered(connection: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    let mut sums = connection.prepare(
        "SELECT account_id, sum(balance_after - balance_before) FROM new_calls
         WHERE cost IS NOT NULL GROUP BY account_id",
    )?;
    sums.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// IDs of ours have no spaces.
fn lines(left: &[Left]) -> Option<String> {
    let line = |left: &Left| format!("{} {}\n", left.grant_id, left.remaining.nanos());
    (!left.is_empty()).then(|| left.iter().map(line).collect())
}

fn read_lines(lines: &str) -> Option<Vec<Left>> {
    let read = |line: &str| {
        let (grant_id, remaining) = line.split_once(' ')?;
        Some(Left {
            grant_id: grant_id.into(),
            remaining: NanoUsd::new(remaining.parse().ok()?),
        })
    };
    lines.lines().map(read).collect()
}

/// As JSON; nothing for none.
fn json_list<T: Serialize>(items: &[T]) -> Option<String> {
    (!items.is_empty()).then(|| serde_json::to_string(items).unwrap_or_default())
}
