//! What a request brings: its key, its body.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::{auth::ApiKey, catalog::Plan, error::GatewayError, gateway::Gateway, ledger::Caller};

/// How long a client may pause in the middle of its body.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// How much of a body that nobody wants is still taken off the wire.
const MAX_DRAINED_BYTES: usize = 64 << 20;

/// The key in the `Authorization` header.
pub fn key_presented(headers: &HeaderMap) -> Result<ApiKey, GatewayError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let value = first.ok_or(GatewayError::MissingKey)?;
    if second.is_some() {
        return Err(GatewayError::InvalidKey); // which of the two was meant is not ours to guess
    }
    let value = value.to_str().map_err(|_| GatewayError::InvalidKey)?;
    let (scheme, key) = value.split_once(' ').unwrap_or((value, ""));
    let key = key.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() {
        return Err(GatewayError::MissingKey);
    }
    ApiKey::parse(key).ok_or(GatewayError::InvalidKey)
}

/// The plan a public endpoint answers for: the key's account's, or that of someone without one.
pub struct VisibleTo(pub Plan);

impl FromRequestParts<Arc<Gateway>> for VisibleTo {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let key = key_presented(&parts.headers).ok();
        let caller = key.and_then(|key| gateway.ledger.caller(key.digest()));
        let open = caller.filter(|caller| !caller.account_closed);
        Ok(Self(open.map_or(Plan::ANONYMOUS, |caller| caller.plan)))
    }
}

/// The caller that [`super::layers::authenticate`] found.
pub struct Authenticated(pub Caller);

impl<S: Sync> FromRequestParts<S> for Authenticated {
    type Rejection = GatewayError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts
            .extensions
            .remove()
            .map(Self)
            .ok_or(GatewayError::MissingKey)
    }
}

/// The whole body, within its bounds of size and time. The content type is not looked at: what
/// counts is whether it can be read.
pub async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, GatewayError> {
    use axum::body::HttpBody as _;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        drain_unread(body);
        return Err(GatewayError::BodyTooLarge { limit });
    }
    let mut whole = BytesMut::with_capacity(announced);
    loop {
        let frame = tokio::time::timeout(BODY_PATIENCE, body.frame())
            .await
            .map_err(|_| GatewayError::BodyTooSlow)?;
        let data = match frame {
            None => return Ok(whole.freeze()),
            Some(frame) => frame
                .map_err(|_| broken_body())?
                .into_data()
                .unwrap_or_default(),
        };
        if whole.len() + data.len() > limit {
            drain_unread(body);
            return Err(GatewayError::BodyTooLarge { limit });
        }
        whole.extend_from_slice(&data);
    }
}

fn broken_body() -> GatewayError {
    let message = "The request body broke off.".to_owned();
    GatewayError::InvalidRequest {
        message,
        param: None,
    }
}

/// Takes a body that nobody will read off the wire, within bounds, while the answer goes out.
///
/// A connection closed on unread bytes is reset, and the reset can overtake the answer that says
/// why.
pub fn drain_unread(mut body: Body) {
    use axum::body::HttpBody as _;
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(BODY_PATIENCE, async move {
        let mut drained = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > MAX_DRAINED_BYTES {
                break;
            }
        }
    }));
}
