//! Usage and charges of an account's calls.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use super::{
    accounts::List,
    error::OperatorError,
    path::Path,
    query::{ReadQuery, TimeRange},
};
use crate::{
    api::Json,
    base::{
        money::{NanoUsd, PicoUsd},
        timestamp,
    },
    gateway::Gateway,
    ledger::Call,
    wire::Pricing,
};

#[derive(Serialize)]
struct UsageObject {
    id: String,
    object: &'static str,
    request_id: String,
    account_id: String,
    key_id: String,
    project: String,
    /// The person who made the key; `null` for a service key.
    member: Option<String>,
    model: String,
    /// The model that served the request: for hybrids the chosen target.
    routed_model: String,
    outcome: &'static str,
    prompt_tokens: u32,
    cached_tokens: u32,
    cache_write_tokens: u32,
    completion_tokens: u32,
    reasoning_tokens: u32,
    prices: Pricing,
    cost: NanoUsd,
    /// Amount that the provider charges the operator; `null` if the configuration has no cost for the deployment.
    provider_cost: Option<NanoUsd>,
    stream: bool,
    /// The session of the coding agent that sent the request; `null` if it named none.
    session: Option<Box<str>>,
    created_at: String,
}

fn usage_object(call: Call) -> Option<UsageObject> {
    let charged = call.charged?;
    Some(UsageObject {
        id: call.id.to_string(),
        object: "usage",
        request_id: call.request_id,
        account_id: call.account_id,
        key_id: call.payer.key_id.clone(),
        project: call.payer.project().to_owned(),
        member: call.payer.member_id.clone(),
        model: call.model,
        routed_model: call.routed_model,
        outcome: call.outcome.as_str(),
        prompt_tokens: charged.usage.prompt,
        cached_tokens: charged.usage.cached,
        cache_write_tokens: charged.usage.cache_write,
        completion_tokens: charged.usage.completion,
        reasoning_tokens: charged.usage.reasoning,
        prices: (&*call.prices).into(),
        cost: charged.cost,
        provider_cost: call.provider_cost.map(PicoUsd::rounded_up),
        stream: call.stream,
        session: call.agent.and_then(|agent| agent.session.clone()),
        created_at: timestamp::shown(call.ended_ms.div_euclid(1_000)),
    })
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    Path(account_id): Path<String>,
    ReadQuery(range): ReadQuery<TimeRange>,
) -> Result<Response, OperatorError> {
    let (from, to) = range.read()?;
    let calls = gateway.ledger.usage(&account_id, from, to).await?;
    let rows = calls.into_iter().filter_map(usage_object);
    Ok(Json(List::new(rows.collect())).into_response())
}
