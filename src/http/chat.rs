//! `POST /v1/chat/completions` (SPEC §4.1), step by step.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderName, HeaderValue},
    response::Response,
};

use super::{
    access_log::RequestLog,
    extract::{Authenticated, read_body},
    json_response, sse,
};
use crate::{
    chat,
    error::GatewayError,
    gateway::Gateway,
    metered::{self, Reply},
    time_text,
    wire::chat::ChatRequest,
};

const CREDITS_EXPIRE_AT: HeaderName = HeaderName::from_static("x-credits-expire-at");
const ROUTED_MODEL: HeaderName = HeaderName::from_static("x-routed-model");

pub async fn chat_completions(
    State(gateway): State<Arc<Gateway>>,
    Authenticated(caller): Authenticated, // §5: without a valid key we are not here
    Extension(log): Extension<RequestLog>,
    body: Body,
) -> Result<Response, GatewayError> {
    // §2.1 The body is JSON of the right shape.
    let body = read_body(body, gateway.max_body_bytes).await?;
    let mut request = ChatRequest::parse(&body)?;
    log.model(&request.model);
    let routes = gateway.routes();
    let route = gateway.route(&routes.catalog, &request.model);
    let dropped = |parameter| route.as_ref().is_some_and(|route| route.drops(parameter));
    let settings = std::mem::take(&mut request.sampling).checked(dropped)?;
    // §3.3 The model is one this account may use.
    let route = route.ok_or_else(|| GatewayError::ModelNotFound {
        model: request.model.clone(),
    })?;
    let model = route.requested.clone();
    if !caller.plan.includes(model.min_tier) {
        return Err(GatewayError::TierUpgradeRequired {
            model: model.id.clone(),
            current: caller.plan.tier(),
            required: model.min_tier,
            upgrade_url: gateway.links.upgrade.clone(),
        });
    }
    // §2.2–2.4, §8.3 The values are allowed, and the request is put in our own form.
    let identity = routes.catalog.identity_prompt(&model);
    let call = chat::prepare(
        request,
        settings,
        route,
        identity.as_deref(),
        &caller.account_id,
    )?;
    // §8 The part that costs money.
    let answering = model.is_hybrid().then(|| call.route.target.id.clone());
    let started = metered::start(&gateway, caller, log.request_id(), call).await?;
    // §2.5, §2.6 The answer, in the form that was asked for.
    let mut response = match started.reply {
        Reply::Whole { body, usage } => {
            log.usage(usage);
            json_response(body)
        }
        Reply::Stream(frames) => sse::response(frames, log),
    };
    if let Some(target) = answering.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(ROUTED_MODEL, target);
    }
    let expiry = started.credits_expire_at.map(time_text::shown);
    if let Some(expiry) = expiry.and_then(|expiry| HeaderValue::try_from(expiry).ok()) {
        response.headers_mut().insert(CREDITS_EXPIRE_AT, expiry);
    }
    Ok(response)
}
