//! `GET /metrics`: all metrics, for Prometheus and what understands its format.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};

use crate::gateway::{Gateway, metrics::Snapshot};

const OPEN_METRICS: &str = "application/openmetrics-text";

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let is_open = |accept: &HeaderValue| {
        accept
            .to_str()
            .is_ok_and(|accept| accept.contains(OPEN_METRICS))
    };
    let open_metrics = accepted.into_iter().any(is_open);
    let now = Snapshot::of(&gateway);
    let text = (gateway.metrics).text(gateway.ledger.health(), &now, open_metrics);
    let format = if open_metrics {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    };
    let headers = [(header::CONTENT_TYPE, format), (header::VARY, "accept")];
    (headers, text).into_response()
}
