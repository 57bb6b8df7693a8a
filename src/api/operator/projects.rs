//! The projects of an account. The default project is one of them, though it cannot be changed.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path};
use crate::{
    api::Json,
    base::timestamp,
    gateway::{Gateway, actions::OperatorActions},
    ledger::{DEFAULT_PROJECT, Project},
};

#[derive(Serialize)]
pub(crate) struct ProjectObject {
    id: String,
    object: &'static str,
    account_id: String,
    name: String,
    archived: bool,
    /// `None` for the default project, which is as old as its account.
    created_at: Option<String>,
}

impl From<Project> for ProjectObject {
    fn from(project: Project) -> Self {
        Self {
            id: project.id,
            object: "project",
            account_id: project.account_id,
            name: project.name,
            archived: project.archived,
            created_at: Some(timestamp::shown(project.created_at)),
        }
    }
}

impl ProjectObject {
    fn default_of(account_id: String) -> Self {
        Self {
            id: DEFAULT_PROJECT.into(),
            object: "project",
            account_id,
            name: "Default".into(),
            archived: false,
            created_at: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    name: String,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    JsonBody(Named { name }): JsonBody<Named>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let project = actions.create_project(account_id, name).await?;
    Ok(Json(ProjectObject::from(project)).into_response())
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
) -> Result<Response, OperatorError> {
    let projects = gateway.ledger.projects(&account_id).await?;
    let projects = projects.into_iter().map(ProjectObject::from);
    let all = std::iter::once(ProjectObject::default_of(account_id)).chain(projects);
    Ok(Json(List::new(all.collect())).into_response())
}

pub(crate) async fn rename(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(Named { name }): JsonBody<Named>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let project = actions.rename_project(id, name).await?;
    Ok(Json(ProjectObject::from(project)).into_response())
}

pub(crate) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let project = actions.archive_project(id).await?;
    Ok(Json(ProjectObject::from(project)).into_response())
}
