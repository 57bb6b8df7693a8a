//! `GET /health` and `GET /health/live` (§4.7, §4.8).

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use crate::{api::Json, gateway::Gateway};

/// Readiness: 200 if the gateway accepts calls, 503 with the reason otherwise.
pub(crate) async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let body = |status: &str| {
        Json(json!({
            "status": status, "service": "tollgate", "version": env!("CARGO_PKG_VERSION"),
        }))
    };
    if gateway.shutdown.is_requested() {
        return (StatusCode::SERVICE_UNAVAILABLE, body("stopping")).into_response();
    }
    if !gateway.ledger.health().takes_charges() {
        let status = match gateway.ledger.health().misplaced() {
            Some(misplaced) => &format!("store unavailable: {misplaced}"),
            None => "store unavailable",
        };
        return (StatusCode::SERVICE_UNAVAILABLE, body(status)).into_response();
    }
    if !gateway.limiter.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, body("limits unavailable")).into_response();
    }
    body("ready").into_response()
}

/// Liveness: 200 while the process runs, whatever the state of its stores.
pub(crate) async fn alive() -> Response {
    Json(json!({ "status": "alive" })).into_response()
}
