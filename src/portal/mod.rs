//! Server-rendered pages under `/portal`: the portal for customers and, under `/portal/console`, the console
//! for operators. Every page can be read without JavaScript.
//!
//! A page needs a session cookie; without one the browser is redirected to the sign-in page. Every change is a
//! POST that must come from our own origin with a form token derived from the session; otherwise the response
//! is 403 and nothing is changed. What a role in the account may open is in `rights.rs`. If a store is
//! unavailable, the response is a 503 page with `Retry-After`, and the cause is only logged.
//!
//! The portal has no state of its own: all data is in the ledger and the backoffice. It may use every room
//! after it in `lib.rs`, from `api` down to `base`.

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse as _, Response},
    routing::{any, get, post},
};

mod assets;
mod billing;
mod budgets;
mod chart;
mod compression;
mod confirmation;
mod console;
mod cookies;
mod csv;
mod days;
mod error;
mod forgotten;
mod form;
mod formatting;
mod headers;
mod keys;
mod layout;
mod members;
mod models;
mod names;
mod notice;
mod oidc;
mod overview;
mod paging;
mod plan;
mod playground;
mod projects;
mod query;
mod question;
mod requests;
pub mod rights;
mod session;
mod settings;
mod sidebar;
mod sight;
mod sign_in;
mod sign_up;
mod sign_up_by_email;
mod snippets;
mod starter;
mod table;
mod test_mode;
mod usage;
mod user_agent;
mod welcome;

pub use sign_up::enrol;

use self::error::PortalError;
use crate::gateway::Gateway;

/// The routes of all pages.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let console = if gateway.portal.console {
        console::router()
    } else {
        Router::new()
    };
    Router::new()
        .route("/portal", get(overview::show))
        .route("/portal/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route(
            "/portal/sign-in/code",
            get(sign_in::code::show).post(sign_in::code::submit),
        )
        .route("/portal/sign-up", get(sign_up::show).post(sign_up::sign_up))
        .route("/portal/sign-out", post(sign_in::sign_out))
        .route(
            "/portal/forgotten",
            get(forgotten::show).post(forgotten::request_link),
        )
        .route("/portal/welcome", get(welcome::show).post(welcome::submit))
        .route("/portal/keys", get(keys::list).post(keys::create::create))
        .route("/portal/keys/deleted", get(keys::list_deleted))
        .route("/portal/keys/{id}", get(keys::show).post(keys::change))
        .route("/portal/keys/{id}/rotate", post(keys::rotate))
        .route("/portal/keys/{id}/disable", post(keys::disable))
        .route("/portal/keys/{id}/enable", post(keys::enable))
        .route(
            "/portal/keys/{id}/delete",
            get(keys::confirm_delete).post(keys::delete),
        )
        .route(
            "/portal/projects",
            get(projects::list).post(projects::create),
        )
        .route("/portal/projects/{id}/rename", post(projects::rename))
        .route(
            "/portal/projects/{id}/archive",
            get(projects::confirm_archive).post(projects::archive),
        )
        .route("/portal/usage", get(usage::show))
        .route("/portal/usage.csv", get(usage::csv))
        .route("/portal/requests", get(requests::show))
        .route("/portal/requests/refused", get(requests::refused::show))
        .route("/portal/requests/find", get(requests::find))
        .route("/portal/requests.csv", get(requests::csv::download))
        .route("/portal/requests/{id}", get(requests::show_details))
        .merge(billing::router(gateway))
        .route("/portal/plan", get(plan::show))
        .route("/portal/models", get(models::show))
        .route(
            "/portal/playground",
            get(playground::show).post(playground::answer),
        )
        .route("/portal/playground/run", post(playground::run))
        .route("/portal/playground/charge", get(playground::charge))
        .merge(members::router())
        .merge(budgets::router())
        .merge(settings::router())
        .merge(oidc::router(gateway))
        .merge(console)
        .route("/portal/assets/{name}", get(assets::serve))
        .route("/portal/", any(|| async { layout::redirect("/portal") }))
        .route("/portal/{*rest}", any(not_found))
        .layer(middleware::from_fn_with_state(
            gateway.clone(),
            headers::protect,
        ))
        .layer(middleware::from_fn_with_state(
            gateway.clone(),
            test_mode::keep,
        ))
        .layer(middleware::from_fn_with_state(
            gateway.clone(),
            compression::compress,
        ))
}

async fn not_found() -> Response {
    PortalError::NotFound.into_response()
}
