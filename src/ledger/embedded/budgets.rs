//! Budgets of the embedded ledger: set by the writer, read from memory.

use super::{
    Embedded,
    command::Command,
    sqlite::budgets::{Counting, spent_by_calls},
};
use crate::ledger::{Budget, BudgetChange, BudgetState, LedgerError};

impl Embedded {
    /// Sums up the calls of the present period without keeping the writer from its work; it adds those that come
    /// meanwhile.
    pub(crate) async fn set_budget(
        &self,
        change: BudgetChange,
    ) -> Result<BudgetState, LedgerError> {
        let now = self.clock.now();
        let budget = {
            let directory = self.read();
            directory.account(&change.account_id)?;
            let earlier = directory.budget_like(&change);
            change.clone().over(earlier.as_deref(), now)
        };
        self.all_written().await;
        let summed = Counting {
            period: budget.period_at(now),
            after_entry: 0,
        };
        let query = move |file: &_| spent_by_calls(file, &budget, &summed);
        let summed_up = self.reader.query(query).await?;
        self.writer
            .execute(|reply| Command::SetBudget(Box::new(change), now, summed_up, reply))
            .await
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

    pub(crate) fn budgets_spent(&self, percent: u8) -> Vec<BudgetState> {
        let mut budgets = self.read().all_budgets(self.clock.now());
        budgets.retain(|state| state.percent_spent() >= i64::from(percent));
        budgets
    }
}
