//! `GET /v1/models` and `GET /v1/models/{id}` (§4.4, §4.5).

use std::sync::Arc;

use axum::{
    Extension,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};

use crate::{
    api::{
        Json, Peer,
        access_log::RequestLog,
        dialect::Dialect,
        extract::VisibleTo,
        refusal_limits::{check_account, count_unknown},
    },
    catalog::{Model, Parameter},
    gateway::Gateway,
    wire::{
        error::GatewayError,
        messages::{self, ModelInfo},
        model::{ModelList, ModelObject},
    },
};

/// Filters of the list. The values of a filter that is given several times are combined.
#[derive(Default)]
struct Filters {
    /// A model must support all of them.
    supported_parameters: Vec<String>,
    /// A model must be in one of them; empty means any.
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

    /// Whether the model passes the filters.
    fn admit(&self, model: &Model) -> bool {
        let mut required = self.supported_parameters.iter();
        let supported = required
            .all(|name| Parameter::parse(name).is_some_and(|parameter| !model.drops(parameter)));
        let categories = &self.categories;
        supported && (categories.is_empty() || categories.contains(&model.instruct_type))
    }
}

/// The models that the caller's plan and key can call.
fn visible(gateway: &Gateway, caller: &VisibleTo) -> Vec<Arc<Model>> {
    let mut models = gateway.visible_models(caller.plan);
    models.retain(|model| caller.terms.allows(&model.id));
    models
}

/// Lists the models that the caller can see and that pass the filters, then their aliases.
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: VisibleTo,
    headers: HeaderMap,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, GatewayError> {
    // A query that cannot be parsed filters nothing, because the list always has status 200 (§4.4).
    let query = query.map(|Query(pairs)| pairs).unwrap_or_default();
    let filters = Filters::of(&query);
    let visible = visible(&gateway, &caller);
    let models = visible.iter().filter(|model| filters.admit(model));
    let aliases = gateway.aliases_of(&visible);
    let aliases = aliases.iter().filter(|(_, model)| filters.admit(model));
    Ok(match Dialect::of_headers(&headers) {
        Dialect::OpenAi => Json(ModelList::new(models, aliases)).into_response(),
        Dialect::Messages => {
            let models = models.map(|model| (model.id.as_str(), &**model));
            let aliases = aliases.map(|(alias, model)| (alias.as_str(), &**model));
            let named: Vec<_> = models.chain(aliases).collect();
            Json(messages::page(&named, &query)?).into_response()
        }
    })
}

/// One model. A model that the caller cannot see is 404, never 403 (§4.5).
pub(crate) async fn one(
    State(gateway): State<Arc<Gateway>>,
    caller: VisibleTo,
    Extension(log): Extension<RequestLog>,
    headers: HeaderMap,
    peer: Option<Extension<Peer>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, GatewayError> {
    // An ID that is not UTF-8 belongs to no model.
    let id = id.map_or_else(|_| "?".to_owned(), |Path(id)| id);
    let visible = visible(&gateway, &caller);
    if let Some(model) = visible.iter().find(|model| model.id == id) {
        return Ok(match Dialect::of_headers(&headers) {
            Dialect::OpenAi => Json(ModelObject::new(model)).into_response(),
            Dialect::Messages => Json(ModelInfo::new(&model.id, model)).into_response(),
        });
    }
    if let Some(model) = gateway.by_alias(&visible, &id) {
        return Ok(match Dialect::of_headers(&headers) {
            Dialect::OpenAi => Json(ModelObject::aliased(&id, model)).into_response(),
            Dialect::Messages => Json(ModelInfo::new(&id, model)).into_response(),
        });
    }
    let error = GatewayError::ModelNotFound { model: id };
    // The refusal of a request with a valid key is counted for its account, like all of them.
    if let Some(account_id) = log.account_id() {
        check_account(&gateway, &account_id)?;
        return Err(error);
    }
    let client = peer.map(|Extension(Peer(address))| address);
    Err(count_unknown(&gateway, client, error))
}
