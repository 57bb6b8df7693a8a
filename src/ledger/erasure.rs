//! Deleting an account: it is closed for good and its names are replaced. Its entries, calls and totals stay, because
//! the ledger must add up; they have amounts, times and IDs.

use super::{Account, AccountChange, Edit, KeyState, Ledger, LedgerError};

/// The address of a deleted account. It is none that a person can have.
pub(crate) const DELETED: &str = "deleted account";
/// The name of keys and projects of a deleted account.
pub(super) const ERASED: &str = "deleted";

impl Account {
    /// Whether it was deleted by an owner, which is for good.
    pub(crate) fn is_deleted(&self) -> bool {
        self.closed && self.email == DELETED
    }
}

impl Ledger {
    /// Closes an account for good: no call begins from now on, and those that run are charged. Replaces its name and
    /// address, and deletes its keys and budgets. Repeating it is harmless.
    pub(crate) async fn erase_account(&self, id: &str) -> Result<(), LedgerError> {
        let close = AccountChange {
            email: Some(DELETED.to_owned()),
            name: Edit::Clear,
            closed: Some(true),
            ..AccountChange::default()
        };
        self.change_account(id, close).await?;
        for key in self.keys(id).await? {
            match self.set_key_state(&key.id, KeyState::Deleted).await {
                Ok(_) | Err(LedgerError::KeyDeleted) => {}
                Err(error) => return Err(error),
            }
        }
        for state in self.budgets(id).await? {
            match self.remove_budget(&state.budget.id).await {
                Ok(_) | Err(LedgerError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Replaces the names of the keys and projects of a deleted account and the reasons of these grants, each with its
    /// grant's ID, and drops its responses that are kept for retries. Repeating it is harmless.
    pub(crate) async fn erase_texts(
        &self,
        id: &str,
        reasons: Vec<(String, String)>,
    ) -> Result<(), LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.erase_texts(id, reasons).await,
            Self::Shared(ledger) => ledger.erase_texts(id, &reasons).await,
        }
    }
}
