//! `GET /operator/routing`: every upstream and how it is doing, and what hybrids have chosen.
//! `POST /operator/routing/explain`: what a hybrid would choose.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{error::OperatorError, query::ReadQuery};
use crate::{
    api::{Json, public::explain as explained, read_body},
    base::{money::NanoUsd, timestamp},
    catalog::Plan,
    gateway::{Chose, Gateway, Tallied},
    upstream::deployments::ConfiguredDeployment,
};

#[derive(Serialize)]
struct RoutingObject {
    object: &'static str,
    deployments: Vec<DeploymentObject>,
    /// The version of the router weights in use.
    weights: String,
    hybrids: Vec<HybridObject>,
}

/// What a hybrid has chosen since the gateway was started.
#[derive(Serialize)]
struct HybridObject {
    model: String,
    answered: u64,
    /// Over always asking the dearest target that could have answered.
    estimated_saving: NanoUsd,
    quality: QualityObject,
    chosen: Vec<ChosenObject>,
}

/// How much was expected of each quality tier, the weakest first: it drifts when requests change.
#[derive(Serialize)]
struct QualityObject {
    p10: [f64; 4],
    p50: [f64; 4],
    p90: [f64; 4],
}

/// How often whom and why.
#[derive(Serialize)]
struct ChosenObject {
    routed_model: String,
    reason: &'static str,
    answered: u64,
    estimated_saving: NanoUsd,
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

impl From<&ConfiguredDeployment> for DeploymentObject {
    fn from(listed: &ConfiguredDeployment) -> Self {
        let (counts, now) = (listed.counts(), Instant::now());
        let rests_for = counts.circuit.open_until();
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
            failures_in_a_row: counts.circuit.consecutive_failures(),
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
    timestamp::shown_ms(ms.unwrap_or(0))
}

pub async fn show(State(gateway): State<Arc<Gateway>>) -> Response {
    let routes = gateway.routes();
    let deployments = routes.deployments.configured().iter();
    let answer = RoutingObject {
        object: "routing",
        deployments: deployments.map(DeploymentObject::from).collect(),
        weights: routes.knowledge.scorer().version().to_owned(),
        hybrids: gateway.tally.look().into_iter().map(hybrid).collect(),
    };
    Json(answer).into_response()
}

fn hybrid((model, chose): (String, Chose)) -> HybridObject {
    let total = chose.total();
    HybridObject {
        model,
        answered: total.count,
        estimated_saving: total.estimated_saving,
        quality: QualityObject {
            p10: chose.quality(10),
            p50: chose.quality(50),
            p90: chose.quality(90),
        },
        chosen: chose.answers.into_iter().map(chosen).collect(),
    }
}

fn chosen(((routed_model, reason), tallied): ((String, &'static str), Tallied)) -> ChosenObject {
    ChosenObject {
        routed_model,
        reason,
        answered: tallied.count,
        estimated_saving: tallied.estimated_saving,
    }
}

#[derive(Deserialize)]
pub struct OnBehalf {
    /// Whose plan and whose conversations they are; else all models are included.
    account: Option<String>,
}

/// The body is one of `POST /v1/chat/completions`. No provider is asked.
pub async fn explain(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(OnBehalf { account }): ReadQuery<OnBehalf>,
    body: Body,
) -> Result<Response, OperatorError> {
    let body = read_body(body, gateway.max_body_bytes).await;
    let body = body.map_err(OperatorError::Body)?;
    gateway.ledger.refresh().await?;
    let account = match account {
        Some(id) => Some(gateway.ledger.account(&id).await?),
        None => None,
    };
    let account = account
        .as_ref()
        .map_or(("", Plan::ALL), |account| (&account.id, account.plan));
    let decision = explained(&gateway, account, &body).map_err(OperatorError::Body)?;
    let decision = decision.ok_or_else(|| {
        let message = "This model is no hybrid: it answers itself.";
        OperatorError::invalid("model", message)
    })?;
    Ok(Json(decision).into_response())
}
