//! `POST /v1/chat/completions` (§4.1).

use std::sync::Arc;

use axum::response::Response;

use super::call::{self, Permitted};
use crate::{
    api::{access_log::RequestLog, body::ReceivedBody},
    gateway::{Gateway, retries::RecordedCall},
    ledger::Caller,
    metered::{Form, NotStarted},
    prompt::{ChatCall, ToolOrderError, check_order},
    wire::{chat::ChatRequest, error::GatewayError},
};

/// Checks and runs a chat completion.
pub(crate) async fn respond(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: &RequestLog,
    body: &ReceivedBody,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Response, NotStarted> {
    let mut call = if body.is_large() {
        Box::pin(prepare_large(gateway, &caller, log, body)).await?
    } else {
        prepare(gateway, &caller, log, body.bytes())?
    };
    call.body_memory = body.memory();
    // §8 Admits, runs and charges the call.
    call::respond(gateway, caller, log.clone(), call, Form::Chat, recorded).await
}

/// Like [`prepare`], on a thread of its own, so that other requests do not wait for it.
async fn prepare_large(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    body: &ReceivedBody,
) -> Result<Box<ChatCall>, GatewayError> {
    // The body goes along with its reservation, because it stays in memory even if the client leaves.
    let (state, caller, log, body) = (gateway.clone(), caller.clone(), log.clone(), body.clone());
    let prepared = gateway.offload.run(move || {
        let mut call = prepare(&state, &caller, &log, body.bytes())?;
        call.count_in_advance();
        Ok(call)
    });
    prepared.await.unwrap_or(Err(GatewayError::Internal))
}

/// Parses and checks the request.
fn prepare(
    gateway: &Gateway,
    caller: &Caller,
    log: &RequestLog,
    body: &[u8],
) -> Result<Box<ChatCall>, GatewayError> {
    // §2.1 The body is a JSON object with the right types.
    let mut request = ChatRequest::parse(body)?;
    // §3.3 The model is one this account may use.
    let permitted = Permitted::check(gateway, caller, &mut request, log)?;
    // §2.2 Each tool call has its results, in the right order.
    check_order(&request.messages).map_err(ToolOrderError::into_chat_error)?;
    // §2.1–2.6 Its values are allowed.
    permitted.prepare(gateway, (&caller.account_id, caller.plan), request)
}
