//! Budgets of an account, its projects, members and keys.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path};
use crate::{
    api::{Json, budget::BudgetFigures},
    base::timestamp,
    gateway::{
        Gateway,
        actions::{self, NewBudget, OperatorActions},
    },
    ledger::{BudgetScope, BudgetState, Period},
};

#[derive(Serialize)]
pub(crate) struct BudgetObject {
    object: &'static str,
    account_id: String,
    scope_id: String,
    #[serde(flatten)]
    figures: BudgetFigures,
    /// `None` for days and totals.
    anchor: Option<i8>,
    thresholds: Vec<u8>,
    created_at: String,
    period_started_at: String,
}

impl From<BudgetState> for BudgetObject {
    fn from(state: BudgetState) -> Self {
        let (budget, schedule) = (&state.budget, &state.budget.schedule);
        Self {
            object: "budget",
            account_id: budget.account_id.clone(),
            scope_id: budget.scope_id.clone(),
            figures: BudgetFigures::from(&state),
            anchor: schedule.has_anchor().then(|| schedule.anchor()),
            thresholds: budget.thresholds.clone(),
            created_at: timestamp::shown(budget.created_at),
            period_started_at: timestamp::shown(state.period.starts_at),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetBudget {
    account: String,
    scope: BudgetScope,
    id: Option<String>,
    name: Option<String>,
    amount: Amount,
    period: Period,
    timezone: Option<String>,
    anchor: Option<i64>,
    hard: Option<bool>,
    thresholds: Option<Vec<u8>>,
}

/// US dollars, as decimal text or as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Text(String),
    Number(serde_json::Number),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }
}

pub(crate) async fn set(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(body): JsonBody<SetBudget>,
) -> Result<Response, OperatorError> {
    let new = NewBudget {
        account_id: body.account,
        scope: body.scope,
        scope_id: body.id,
        name: body.name,
        amount: actions::amount(&body.amount.text())?,
        period: body.period,
        timezone: body.timezone,
        anchor: body.anchor,
        hard: body.hard.unwrap_or(true),
        thresholds: body.thresholds,
    };
    let set = OperatorActions::by_token(&gateway).set_budget(new).await?;
    Ok(Json(BudgetObject::from(set)).into_response())
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
) -> Result<Response, OperatorError> {
    let budgets = gateway.ledger.budgets(&account_id).await?;
    let budgets = budgets.into_iter().map(BudgetObject::from).collect();
    Ok(Json(List::new(budgets)).into_response())
}

#[derive(Serialize)]
struct Removed {
    id: String,
    object: &'static str,
    deleted: bool,
}

pub(crate) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let removed = actions.remove_budget(id).await?;
    let removed = Removed {
        id: removed.id,
        object: "budget",
        deleted: true,
    };
    Ok(Json(removed).into_response())
}
