//! `GET /operator/requests/{id}`: details of one request.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{error::OperatorError, path::Path};
use crate::{
    api::{Json, loggable},
    base::{
        money::{NanoUsd, PicoUsd},
        timestamp,
    },
    gateway::Gateway,
    ledger::{Attempt, Call, LedgerError, Replay, Step},
    wire::{Pricing, agent::Agent},
};

#[derive(Serialize)]
struct RequestObject {
    id: String,
    object: &'static str,
    /// The `X-Request-ID` header of its response.
    request_id: String,
    account_id: String,
    key_id: String,
    project: String,
    /// The person who made the key; `null` for a service key.
    member: Option<String>,
    model: String,
    /// The model that served the request: for hybrids the chosen target.
    routed_model: String,
    /// The provider of the last attempt, by its name in the configuration.
    upstream: Option<String>,
    stream: bool,
    outcome: &'static str,
    failure: Option<String>,
    /// Failed attempts in order, including the last one if no upstream responded.
    failed_attempts: Vec<Attempt>,
    /// The provider's responses and the runs of built-in tools, in order.
    steps: Vec<Step>,
    /// Why a hybrid chose `routed_model`; `null` for other models.
    decision: Option<Box<RawValue>>,
    /// The coding agent that sent the request; `null` if it did not name itself.
    agent: Option<Agent>,
    admission: Admission,
    hold: Hold,
    first_byte_at: Option<String>,
    settlement: Settlement,
    duration_ms: i64,
    /// Other requests with the same `X-Request-ID`, newest first.
    same_request_id: Vec<String>,
    /// Requests that got its response, which cost nothing, oldest first; the first twenty.
    replays: Vec<ReplayObject>,
}

/// A request that got the response of another one.
#[derive(Serialize)]
struct ReplayObject {
    request_id: String,
    /// `attached` while the call was running, or `replayed` afterwards.
    kind: &'static str,
    at: String,
}

impl From<Replay> for ReplayObject {
    fn from(replay: Replay) -> Self {
        Self {
            request_id: replay.request_id,
            kind: replay.kind.as_str(),
            at: timestamp::shown_ms(replay.at_ms),
        }
    }
}

/// The reservation in the account's rate-limit window for the model.
#[derive(Serialize)]
struct Admission {
    at: String,
    reserved_tokens: u64,
}

#[derive(Serialize)]
struct Hold {
    amount: NanoUsd,
    /// The most that the call could have cost.
    most: NanoUsd,
}

#[derive(Serialize)]
struct Settlement {
    at: String,
    usage: Option<UsageCounts>,
    prices: Pricing,
    /// Zero if nothing was charged.
    charge: NanoUsd,
    /// Amount that the provider charges the operator; `null` if the configuration has no cost for the deployment.
    provider_cost: Option<NanoUsd>,
    balance_before: Option<NanoUsd>,
    balance_after: Option<NanoUsd>,
}

#[derive(Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "the names are those of the public API"
)]
struct UsageCounts {
    prompt_tokens: u32,
    cached_tokens: u32,
    cache_write_tokens: u32,
    completion_tokens: u32,
    reasoning_tokens: u32,
    total_tokens: u64,
}

impl RequestObject {
    fn new(call: Call, same_request_id: Vec<String>, replays: Vec<Replay>) -> Self {
        let (charged, steps) = (call.charged, steps(&call));
        let usage = charged.map(|charged| UsageCounts {
            prompt_tokens: charged.usage.prompt,
            cached_tokens: charged.usage.cached,
            cache_write_tokens: charged.usage.cache_write,
            completion_tokens: charged.usage.completion,
            reasoning_tokens: charged.usage.reasoning,
            total_tokens: charged.usage.total(),
        });
        Self {
            id: call.id.to_string(),
            object: "request",
            request_id: call.request_id,
            account_id: call.account_id,
            key_id: call.payer.key_id.clone(),
            project: call.payer.project().to_owned(),
            member: call.payer.member_id.clone(),
            model: call.model,
            routed_model: call.routed_model,
            upstream: call.upstream.as_deref().map(str::to_owned),
            stream: call.stream,
            outcome: call.outcome.as_str(),
            failure: call.failure,
            steps,
            decision: call
                .decision
                .and_then(|decision| RawValue::from_string(decision).ok()),
            agent: call.agent.map(Arc::unwrap_or_clone),
            failed_attempts: call.attempts,
            admission: Admission {
                at: timestamp::shown_ms(call.admitted_ms),
                reserved_tokens: call.reserved_tokens,
            },
            hold: Hold {
                amount: call.held,
                most: call.most,
            },
            first_byte_at: call.first_byte_ms.map(timestamp::shown_ms),
            settlement: Settlement {
                at: timestamp::shown_ms(call.ended_ms),
                usage,
                prices: (&*call.prices).into(),
                charge: charged.map_or(NanoUsd::default(), |charged| charged.cost),
                provider_cost: call.provider_cost.map(PicoUsd::rounded_up),
                balance_before: charged.map(|charged| charged.balance_before),
                balance_after: charged.map(|charged| charged.balance_after),
            },
            duration_ms: call.ended_ms - call.admitted_ms,
            same_request_id,
            replays: replays.into_iter().map(From::from).collect(),
        }
    }
}

/// Returns the steps of a call. A charged call without recorded steps, because no tool ran, has its one response.
fn steps(call: &Call) -> Vec<Step> {
    let Some(charged) = call.charged.filter(|_| call.steps.is_empty()) else {
        return call.steps.clone();
    };
    vec![Step::Provider {
        upstream: call.upstream.as_deref().unwrap_or_default().to_owned(),
        finish_reason: None,
        prompt_tokens: charged.usage.prompt,
        cached_tokens: charged.usage.cached,
        cache_write_tokens: charged.usage.cache_write,
        cache_write_1h_tokens: charged.usage.cache_write_1h,
        completion_tokens: charged.usage.completion,
        ms: u64::try_from(call.ended_ms - call.admitted_ms).unwrap_or(0),
    }]
}

/// Finds a request by its call ID, by its `X-Request-ID`, or by that of a retry that got its response. Clients may use one `X-Request-ID` for several requests:
/// then this is the newest, and `same_request_id` lists the others.
pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Response, OperatorError> {
    let mut calls = gateway.ledger.find_calls(&loggable(&id)).await?.into_iter();
    let call = calls.next().ok_or_else(|| LedgerError::NotFound {
        what: "admitted request",
        id,
    })?;
    let others = calls.map(|call| call.id.to_string()).collect();
    let replays = gateway.ledger.replays_of(call.id).await?;
    Ok(Json(RequestObject::new(call, others, replays)).into_response())
}
