//! The operator API, on a listener of its own: accounts, keys, credit, models, limits, people, and reports on them.
//!
//! Every request needs the operator token. Amounts are decimal strings in US dollars, times are ISO 8601. Errors have
//! the envelope of the public API. Changes are made by [`crate::gateway::actions`], which records them.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::header,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{delete, get, patch, post, put},
};

mod accounts;
mod alerts;
mod analytics;
mod audit;
mod body;
mod budgets;
mod configuration;
mod error;
mod key_terms;
mod keys;
mod limits;
mod members;
mod metrics;
mod models;
mod path;
mod people;
mod projects;
mod query;
mod requests;
mod routing;
mod secret;
mod sessions;
mod usage;

pub(crate) use audit::AuditObject;
pub(crate) use configuration::GONE_SECONDS;

use self::error::OperatorError;
use crate::{
    api::{log_operator_requests, loggable, loggable_method, openapi},
    gateway::Gateway,
    net::drain::drain_unread,
};

pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let logged = middleware::from_fn_with_state(gateway.clone(), log_operator_requests);
    Router::new()
        .route(
            "/operator/accounts",
            post(accounts::create).get(accounts::list),
        )
        .route(
            "/operator/accounts/{id}",
            get(accounts::show).patch(accounts::change),
        )
        .route(
            "/operator/accounts/{id}/keys",
            post(keys::create).get(keys::list),
        )
        .route(
            "/operator/accounts/{id}/grants",
            post(accounts::grant).get(accounts::grants),
        )
        .route("/operator/accounts/{id}/usage", get(usage::list))
        .route(
            "/operator/accounts/{id}/projects",
            post(projects::create).get(projects::list),
        )
        .route("/operator/budgets", put(budgets::set))
        .route("/operator/budgets/{id}", delete(budgets::remove))
        .route("/operator/accounts/{id}/budgets", get(budgets::list))
        .route(
            "/operator/projects/{id}",
            patch(projects::rename).delete(projects::archive),
        )
        .route(
            "/operator/keys/{id}",
            patch(keys::change).delete(keys::delete),
        )
        .route("/operator/keys/{id}/rotate", post(keys::rotate))
        .route("/operator/keys/{id}/disable", post(keys::disable))
        .route("/operator/keys/{id}/enable", post(keys::enable))
        .route("/operator/accounts/{id}/people", get(people::list))
        .route(
            "/operator/accounts/{id}/invitations",
            get(people::invitations).post(people::invite),
        )
        .route(
            "/operator/accounts/{id}/invitations/{email}",
            delete(people::withdraw),
        )
        .route(
            "/operator/people/{id}",
            post(people::change).delete(people::remove),
        )
        .route("/operator/accounts/{id}/members", get(members::list))
        .route(
            "/operator/members/{id}",
            patch(members::change).delete(members::remove),
        )
        .route("/operator/people/{id}/reset", post(people::reset))
        .route(
            "/operator/people/{id}/second-factor",
            delete(people::reset_second_factor),
        )
        .route("/operator/limits", put(limits::change).get(limits::list))
        .route(
            "/operator/config",
            get(configuration::show).put(configuration::change),
        )
        .route("/operator/config/versions", get(configuration::versions))
        .route("/operator/config/versions/{n}", get(configuration::version))
        .route("/operator/config/rollback", post(configuration::roll_back))
        .route("/operator/models", get(models::list))
        .route(
            "/operator/models/{id}",
            put(models::change).get(models::show),
        )
        .route("/operator/requests/{id}", get(requests::show))
        .route("/operator/routing", get(routing::show))
        .route("/operator/routing/explain", post(routing::explain))
        .route("/operator/analytics", get(analytics::show))
        .route("/operator/sessions", get(sessions::list))
        .route("/operator/audit", post(audit::run))
        .route("/operator/secret/rotate", post(secret::rotate))
        .route("/operator/alerts", get(alerts::list))
        .route("/metrics", get(metrics::show))
        .route("/openapi.json", get(openapi::show_operator))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(gateway.clone())
        .layer(middleware::from_fn_with_state(
            gateway.clone(),
            authenticate,
        ))
        .layer(logged)
}

/// Refuses requests without the operator token.
async fn authenticate(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let value = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let (scheme, token) = value
        .and_then(|value| value.split_once(' '))
        .unwrap_or_default();
    let bearer = scheme.eq_ignore_ascii_case("bearer");
    if !bearer || !gateway.operator_token.matches(token.trim()) {
        drain_unread(request.into_body());
        return OperatorError::Unauthorized.into_response();
    }
    next.run(request).await
}

async fn not_found(request: Request) -> Response {
    let method = loggable_method(request.method()).into_owned();
    let path = loggable(request.uri().path());
    OperatorError::RouteNotFound { method, path }.into_response()
}
