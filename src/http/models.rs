//! `GET /v1/models` and `GET /v1/models/{id}` (SPEC §4.4, §4.5).

use std::sync::Arc;

use axum::{
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;

use super::{Json, extract::VisibleTo};
use crate::{
    catalog::{Model, Parameter},
    error::GatewayError,
    gateway::Gateway,
    wire::model::{ModelList, ModelObject},
};

#[derive(Default, Deserialize)]
pub struct Filters {
    /// Comma-separated; a model must support them all.
    supported_parameters: Option<String>,
    category: Option<String>,
}

impl Filters {
    fn admit(&self, model: &Model) -> bool {
        let wanted = self.supported_parameters.as_deref().unwrap_or_default();
        let mut wanted = wanted
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let supported = wanted
            .all(|name| Parameter::parse(name).is_some_and(|parameter| !model.drops(parameter)));
        let category = self
            .category
            .as_deref()
            .filter(|category| !category.is_empty());
        supported && category.is_none_or(|category| category == model.instruct_type)
    }
}

pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    VisibleTo(plan): VisibleTo,
    filters: Result<Query<Filters>, QueryRejection>,
) -> Response {
    // A query that cannot be read filters nothing: §4.4 knows no status but 200.
    let filters = filters.map(|Query(filters)| filters).unwrap_or_default();
    let visible = gateway.visible_models(plan);
    let models = visible.iter().filter(|model| filters.admit(model));
    Json(ModelList::new(models)).into_response()
}

/// A model the caller cannot see does not exist for it: never a 403 (§4.5).
pub async fn one(
    State(gateway): State<Arc<Gateway>>,
    VisibleTo(plan): VisibleTo,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, GatewayError> {
    // An ID that is not even text is one of no model.
    let id = id.map_or_else(|_| "?".to_owned(), |Path(id)| id);
    let visible = gateway.visible_models(plan);
    match visible.iter().find(|model| model.id == id) {
        Some(model) => Ok(Json(ModelObject::new(model)).into_response()),
        None => Err(GatewayError::ModelNotFound { model: id }),
    }
}
