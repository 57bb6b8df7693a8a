//! Operator actions on projects.

use serde_json::{Value, json};

use super::{ActionError, MAX_NAME, OperatorActions};
use crate::ledger::Project;

impl OperatorActions {
    pub(crate) async fn create_project(
        &self,
        account_id: String,
        name: String,
    ) -> Result<Project, ActionError> {
        let name = checked(&name)?;
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            let project = ledger.create_project(&account_id, name).await?;
            let after = Some(recorded(&project));
            actions
                .record("project.create", &project.id, None, after)
                .await;
            Ok(project)
        })
        .await
    }

    pub(crate) async fn rename_project(
        &self,
        id: String,
        name: String,
    ) -> Result<Project, ActionError> {
        let name = checked(&name)?;
        let actions = self.clone();
        self.run_to_completion(async move {
            let project = actions.gateway.ledger.rename_project(&id, name).await?;
            let after = Some(recorded(&project));
            actions.record("project.change", &id, None, after).await;
            Ok(project)
        })
        .await
    }

    pub(crate) async fn archive_project(&self, id: String) -> Result<Project, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let project = actions.gateway.ledger.archive_project(&id).await?;
            let after = Some(recorded(&project));
            actions.record("project.archive", &id, None, after).await;
            Ok(project)
        })
        .await
    }
}

fn checked(name: &str) -> Result<String, ActionError> {
    let name = name.trim();
    let is_right = !name.is_empty() && name.chars().count() <= MAX_NAME;
    is_right
        .then(|| name.to_owned())
        .ok_or(ActionError::ProjectName)
}

fn recorded(project: &Project) -> Value {
    json!({ "account": project.account_id, "name": project.name, "archived": project.archived })
}
