//! Budgets of the shared ledger.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::types::Type;

use super::{Shared, admin::missing, record::unreadable};
use crate::{
    base::money::NanoUsd,
    db::postgres::{Error, storable},
    ledger::{
        LedgerError,
        budgets::{
            Bounds, Budget, BudgetChange, BudgetScope, BudgetState, MAX_BUDGETS, Period, Schedule,
            in_order,
        },
    },
};

/// How often a budget is prepared, if something changes meanwhile.
const ATTEMPTS: usize = 5;

/// A row of `budgets`.
#[derive(Deserialize)]
struct Stored {
    id: String,
    account_id: String,
    scope: BudgetScope,
    scope_id: String,
    name: String,
    amount_nano_usd: i64,
    period: Period,
    timezone: String,
    anchor: Option<i64>,
    hard: bool,
    thresholds: String,
    created_at: i64,
    period_start: i64,
    period_end: i64,
    spent_nano_usd: i64,
    held_nano_usd: i64,
}

impl Shared {
    /// What calls have spent in the present period is summed up before the account is locked.
    pub(crate) async fn set_budget(
        &self,
        change: BudgetChange,
    ) -> Result<BudgetState, LedgerError> {
        let (account_id, scope_id) = (change.account_id.clone(), change.scope_id.clone());
        let scope = change.scope.as_str();
        let rules = rules(&change.over(None, 0)).to_string();
        let rules = storable::json(&rules);
        let now = self.inner.clock.manual_now();
        let most = i32::try_from(MAX_BUDGETS).unwrap_or(i32::MAX);
        for _ in 0..ATTEMPTS {
            let parameters = [(&rules as _, Type::TEXT), (&now as _, Type::INT8)];
            let prepare = "SELECT prepare_budget($1::jsonb, $2)::text";
            let prepared: String = self.inner.pool.query_one(prepare, &parameters).await?;
            let parameters = [
                (&prepared as _, Type::TEXT),
                (&now as _, Type::INT8),
                (&most as _, Type::INT4),
            ];
            let set = "SELECT set_budget($1::jsonb, $2, $3)::text";
            let set: String = self.inner.pool.query_one(set, &parameters).await?;
            let set: Value = serde_json::from_str(&set).map_err(|_| unreadable("a budget"))?;
            match set.get("refusal").and_then(Value::as_str) {
                Some("account") => return Err(missing("account", &account_id)),
                Some("too many") => return Err(LedgerError::TooManyBudgets),
                Some("scope") => return Err(missing(scope, &scope_id)),
                Some(_) => {}
                None => return Ok(read(set)?),
            }
        }
        Err(LedgerError::Unavailable)
    }

    pub(crate) async fn remove_budget(&self, id: &str) -> Result<Budget, LedgerError> {
        let query = "SELECT remove_budget($1)::text";
        let removed: Option<String> = self
            .inner
            .pool
            .query_one(query, &[(&id, Type::TEXT)])
            .await?;
        let removed = removed.ok_or_else(|| missing("budget", id))?;
        let removed = serde_json::from_str(&removed).map_err(|_| unreadable("a budget"))?;
        Ok(Arc::unwrap_or_clone(read(removed)?.budget))
    }

    pub(crate) async fn budgets(&self, account_id: &str) -> Result<Vec<BudgetState>, LedgerError> {
        self.account(account_id).await?;
        self.present_budgets(Some(account_id), 0).await
    }

    pub(crate) async fn budgets_spent(&self, percent: u8) -> Result<Vec<BudgetState>, LedgerError> {
        let mut budgets = self.present_budgets(None, percent).await?;
        // Those whose next period has begun.
        budgets.retain(|state| state.percent_spent() >= i64::from(percent));
        Ok(budgets)
    }

    async fn present_budgets(
        &self,
        account_id: Option<&str>,
        percent: u8,
    ) -> Result<Vec<BudgetState>, LedgerError> {
        let now = self.inner.clock.manual_now();
        let percent = i64::from(percent);
        let parameters = [
            (&account_id as _, Type::TEXT),
            (&now as _, Type::INT8),
            (&percent as _, Type::INT8),
        ];
        let query = "SELECT present_budgets($1, $2, $3)::text";
        let found: String = self.inner.pool.query_one(query, &parameters).await?;
        let found: Vec<Value> = serde_json::from_str(&found).map_err(|_| unreadable("budgets"))?;
        let mut states = found
            .into_iter()
            .map(read)
            .collect::<Result<Vec<_>, Error>>()?;
        states.sort_by(|one, other| in_order(&one.budget, &other.budget));
        Ok(states)
    }
}

/// The rules as the database reads them.
fn rules(budget: &Budget) -> Value {
    let schedule = &budget.schedule;
    json!({
        "id": budget.id,
        "account_id": budget.account_id,
        "scope": budget.scope.as_str(),
        "scope_id": budget.scope_id,
        "name": budget.name,
        "amount_nano_usd": budget.amount.nanos(),
        "period": schedule.period().as_str(),
        "timezone": schedule.timezone(),
        "anchor": schedule.has_anchor().then(|| schedule.anchor()),
        "hard": budget.hard,
        "thresholds": Value::from(budget.thresholds.as_slice()).to_string(),
    })
}

fn read(stored: Value) -> Result<BudgetState, Error> {
    let stored: Stored = serde_json::from_value(stored).map_err(|_| unreadable("a budget"))?;
    let schedule = Schedule::new(stored.period, Some(&stored.timezone), stored.anchor);
    let budget = Budget {
        id: stored.id,
        account_id: stored.account_id,
        scope: stored.scope,
        scope_id: stored.scope_id,
        name: stored.name,
        amount: NanoUsd::new(stored.amount_nano_usd),
        schedule: schedule.map_err(|_| unreadable("a time zone"))?,
        hard: stored.hard,
        thresholds: serde_json::from_str(&stored.thresholds)
            .map_err(|_| unreadable("thresholds"))?,
        created_at: stored.created_at,
    };
    Ok(BudgetState {
        budget: Arc::new(budget),
        period: Bounds {
            starts_at: stored.period_start,
            ends_at: Some(stored.period_end).filter(|at| *at != i64::MAX),
        },
        spent: NanoUsd::new(stored.spent_nano_usd),
        held: NanoUsd::new(stored.held_nano_usd),
    })
}
