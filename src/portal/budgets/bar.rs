//! How much of a budget is used, as a bar with its figures.

use maud::{Markup, html};

use crate::{
    ledger::{Budget, BudgetScope, BudgetState, Period},
    portal::formatting::money,
};

/// `$20.00 a month`.
pub(super) fn limit(budget: &Budget) -> String {
    let amount = money(budget.amount);
    match budget.schedule.period() {
        Period::Total => format!("{amount} in total"),
        period => format!("{amount} a {}", period.as_str()),
    }
}

/// Spent and held, of the amount. The figures are beside the bar, so that nothing depends on seeing it.
pub(crate) fn bar(state: &BudgetState) -> Markup {
    let budget = &state.budget;
    let used = state.spent.nanos().saturating_add(state.held.nanos());
    let percent = percent(used, budget.amount.nanos());
    html! {
        span.budget {
            meter min="0" max="100" high="80" optimum="0" value=(percent) aria-hidden="true" {}
            " " (money(state.spent)) " of " (limit(budget))
        }
    }
}

/// The bars of several budgets, each with what it stands at.
pub(crate) fn bars(budgets: &[&BudgetState]) -> Markup {
    html! {
        ul.plain {
            @for state in budgets {
                li { (standing_at(state.budget.scope)) ": " (bar(state)) }
            }
        }
    }
}

fn standing_at(scope: BudgetScope) -> &'static str {
    match scope {
        BudgetScope::Account => "Account",
        BudgetScope::Project => "Project",
        BudgetScope::Member => "Member",
        BudgetScope::Key => "Key",
    }
}

/// From 0 to 100.
fn percent(used: i64, amount: i64) -> i64 {
    let percent = i128::from(used) * 100 / i128::from(amount.max(1));
    i64::try_from(percent.clamp(0, 100)).unwrap_or(100)
}
