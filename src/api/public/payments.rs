//! Callback of the payment provider (webhook). It is authenticated by its signature alone: no cookie, key or origin is
//! checked.
//!
//! If an event cannot be stored, the response is a 5xx, and the provider sends the event again.

use std::sync::Arc;

use axum::{Extension, Router, body::Body, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};

use crate::{
    api::{Json, access_log::RequestLog, body::read_body},
    backoffice::payments::PaymentEvent,
    base::timestamp,
    gateway::{Gateway, actions},
    wire::error::GatewayError,
};

/// Largest event that is read; real ones are much smaller.
const MAX_BYTES: usize = 64 << 10;

/// The route of the callback; empty if no payment provider is configured.
pub(crate) fn router(gateway: &Gateway) -> Router<Arc<Gateway>> {
    let payments = gateway.payments.as_ref();
    match payments.and_then(|payments| payments.provider.event_path()) {
        Some(path) => Router::new().route(path, post(deliver)),
        None => Router::new(),
    }
}

/// Reads an event and stores it.
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

/// Verifies an event and credits its payment. Returns the account that was credited, if any.
///
/// The credit is committed when this returns `Ok`. A 5xx makes the provider send the event again.
pub(crate) async fn delivered(
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
