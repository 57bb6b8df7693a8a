//! What a call of the playground was charged, as the ledger has it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::loggable,
    gateway::Gateway,
    ledger::Call,
    portal::{
        error::PortalError, formatting::money, query::ReadQuery, requests, session::SignedIn,
        sight::Sight,
    },
};

/// A call that has ended.
#[derive(Serialize)]
pub(super) struct Charge {
    /// `$0.00` if nothing was charged.
    pub cost: String,
    pub charged: bool,
    pub input: u32,
    pub output: u32,
    /// Part of `output`.
    pub reasoning: u32,
    /// The label of its outcome.
    pub outcome: &'static str,
    /// From the call's beginning to its end, in milliseconds.
    pub took_ms: i64,
    /// The path of its page.
    pub path: String,
}

impl Charge {
    fn of(call: &Call) -> Self {
        let usage = call.charged.map(|charged| charged.usage);
        let usage = usage.unwrap_or_default();
        let cost = call.charged.map(|charged| charged.cost);
        Self {
            cost: money(cost.unwrap_or_default()),
            charged: cost.is_some(),
            input: usage.prompt,
            output: usage.completion,
            reasoning: usage.reasoning,
            outcome: requests::outcome_label(call.outcome),
            took_ms: call.ended_ms - call.admitted_ms,
            path: requests::path(call.id),
        }
    }

    /// The charge of the person's call with this request ID; `None` if there is none that has ended.
    pub(super) async fn find(
        gateway: &Gateway,
        me: &SignedIn,
        request_id: &str,
    ) -> Result<Option<Self>, PortalError> {
        // As it is stored, which PostgreSQL refuses to compare with a NUL byte.
        let request_id = loggable(request_id);
        if request_id.contains('\0') {
            return Ok(None);
        }
        let ledger = &gateway.ledger;
        let calls = ledger.find_calls_of(&me.account.id, &request_id).await?;
        let sight = Sight::of(gateway, me).await?;
        let mut calls = calls.iter();
        let call = calls.find(|call| sight.sees_call(call));
        Ok(call.map(Self::of))
    }
}

#[derive(Deserialize)]
pub(crate) struct ChargeQuery {
    request: String,
}

/// The charge of a call as JSON.
///
/// A call is in the ledger once it has ended, so 202 means that it may still be running. The response is the same for an
/// unknown call and for one that the person does not see.
pub(crate) async fn charge(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<ChargeQuery>,
) -> Result<Response, PortalError> {
    let charge = Charge::find(&gateway, &me, &query.request).await?;
    let (status, body) = match charge {
        Some(charge) => (StatusCode::OK, json!(charge)),
        None => (StatusCode::ACCEPTED, json!({ "pending": true })),
    };
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((status, json, body.to_string()).into_response())
}
