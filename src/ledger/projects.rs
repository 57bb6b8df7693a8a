//! Projects: what the keys of an account belong to. Keys that name none belong to the default project, which is part of
//! every account and has no row.

use super::{BudgetScope, Ledger, LedgerError};
use crate::base::keys::random_id;

/// A project of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    pub id: String,
    pub account_id: String,
    pub name: String,
    pub created_at: i64,
    /// It has no keys and gets none.
    pub archived: bool,
}

impl Ledger {
    pub(crate) async fn create_project(
        &self,
        account_id: &str,
        name: String,
    ) -> Result<Project, LedgerError> {
        let project = Project {
            id: random_id("proj_"),
            account_id: account_id.to_owned(),
            name,
            created_at: self.clock().now(),
            archived: false,
        };
        match self {
            Self::Embedded(ledger) => ledger.create_project(project).await,
            Self::Shared(ledger) => ledger.create_project(project).await,
        }
    }

    pub(crate) async fn rename_project(
        &self,
        id: &str,
        name: String,
    ) -> Result<Project, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.rename_project(id, name).await,
            Self::Shared(ledger) => ledger.rename_project(id, name).await,
        }
    }

    /// Archives a project, unless live keys belong to it. Its calls stay its own.
    pub(crate) async fn archive_project(&self, id: &str) -> Result<Project, LedgerError> {
        let project = match self {
            Self::Embedded(ledger) => ledger.archive_project(id).await?,
            Self::Shared(ledger) => ledger.archive_project(id).await?,
        };
        self.remove_budgets_of(&project.account_id, BudgetScope::Project, id)
            .await;
        Ok(project)
    }

    /// The account's projects, oldest first, archived ones too.
    pub(crate) async fn projects(&self, account_id: &str) -> Result<Vec<Project>, LedgerError> {
        match self {
            Self::Embedded(ledger) => ledger.projects(account_id),
            Self::Shared(ledger) => ledger.projects(account_id).await,
        }
    }
}
