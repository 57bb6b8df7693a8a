//! Budgets in the file, and what calls have spent of them.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Connection, Row, params};

use super::{Database, record::Record, unreadable};
use crate::{
    base::money::NanoUsd,
    ledger::{
        Payer,
        budgets::{Bounds, Budget, BudgetScope, Budgets, Counted, Period, Schedule, Spent},
    },
};

const COLUMNS: &str =
    "id, account_id, scope, scope_id, name, amount_nano_usd, period, timezone, anchor, hard,
    thresholds, created_at, period_start, spent_nano_usd";

/// What posted charges have spent of a budget in a period.
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    pub period: Bounds,
    pub nanos: i64,
    /// The account's last entry that was looked at.
    pub to_entry: i64,
}

/// What posted calls have spent of a budget in a period, of those after an entry. It reads the account's charges since
/// then, so that nothing depends on the clocks by which calls were recorded.
pub(crate) fn spent_by_calls(
    connection: &Connection,
    budget: &Budget,
    period: Bounds,
    after_entry: i64,
) -> rusqlite::Result<Sum> {
    let below = match budget.scope {
        BudgetScope::Account => "?5 IS NOT NULL",
        BudgetScope::Project => "coalesce(project_id, 'default') = ?5",
        BudgetScope::Member => "member_id = ?5",
        BudgetScope::Key => "key_id = ?5",
    };
    let query = format!(
        "SELECT coalesce(sum(cost_nano_usd) FILTER (WHERE held_at >= ?3 AND held_at < ?4 AND {below}), 0),
             coalesce(max(entry_seq), ?2)
         FROM calls WHERE account_id = ?1 AND entry_seq > ?2"
    );
    let wanted = params![
        budget.account_id,
        after_entry,
        period.starts_at,
        period.ends_at.unwrap_or(i64::MAX),
        budget.scope_id
    ];
    let mut sum = connection.prepare_cached(&query)?;
    let (nanos, to_entry) = sum.query_row(wanted, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Sum {
        period,
        nanos,
        to_entry,
    })
}

/// The budgets of an account with what its posted calls have spent in their periods, in one pass over the calls.
pub(crate) fn spent_by_all_calls(
    connection: &Connection,
    account_id: &str,
    budgets: &Budgets,
) -> rusqlite::Result<Budgets> {
    let mut by_calls = budgets.unspent();
    let mut calls = connection.prepare_cached(
        "SELECT key_id, project_id, member_id, held_at, cost_nano_usd FROM calls
         WHERE account_id = ?1 AND entry_seq > 0",
    )?;
    let mut calls = calls.query([account_id])?;
    while let Some(row) = calls.next()? {
        let payer = Payer {
            key_id: row.get(0)?,
            project_id: row.get(1)?,
            member_id: row.get(2)?,
        };
        by_calls.add_cost(account_id, &payer, row.get(3)?, row.get(4)?);
    }
    Ok(by_calls)
}

impl Database {
    /// The sum with the charges since.
    pub(crate) fn spent_since(&self, budget: &Budget, sum: &Sum) -> rusqlite::Result<i64> {
        self.post_redo_log()?;
        let since = spent_by_calls(&self.connection, budget, sum.period, sum.to_entry)?;
        Ok(sum.nanos + since.nanos)
    }

