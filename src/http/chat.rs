//! `POST /v1/chat/completions` (SPEC §4.1), step by step.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};

use super::{
    access_log::RequestLog,
    call::{self, Permitted},
    confirm::{body_of, confirmed},
    extract::Asked,
};
use crate::{
    chat::{ChatCall, Disorder, check_order},
    error::GatewayError,
    gateway::Gateway,
    ledger::Caller,
    metered::{Form, NotStarted},
    wire::chat::ChatRequest,
};

pub async fn chat_completions(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked, // §5: without a valid key we are not here
) -> Result<Response, GatewayError> {
    chat_as(&gateway, asked.caller, asked.log, asked.body).await
}

/// The same for a caller who was recognised by something else than a key.
pub async fn chat_as(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: RequestLog,
    body: Body,
) -> Result<Response, GatewayError> {
    let body = body_of(gateway, &caller, body).await?;
    confirmed(gateway, caller, |caller| {
        answer(gateway, caller, &log, &body)
    })
    .await
}

async fn answer(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: &RequestLog,
    body: &[u8],
) -> Result<Response, NotStarted> {
    log.caller(&caller);
    let call = prepared(gateway, &caller, log, body)?;
    // §8 It is admitted, answered and paid for.
    call::answer(gateway, caller, log.clone(), call, Form::Chat).await
}

/// What is asked, if it may be.
fn prepared(
    gateway: &Gateway,
    caller: &Caller,
    log: &RequestLog,
    body: &[u8],
) -> Result<Box<ChatCall>, GatewayError> {
    // §2.1 The body is JSON of the right shape.
    let mut request = ChatRequest::parse(body)?;
    // §3.3 The model is one this account may use.
    let permitted = Permitted::check(gateway, caller, &mut request, log)?;
    // §2.2 Its tool calls and their answers belong together.
    check_order(&request.messages).map_err(Disorder::of_messages)?;
    // §2.1–2.6 Its values are allowed.
    permitted.prepare(gateway, (&caller.account_id, caller.plan), request)
}
