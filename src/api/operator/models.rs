//! Settings of models: enabled, unlisted.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path};
use crate::{
    api::Json,
    catalog::{Model, Tier},
    gateway::{Gateway, actions::OperatorActions},
};

#[derive(Serialize)]
struct ModelObject<'a> {
    id: &'a str,
    object: &'static str,
    name: &'a str,
    min_tier: Tier,
    enabled: bool,
    unlisted: bool,
    /// Aliases as they are written in the configuration, patterns included.
    aliases: Vec<String>,
}

impl<'a> ModelObject<'a> {
    fn new(gateway: &Gateway, model: &'a Model) -> Self {
        let routes = gateway.routes_now();
        let aliases = routes.catalog.written_aliases();
        let aliases = aliases.filter(|(_, aliased)| aliased.id == model.id);
        let settings = gateway.ledger.model_settings(&model.id);
        Self {
            id: &model.id,
            object: "model",
            name: &model.name,
            min_tier: model.min_tier,
            enabled: settings.enabled,
            unlisted: settings.unlisted.unwrap_or(model.unlisted),
            aliases: aliases.map(|(name, _)| name).collect(),
        }
    }
}

pub(crate) async fn list(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    gateway.ledger.refresh().await?;
    let routes = gateway.routes();
    let models = routes.catalog.models();
    let models = models
        .map(|model| ModelObject::new(&gateway, model))
        .collect();
    Ok(Json(List::new(models)).into_response())
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    gateway.ledger.refresh().await?;
    let routes = gateway.routes();
    let model = routes
        .catalog
        .find(&id)
        .ok_or(OperatorError::NoSuchModel(id))?;
    Ok(Json(ModelObject::new(&gateway, model)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    enabled: Option<bool>,
    unlisted: Option<bool>,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    JsonBody(Change { enabled, unlisted }): JsonBody<Change>,
) -> Result<Response, OperatorError> {
    let actions = OperatorActions::by_token(&gateway);
    let model = actions.change_model(id, enabled, unlisted).await?;
    Ok(Json(ModelObject::new(&gateway, &model)).into_response())
}
