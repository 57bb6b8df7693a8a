//! Budgets are set and removed.

use std::sync::Arc;

use super::missing;
use crate::ledger::{
    DEFAULT_PROJECT, LedgerError,
    budgets::{Budget, BudgetScope, BudgetState, Counted, MAX_BUDGETS},
    embedded::{
        directory::Shared,
        sqlite::{Database, budgets::Sum},
    },
};

/// Sets a budget with what was spent in its present period: what the budget before it has counted in the same period, or
/// the sum, which is known up to an entry, and the rest. `None` if the sum is of another period, or of another budget.
pub(crate) fn set_budget(
    database: &Database,
    directory: &Shared,
    budget: Budget,
    now: i64,
    sum: &Sum,
) -> Result<Option<BudgetState>, LedgerError> {
    let (earlier, now) = {
        let directory = directory.read();
        directory.account(&budget.account_id)?;
        let now = directory.credit(&budget.account_id).present(now);
        (directory.budget_state_like(&budget, now), now)
    };
    check_scope(directory, &budget)?;
    let count = directory.read().budget_count(&budget.account_id);
    if earlier.is_none() && count >= MAX_BUDGETS {
        return Err(LedgerError::TooManyBudgets);
    }
    let is_same = match &earlier {
        Some(earlier) => earlier.budget.id == budget.id,
        None => directory.read().budget(&budget.id).is_none(),
    };
    let period = budget.period_at(now);
    if !is_same || period != sum.period {
        return Ok(None);
    }
    let spent = match earlier.filter(|earlier| earlier.period == period) {
        // Also what was pruned since.
        Some(earlier) => earlier.spent.nanos(),
        None => database.spent_since(&budget, sum)?,
    };
    let budget = Arc::new(budget);
    let counted = Counted::restored(budget.clone(), period.starts_at, spent);
    database.put_budget(&counted)?;
    directory.write().put_budget(counted);
    Ok(directory.read().budget_state_like(&budget, now))
}

/// Whether the account has the project or the key that a budget is to stand at. Who is a member, the ledger does not
/// know.
fn check_scope(directory: &Shared, change: &Budget) -> Result<(), LedgerError> {
    let (directory, id) = (directory.read(), change.scope_id.as_str());
    let (what, of_account) = match change.scope {
        BudgetScope::Account => ("account", Some(id)),
        BudgetScope::Member => return Ok(()),
        BudgetScope::Project if id == DEFAULT_PROJECT => return Ok(()),
        BudgetScope::Project => {
            let project = directory.project(id).filter(|project| !project.archived);
            (
                "project",
                project.map(|project| project.account_id.as_str()),
            )
        }
        BudgetScope::Key => {
            let key = directory.key(id);
            ("key", key.map(|key| key.account_id.as_str()))
        }
    };
    let is_its_own = of_account == Some(change.account_id.as_str());
    is_its_own.then_some(()).ok_or_else(|| missing(what, id))
}

pub(crate) fn remove_budget(
    database: &Database,
    directory: &Shared,
    id: &str,
) -> Result<Budget, LedgerError> {
    let budget = directory.read().budget(id).cloned();
    let budget = budget.ok_or_else(|| missing("budget", id))?;
    database.delete_budget(id)?;
    directory.write().remove_budget(&budget);
    Ok(Arc::unwrap_or_clone(budget))
}
