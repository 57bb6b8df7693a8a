//! `POST /v1/chat/completions` (SPEC §4.1), step by step.

use std::sync::Arc;

use axum::response::Response;

use super::call::{self, Permitted};
use crate::{
    api::access_log::RequestLog,
    gateway::Gateway,
    ledger::Caller,
    metered::{Form, NotStarted},
    prompt::{ChatCall, ToolOrderError, check_order},
    wire::{chat::ChatRequest, error::GatewayError},
};

/// Answers a chat completion.
pub async fn answer(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: &RequestLog,
    body: &[u8],
) -> Result<Response, NotStarted> {
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
    check_order(&request.messages).map_err(ToolOrderError::into_chat_error)?;
    // §2.1–2.6 Its values are allowed.
    permitted.prepare(gateway, (&caller.account_id, caller.plan), request)
}
