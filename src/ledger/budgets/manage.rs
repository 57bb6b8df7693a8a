//! Budgets are set, removed and read.

use super::{Budget, BudgetScope, BudgetState, Period, Schedule};
use crate::{
    base::{keys::random_id, money::NanoUsd},
    ledger::{Caller, Ledger, LedgerError},
};

/// A budget to set. It replaces the one that stands at the same place for the same kind of period.
#[derive(Clone, Debug)]
pub(crate) struct BudgetChange {
    pub account_id: String,
    pub scope: BudgetScope,
    /// The account, project, member or key.
    pub scope_id: String,
    pub name: String,
    pub amount: NanoUsd,
    pub schedule: Schedule,
    pub hard: bool,
    pub thresholds: Vec<u8>,
}

impl BudgetChange {
    /// The budget to store, in place of `earlier`. It keeps its ID and, for totals, the time since when it counts.
    pub(in crate::ledger) fn over(self, earlier: Option<&Budget>, now: i64) -> Budget {
        Budget {
            id: earlier.map_or_else(|| random_id("budget_"), |earlier| earlier.id.clone()),
            created_at: earlier.map_or(now, |earlier| earlier.created_at),
            account_id: self.account_id,
            scope: self.scope,
            scope_id: self.scope_id,
            name: self.name,
            amount: self.amount,
            schedule: self.schedule,
            hard: self.hard,
            thresholds: self.thresholds,
        }
    }

    pub(in crate::ledger) fn period(&self) -> Period {
        self.schedule.period()
    }
}

impl Ledger {
    /// Sets a budget, for the next hold on. It counts what was charged and is held in its present period already.
    pub(crate) async fn set_budget(
        &self,
        change: BudgetChange,
    ) -> Result<BudgetState, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.set_budget(change).await,
            Self::Shared(ledger) => ledger.set_budget(change).await,
        }
    }

    pub(crate) async fn remove_budget(&self, id: &str) -> Result<Budget, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.remove_budget(id).await,
            Self::Shared(ledger) => ledger.remove_budget(id).await,
        }
    }

    /// Removes the budgets of something that begins no more calls. They refuse no call, so a failure is only logged.
    pub(crate) async fn remove_budgets_of(
        &self,
        account_id: &str,
        scope: BudgetScope,
        scope_id: &str,
    ) {
        let removed = async {
            let mut budgets = self.budgets(account_id).await?;
            budgets.retain(|state| {
                let budget = &state.budget;
                (budget.scope, budget.scope_id.as_str()) == (scope, scope_id)
            });
            for state in budgets {
                self.remove_budget(&state.budget.id).await?;
            }
            Ok::<_, LedgerError>(())
        };
        if let Err(error) = removed.await {
            let scope = scope.as_str();
            tracing::warn!(%error, account.id = account_id, scope, scope_id, "budgets of what was deleted stay behind");
        }
    }

    /// The account's budgets: that of the account first, then those of projects, members and keys.
    pub(crate) async fn budgets(&self, account_id: &str) -> Result<Vec<BudgetState>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.budgets(account_id),
            Self::Shared(ledger) => ledger.budgets(account_id).await,
        }
    }

    /// The budgets above the calls of this caller's key.
    pub(crate) async fn budgets_above(
        &self,
        caller: &Caller,
    ) -> Result<Vec<BudgetState>, LedgerError> {
        let mut budgets = self.budgets(&caller.account_id).await?;
        budgets.retain(|state| state.budget.is_above(&caller.payer));
        Ok(budgets)
    }

    /// The budgets of all accounts of which at least this share was spent in the present period.
    pub(crate) async fn budgets_spent(&self, percent: u8) -> Result<Vec<BudgetState>, LedgerError> {
        match self {
            Self::Embedded(ledger) => Ok(ledger.budgets_spent(percent)),
            Self::Shared(ledger) => ledger.budgets_spent(percent).await,
        }
    }
}
