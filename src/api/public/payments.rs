//! Where a payment provider tells what was paid. Its signature is all that counts here: no cookie, no
//! key, no origin.

use std::sync::Arc;

use axum::{Extension, Router, body::Body, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};

use crate::{
    api::{Json, access_log::RequestLog, extract::read_body},
    backoffice::payments::PaymentEvent,
    base::timestamp,
    gateway::{Gateway, actions},
    wire::error::GatewayError,
};

/// Much more than an event has.
const MAX_BYTES: usize = 64 << 10;

/// The one route, where a provider is there to use it.
pub fn router(gateway: &Gateway) -> Router<Arc<Gateway>> {
    let payments = gateway.payments.as_ref();
    match payments.and_then(|payments| payments.provider.event_path()) {
        Some(path) => Router::new().route(path, post(deliver)),
        None => Router::new(),
    }
}

async fn deliver(
    State(gateway): State<Arc<Gateway>>,
    Extension(log): Extension<RequestLog>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, GatewayError> {
    let body = read_body(body, MAX_BYTES).await?;
    if let Some(account) = delivered(&gateway, &headers, &body).await? {
        log.account(&account);
    }
    Ok(Json(json!({ "received": true })))
}

/// Takes an event: the account that it brought credit to, if it brought any.
///
/// What it brought is written down when this returns. A 5xx asks for the same event again.
pub async fn delivered(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<String>, GatewayError> {
    let payments = gateway.payments.as_ref().ok_or(GatewayError::Internal)?;
    let read = payments.provider.read(headers, body, timestamp::now());
    let refused = |refused: crate::backoffice::payments::EventError| GatewayError::InvalidRequest {
        message: refused.to_string(),
        param: None,
    };
    match read.map_err(refused)? {
        PaymentEvent::Other => Ok(None),
        PaymentEvent::Paid(paid) => actions::credit_payment(gateway, payments, &paid)
            .await
            .map_err(|actions::DeliverAgain| GatewayError::CreditUnavailable),
    }
}
