//! `GET /operator/routing`: every upstream, and how it is doing.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use crate::{gateway::Gateway, http::Json, routing::Listed, time_text};

#[derive(Serialize)]
struct RoutingObject {
    object: &'static str,
    deployments: Vec<DeploymentObject>,
}

#[derive(Serialize)]
struct DeploymentObject {
    /// A catalog ID, or `*`.
    model: String,
    provider: String,
    /// `None` where it is the catalog ID.
    upstream_model: Option<String>,
    weight: u32,
    priority: u32,
    /// `closed`: asked like any other; `open`: left alone; `half_open`: the next call tries it.
    circuit: &'static str,
    /// For how many more milliseconds it is left alone.
    rests_for_ms: u64,
    running: u64,
    answered: u64,
    failed: u64,
    failures_in_a_row: u32,
    /// On average, the latest counting most.
    first_byte_ms: Option<u64>,
    last_failure: Option<LastFailure>,
}

#[derive(Serialize)]
struct LastFailure {
    at: String,
    reason: String,
}

impl From<&Listed> for DeploymentObject {
    fn from(listed: &Listed) -> Self {
        let (counts, now) = (listed.counts(), Instant::now());
        let rests_for = counts.circuit.rests_until();
        let rests_for = rests_for.map(|until| until.saturating_duration_since(now));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds of a call"
        )]
        let milliseconds = |seconds: f64| (seconds * 1_000.0).round() as u64;
        Self {
            model: listed.model.clone(),
            provider: listed.provider.to_string(),
            upstream_model: listed.upstream_model.clone(),
            weight: listed.weight,
            priority: listed.priority,
            circuit: counts.circuit.state(now).as_str(),
            rests_for_ms: rests_for.map_or(0, |rest| {
                u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)
            }),
            running: counts.running,
            answered: counts.answered,
            failed: counts.failed,
            failures_in_a_row: counts.circuit.in_a_row(),
            first_byte_ms: counts.first_byte.map(milliseconds),
            last_failure: counts.last_failure.map(|(at, reason)| LastFailure {
                at: shown(at),
                reason,
            }),
        }
    }
}

fn shown(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let ms = i64::try_from(since.unwrap_or_default().as_millis());
    time_text::shown_ms(ms.unwrap_or(0))
}

pub async fn show(State(gateway): State<Arc<Gateway>>) -> Response {
    let routes = gateway.routes();
    let deployments = routes.deployments.listed().iter();
    let answer = RoutingObject {
        object: "routing",
        deployments: deployments.map(DeploymentObject::from).collect(),
    };
    Json(answer).into_response()
}
