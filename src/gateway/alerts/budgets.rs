//! Check for budgets of which a share was spent that people want to know of.
//!
//! Of the shares that are reached, the highest has an open alert; it is announced once in a period. When the next share is
//! reached or the period is over, the alert is closed, which is not announced. A budget of which a tenth is left at most and
//! that has refused a request counts as used up: what is left may be too little for any call.

use std::collections::HashSet;

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
const ALL: u8 = 100;
/// From this percentage on, a refusal means that the budget is used up.
const NEARLY_ALL: i64 = 90;

pub(crate) async fn check<'a>(context: &CheckContext<'a>) -> Result<CheckResult<'a>, LedgerError> {
    let alerts = &context.gateway.alerts;
    let refusing = alerts.take_refusing_budgets();
    let budgets = match context.gateway.ledger.budgets_spent(LEAST).await {
        Ok(budgets) => budgets,
        Err(error) => {
            alerts.used_up(refusing.into_iter());
            return Err(error);
        }
    };
    let used_up = budgets
        .iter()
        .filter(|state| is_used_up(context, state, &refusing));
    alerts.set_used_up_budgets(used_up.count());
    let findings = budgets
        .iter()
        .filter_map(|state| finding(context, state, &refusing));
    let findings = findings.collect();
    Ok(context.resolve_others(KIND, findings))
}

/// Whether all of it is spent, or nearly all and a request was refused in this period.
fn is_used_up(context: &CheckContext<'_>, state: &BudgetState, refusing: &HashSet<String>) -> bool {
    let spent = state.percent_spent();
    let has_refused = || {
        refusing.contains(&state.budget.id)
            || context.open_alert(KIND, &subject(state, ALL)).is_some()
    };
    spent >= i64::from(ALL) || (spent >= NEARLY_ALL && has_refused())
}

fn subject(state: &BudgetState, reached: u8) -> String {
    let (budget, begun) = (&state.budget, state.period.starts_at);
    format!("{}/{}/{begun}/{reached}", budget.account_id, budget.id)
}

fn finding(
    context: &CheckContext<'_>,
    state: &BudgetState,
    refusing: &HashSet<String>,
) -> Option<Finding> {
    let budget = &state.budget;
    let percent = if is_used_up(context, state, refusing) {
        i64::from(ALL)
    } else {
        state.percent_spent()
    };
    let mut reached = budget.thresholds.iter().copied();
    let reached = reached.rfind(|threshold| i64::from(*threshold) <= percent)?;
    Some(Finding {
        kind: KIND,
        subject: subject(state, reached),
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
