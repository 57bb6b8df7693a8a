//! A budget and its figures, as both APIs show them.

use serde::Serialize;

use crate::{
    base::{money::NanoUsd, timestamp},
    ledger::BudgetState,
};

#[derive(Serialize)]
pub(crate) struct BudgetFigures {
    id: String,
    scope: &'static str,
    name: String,
    amount: NanoUsd,
    period: &'static str,
    timezone: String,
    /// Whether it refuses what does not fit.
    hard: bool,
    spent: NanoUsd,
    held: NanoUsd,
    remaining: NanoUsd,
    /// `None` for totals.
    resets_at: Option<String>,
}

impl From<&BudgetState> for BudgetFigures {
    fn from(state: &BudgetState) -> Self {
        let (budget, schedule) = (&state.budget, &state.budget.schedule);
        Self {
            id: budget.id.clone(),
            scope: budget.scope.as_str(),
            name: budget.name.clone(),
            amount: budget.amount,
            period: schedule.period().as_str(),
            timezone: schedule.timezone().to_owned(),
            hard: budget.hard,
            spent: state.spent,
            held: state.held,
            remaining: state.remaining(),
            resets_at: state.period.ends_at.map(timestamp::shown),
        }
    }
}