    pub(crate) fn put_budget(&self, counted: &Counted) -> rusqlite::Result<()> {
        let Counted {
            budget,
            starts_at,
            spent,
            ..
        } = counted;
        let Budget {
            schedule,
            thresholds,
            ..
        } = &**budget;
        let query = format!(
            "INSERT OR REPLACE INTO budgets ({COLUMNS})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        );
        self.connection.execute(
            &query,
            params![
                budget.id,
                budget.account_id,
                budget.scope.as_str(),
                budget.scope_id,
                budget.name,
                budget.amount.nanos(),
                schedule.period().as_str(),
                schedule.timezone(),
                schedule.has_anchor().then(|| schedule.anchor()),
                budget.hard,
                serde_json::to_string(thresholds).expect("numbers serialize"),
                budget.created_at,
                starts_at,
                spent,
            ],
        )?;
        self.redo_log.borrow_mut().forget_budget(&budget.id);
        Ok(())
    }

    pub(crate) fn delete_budget(&self, id: &str) -> rusqlite::Result<()> {
        self.redo_log.borrow_mut().forget_budget(id);
        self.connection
            .execute("DELETE FROM budgets WHERE id = ?1", [id])?;
        Ok(())
    }

    pub(super) fn set_spent(&self, id: &str, spent: &Spent) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE budgets SET period_start = ?2, spent_nano_usd = ?3 WHERE id = ?1",
            )?
            .execute(params![id, spent.starts_at, spent.nanos])?;
        Ok(())
    }

    /// How the file differs from what memory says was spent in the same periods.
    pub(crate) fn spent_differently(&self, remembered: &[Spent]) -> rusqlite::Result<Vec<String>> {
        let mut found = Vec::new();
        for spent in remembered {
            let id = spent.budget.id.as_str();
            let unposted = self.redo_log.borrow().spent_of(id);
            let stored = match unposted {
                Some(spent) => spent,
                None => self
                    .connection
                    .prepare_cached(
                        "SELECT period_start, spent_nano_usd FROM budgets WHERE id = ?1",
                    )?
                    .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?,
            };
            // A period that has begun is stored with its first charge.
            if stored.0 == spent.starts_at && stored.1 != spent.nanos {
                found.push(format!(
                    "{} nano-dollars were spent of budget {id} by memory, {} by the database",
                    spent.nanos, stored.1
                ));
            }
        }
        Ok(found)
    }

    /// All budgets by account, as of the last charge of the redo log.
    pub(super) fn budgets(&self) -> rusqlite::Result<HashMap<String, Vec<Counted>>> {
        let mut budgets = stored_budgets(&self.connection)?;
        if !budgets.is_empty() {
            self.redo_log.borrow_mut().spend_of(&mut budgets)?;
        }
        Ok(budgets)
    }
}

/// All budgets by account, as of the last posted charge.
pub(crate) fn stored_budgets(
    connection: &Connection,
) -> rusqlite::Result<HashMap<String, Vec<Counted>>> {
    let mut rows = connection.prepare(&format!("SELECT {COLUMNS} FROM budgets"))?;
    let mut budgets: HashMap<String, Vec<Counted>> = HashMap::new();
    for counted in rows.query_map([], read)? {
        let counted = counted?;
        let account_id = counted.budget.account_id.clone();
        budgets.entry(account_id).or_default().push(counted);
    }
    Ok(budgets)
}

/// Counts a call of the redo log in the budgets above it.
pub(super) fn spend_record(budgets: &mut HashMap<String, Vec<Counted>>, record: &Record<'_>) {
    let (Some(of_account), Some(paid)) = (budgets.get_mut(record.account_id), record.paid) else {
        return;
    };
    let payer = record.payer();
    for counted in of_account {
        if counted.budget.is_above(&payer) {
            counted.spend(paid.held_at, paid.cost);
        }
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Counted> {
    let (scope, period, timezone): (String, String, String) =
        (row.get(2)?, row.get(6)?, row.get(7)?);
    let period = Period::parse(&period).ok_or_else(|| unreadable(6, "period"))?;
    let schedule = Schedule::new(period, Some(&timezone), row.get(8)?);
    let thresholds: String = row.get(10)?;
    let budget = Budget {
        id: row.get(0)?,
        account_id: row.get(1)?,
        scope: BudgetScope::parse(&scope).ok_or_else(|| unreadable(2, "scope"))?,
        scope_id: row.get(3)?,
        name: row.get(4)?,
        amount: NanoUsd::new(row.get(5)?),
        schedule: schedule.map_err(|_| unreadable(7, "time zone"))?,
        hard: row.get(9)?,
        thresholds: serde_json::from_str(&thresholds).map_err(|_| unreadable(10, "thresholds"))?,
        created_at: row.get(11)?,
    };
    Ok(Counted::restored(
        Arc::new(budget),
        row.get(12)?,
        row.get(13)?,
    ))
}
