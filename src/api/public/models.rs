//! `GET /v1/models` and `GET /v1/models/{id}` (SPEC §4.4, §4.5).

use std::sync::Arc;

use axum::{
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse as _, Response},
};

use crate::{
    api::{Json, extract::VisibleTo},
    catalog::{Model, Parameter},
    gateway::Gateway,
    wire::{
        error::GatewayError,
        model::{ModelList, ModelObject},
    },
};

/// Which models are wanted. A filter that is named several times takes all its values.
#[derive(Default)]
struct Filters {
    /// A model must support them all.
    supported_parameters: Vec<String>,
    /// A model must be of one of them.
    categories: Vec<String>,
}

impl Filters {
    fn of(query: &[(String, String)]) -> Self {
        let mut filters = Self::default();
        for (name, value) in query {
            let list = match name.as_str() {
                "supported_parameters" => &mut filters.supported_parameters,
                "category" => &mut filters.categories,
                _ => continue,
            };
            let values = value.split(',').map(str::trim);
            list.extend(values.filter(|value| !value.is_empty()).map(str::to_owned));
        }
        filters
    }

    fn admit(&self, model: &Model) -> bool {
        let mut wanted = self.supported_parameters.iter();
        let supported = wanted
            .all(|name| Parameter::parse(name).is_some_and(|parameter| !model.drops(parameter)));
        let categories = &self.categories;
        supported && (categories.is_empty() || categories.contains(&model.instruct_type))
    }
}

pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    VisibleTo(plan): VisibleTo,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Response {
    // A query that cannot be read filters nothing: §4.4 knows no status but 200.
    let query = query.map(|Query(pairs)| pairs).unwrap_or_default();
    let filters = Filters::of(&query);
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
