//! Projects, all of which are in memory.

use super::{Embedded, command::Command, steps::ProjectChange};
use crate::ledger::{LedgerError, Project};

impl Embedded {
    pub(crate) async fn create_project(&self, project: Project) -> Result<Project, LedgerError> {
        self.change_project(ProjectChange::Create(project)).await
    }

    pub(crate) async fn rename_project(
        &self,
        id: &str,
        name: String,
    ) -> Result<Project, LedgerError> {
        let id = id.to_owned();
        self.change_project(ProjectChange::Rename { id, name })
            .await
    }

    pub(crate) async fn archive_project(&self, id: &str) -> Result<Project, LedgerError> {
        let id = id.to_owned();
        self.change_project(ProjectChange::Archive { id }).await
    }

    async fn change_project(&self, change: ProjectChange) -> Result<Project, LedgerError> {
        self.writer
            .execute(|reply| Command::ChangeProject(change, reply))
            .await
    }

    /// The account's projects, oldest first.
    pub(crate) fn projects(&self, account_id: &str) -> Result<Vec<Project>, LedgerError> {
        let directory = self.read();
        directory.account(account_id)?;
        Ok(directory.projects_of(account_id))
    }
}
