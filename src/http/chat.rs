//! `POST /v1/chat/completions` (SPEC §4.1), step by step.

use std::sync::Arc;

use axum::{Extension, body::Body, extract::State, response::Response};

use super::{
    access_log::RequestLog,
    call::Permitted,
    extract::{Authenticated, read_body},
};
use crate::{
    chat::{Disorder, check_order},
    error::GatewayError,
    gateway::Gateway,
    metered::Form,
    wire::chat::ChatRequest,
};

pub async fn chat_completions(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated, // §5: without a valid key we are not here
    Extension(log): Extension<RequestLog>,
    body: Body,
) -> Result<Response, GatewayError> {
    // §2.1 The body is JSON of the right shape.
    let body = read_body(body, gateway.max_body_bytes).await?;
    let mut request = ChatRequest::parse(&body)?;
    // §3.3 The model is one this account may use.
    let permitted = Permitted::check(&gateway, &caller, &mut request, &log)?;
    // §2.2 Its tool calls and their answers belong together.
    check_order(&request.messages).map_err(Disorder::of_messages)?;
    // §2.1–2.6, §8 Its values are allowed; it is admitted, answered and paid for.
    permitted
        .answer(&gateway, caller, log, request, Form::Chat)
        .await
}
