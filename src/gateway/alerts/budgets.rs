//! Check for budgets of which a share was spent that people want to know of.
//!
//! Of the shares that are reached, the highest has an open alert; it is announced once in a period. When the next share is
//! reached or the period is over, the alert is closed, which is not announced.

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::{
    backoffice::AlertKind,
    base::timestamp,
    ledger::{BudgetState, LedgerError},
};

const KIND: AlertKind = AlertKind::BudgetReached;
/// The lowest percentage of which people can be told.
const LEAST: u8 = 1;

pub(crate) async fn check<'a>(context: &CheckContext<'a>) -> Result<CheckResult<'a>, LedgerError> {
    let budgets = context.gateway.ledger.budgets_spent(LEAST).await?;
    let used_up = budgets.iter().filter(|it| it.percent_spent() >= 100);
    context.gateway.alerts.set_used_up_budgets(used_up.count());
    let findings = budgets.iter().filter_map(finding).collect();
    Ok(context.resolve_others(KIND, findings))
}

fn finding(state: &BudgetState) -> Option<Finding> {
    let (budget, percent) = (&state.budget, state.percent_spent());
    let mut reached = budget.thresholds.iter().copied();
    let reached = reached.rfind(|threshold| i64::from(*threshold) <= percent)?;
    let begun = state.period.starts_at;
    Some(Finding {
        kind: KIND,
        subject: format!("{}/{}/{begun}/{reached}", budget.account_id, budget.id),
        detail: json!({
            "account": budget.account_id,
            "budget": budget.id,
            "scope": budget.scope.as_str(),
            "scope_id": budget.scope_id,
            "name": budget.name,
            "amount": budget.amount,
            "period": budget.schedule.period().as_str(),
            "spent": state.spent,
            "percent": reached,
            "hard": budget.hard,
            "resets_at": state.period.ends_at.map(timestamp::shown),
        }),
    })
}
