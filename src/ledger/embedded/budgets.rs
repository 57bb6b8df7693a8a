//! Budgets of the embedded ledger: set by the writer, read from memory.

use super::{
    Embedded,
    command::Command,
    sqlite::budgets::{Sum, spent_by_calls},
};
use crate::ledger::{Budget, BudgetChange, BudgetState, LedgerError};

/// How often a budget is summed up, if its period turns meanwhile.
const ATTEMPTS: usize = 5;

impl Embedded {
    /// What calls have spent in the present period is summed up without keeping the writer from its work; it adds those
    /// that come meanwhile.
    pub(crate) async fn set_budget(
        &self,
        change: BudgetChange,
    ) -> Result<BudgetState, LedgerError> {
        for _ in 0..ATTEMPTS {
            let (budget, period) = {
                let directory = self.read();
                directory.account(&change.account_id)?;
                let now = directory
                    .credit(&change.account_id)
                    .present(self.clock.now());
                let earlier = directory.budget_like(&change);
                let budget = change.clone().over(earlier.as_deref(), now);
                let period = budget.period_at(now);
                (budget, period)
            };
            self.all_written().await;
            let wanted = budget.clone();
            let query = move |file: &_| spent_by_calls(file, &wanted, period, 0);
            let sum: Sum = self.reader.query(query).await?;
            let now = self.clock.now();
            let set = self
                .writer
                .execute(|reply| Command::SetBudget(Box::new(budget), now, sum, reply));
            if let Some(set) = set.await? {
                return Ok(set);
            }
        }
        Err(LedgerError::Unavailable)
    }

    pub(crate) async fn remove_budget(&self, id: &str) -> Result<Budget, LedgerError> {
        self.writer
            .execute(|reply| Command::RemoveBudget(id.to_owned(), reply))
            .await
    }

    pub(crate) fn budgets(&self, account_id: &str) -> Result<Vec<BudgetState>, LedgerError> {
        let directory = self.read();
        directory.account(account_id)?;
        Ok(directory.budgets_of(account_id, self.clock.now()))
    }

    /// The budgets of all accounts of which at least this share was spent.
    pub(crate) fn budgets_spent(&self, percent: u8) -> Vec<BudgetState> {
        let mut budgets = self.read().all_budgets(self.clock.now());
        budgets.retain(|state| state.percent_spent() >= i64::from(percent));
        budgets
    }
}
