//! `GET /operator/routing`: the state of every deployment, and the hybrids' choices since the start.
//! `POST /operator/routing/explain`: dry run of a hybrid's choice.

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
    api::{
        Json,
        body::{MemoryGate, read_through},
        public::explain as explained,
    },
    base::{money::NanoUsd, timestamp},
    catalog::Plan,
    gateway::{ChoiceTally, Gateway, HybridTally},
    upstream::deployments::ConfiguredDeployment,
    wire::error::GatewayError,
};

/// Stands for an account where the memory of bodies is counted.
const OPERATOR: &str = "operator";

#[derive(Serialize)]
struct RoutingObject {
    object: &'static str,
    deployments: Vec<DeploymentObject>,
    /// The version of the router weights in use.
    weights: String,
    hybrids: Vec<HybridObject>,
}

/// Choices of a hybrid since the gateway was started.
#[derive(Serialize)]
struct HybridObject {
    model: String,
    answered: u64,
    /// Compared with always choosing the most expensive target that fits.
    estimated_saving: NanoUsd,
    quality: QualityObject,
    chosen: Vec<ChosenObject>,
}

/// Quantiles of the quality that was expected of each quality tier, the weakest first. They drift when requests
/// change.
#[derive(Serialize)]
struct QualityObject {
    p10: [f64; 4],
    p50: [f64; 4],
    p90: [f64; 4],
}

/// How often the hybrid chose a model for a reason.
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
    /// `None` if it is the catalog ID.
    upstream_model: Option<String>,
    weight: u32,
    priority: u32,
    /// State of the circuit: `closed` (normal), `open` (skipped) or `half_open` (the next call is a trial).
    circuit: &'static str,
    /// Milliseconds for which the circuit stays open.
    rests_for_ms: u64,
    running: u64,
    answered: u64,
    failed: u64,
    failures_in_a_row: u32,
    /// Moving average of the time to the first byte, in which the latest call counts most.
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
        let open_until = counts.circuit.open_until();
        let open_for = open_until.map(|until| until.saturating_duration_since(now));
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
            rests_for_ms: open_for.map_or(0, |time| {
                u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>) -> Response {
    let routes = gateway.routes();
    let deployments = routes.deployments.configured().iter();
    let object = RoutingObject {
        object: "routing",
        deployments: deployments.map(DeploymentObject::from).collect(),
        weights: routes.knowledge.scorer().version().to_owned(),
        hybrids: gateway.tally.snapshot().into_iter().map(hybrid).collect(),
    };
    Json(object).into_response()
}

fn hybrid((model, tally): (String, HybridTally)) -> HybridObject {
    let total = tally.total();
    HybridObject {
        model,
        answered: total.count,
        estimated_saving: total.estimated_saving,
        quality: QualityObject {
            p10: tally.quality(10),
            p50: tally.quality(50),
            p90: tally.quality(90),
        },
        chosen: tally.choices.into_iter().map(chosen).collect(),
    }
}

fn chosen(((routed_model, reason), tally): ((String, &'static str), ChoiceTally)) -> ChosenObject {
    ChosenObject {
        routed_model,
        reason,
        answered: tally.count,
        estimated_saving: tally.estimated_saving,
    }
}

#[derive(Deserialize)]
pub(crate) struct ExplainQuery {
    /// The account whose plan and conversations apply. Without one, all models are included.
    account: Option<String>,
}

/// Dry run: calls no provider and changes no state. The body is one of `POST /v1/chat/completions`.
pub(crate) async fn explain(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(ExplainQuery { account }): ReadQuery<ExplainQuery>,
    body: Body,
) -> Result<Response, OperatorError> {
    let mut memory = MemoryGate::new(&gateway.body_memory, OPERATOR);
    let body = read_through(&mut memory, body, gateway.max_body_bytes).await;
    let body = body.and_then(|body| memory.received(body));
    let body = body.map_err(OperatorError::Body)?;
    gateway.ledger.refresh().await?;
    let (id, plan) = match account {
        Some(id) => {
            let account = gateway.ledger.account(&id).await?;
            (account.id, account.plan)
        }
        None => (String::new(), Plan::ALL),
    };
    let decision = if body.is_large() {
        let state = gateway.clone();
        let work = move || explained(&state, (&id, plan), body.bytes());
        let explained = gateway.offload.run(work).await;
        explained.unwrap_or(Err(GatewayError::Internal))
    } else {
        explained(&gateway, (&id, plan), body.bytes())
    };
    let decision = decision.map_err(OperatorError::Body)?;
    let decision = decision.ok_or_else(|| {
        let message = "This model is not a hybrid.";
        OperatorError::invalid("model", message)
    })?;
    Ok(Json(decision).into_response())
}
