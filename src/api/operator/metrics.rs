//! `GET /metrics`: all metrics, for Prometheus.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};

use crate::{
    gateway::{Gateway, metrics::Snapshot},
    net::lag::Lag,
};

const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>) -> Response {
    let (holds, held) = gateway.ledger.all_held();
    let lags = gateway.lags.get().into_iter().flatten().map(Lag::get);
    let now = Snapshot {
        holds,
        held_nanos: held.nanos(),
        abandoned: gateway.abandoned.total(),
        body_memory: (gateway.body_memory.reserved(), gateway.body_memory.limit()),
        recorded: gateway.retries.recorded_bytes(),
        blocked: gateway.refusals.waiting(),
        spooled: gateway.spool.waiting().0,
        admissions: (gateway.admissions.as_ref()).map_or((0, 0), |all| all.counts()),
        lag: lags.max().unwrap_or_default(),
        violations: gateway.ledger.violations(),
        limits_ready: gateway.limiter.is_ready(),
        alerts: gateway.alerts.open_counts(),
        used_up_budgets: gateway.alerts.used_up_budgets(),
        config: (
            gateway.routes_now().revision.number,
            gateway.configuration.problem().is_some(),
        ),
    };
    let text = gateway.metrics.text(gateway.ledger.health(), &now);
    ([(header::CONTENT_TYPE, FORMAT)], text).into_response()
}
