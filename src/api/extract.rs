//! Extracts the API key, the caller and the body from a request.
//!
//! A refused request's body is drained, so that the client can read the error response.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequestParts, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::access_log::RequestLog;
use crate::{
    base::keys::ApiKey,
    catalog::Plan,
    gateway::Gateway,
    ledger::{Caller, Ledger, LedgerError},
    net::{
        drain::drain_unread,
        timeout::{DeadlineExceeded, with_deadline},
    },
    wire::error::GatewayError,
};

/// Timeout for each [`BODY_PACE`] bytes of a body, or for its rest: a kilobyte per second, so that a client cannot keep
/// a request open by sending single bytes.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_PACE: usize = 30 << 10;

/// Address of the client: the peer of the connection, or the client of a trusted proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub std::net::IpAddr);

/// The API key in the `Authorization` header.
pub(crate) fn presented_key(headers: &HeaderMap) -> Result<ApiKey, GatewayError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let value = first.ok_or(GatewayError::MissingKey)?;
    if second.is_some() {
        return Err(GatewayError::InvalidKey); // ambiguous: which of the two applies is unknown
    }
    let value = value.to_str().map_err(|_| GatewayError::InvalidKey)?;
    let (scheme, key) = value.split_once(' ').unwrap_or((value, ""));
    let key = key.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() {
        return Err(GatewayError::MissingKey);
    }
    ApiKey::parse(key).ok_or(GatewayError::InvalidKey)
}

/// The caller that the ledger found for a key, or the error for the client: invalid key, or ledger unavailable.
pub(crate) fn require_caller(
    found: Result<Option<Caller>, LedgerError>,
) -> Result<Caller, GatewayError> {
    match found {
        Ok(caller) => caller.ok_or(GatewayError::InvalidKey),
        Err(error) => {
            tracing::debug!(%error, "looking up a key failed; the request is refused");
            Err(GatewayError::CreditUnavailable)
        }
    }
}

/// The plan whose models a public endpoint shows: that of the key's account, or `Plan::ANONYMOUS` without a valid key.
pub(crate) struct VisibleTo(pub Plan);

impl FromRequestParts<Arc<Gateway>> for VisibleTo {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let key = presented_key(&parts.headers).ok();
        let caller = optional_caller(&gateway.ledger, key).await;
        if let Some((caller, log)) = caller.as_ref().zip(parts.extensions.get::<RequestLog>()) {
            log.caller(caller);
        }
        let open = caller.filter(|caller| !caller.account_closed);
        Ok(Self(open.map_or(Plan::ANONYMOUS, |caller| caller.plan)))
    }
}

/// The caller of a public endpoint, if it has a valid key. If the store is unavailable, cached data is used, because
/// the list of models must not fail (§4.4).
async fn optional_caller(ledger: &Ledger, key: Option<ApiKey>) -> Option<Caller> {
    let Some(key) = key else {
        let _ = ledger.refresh().await;
        return None;
    };
    let digest = key.digest();
    match ledger.fresh_caller(digest).await {
        Ok(caller) => caller,
        Err(_) => ledger.caller(digest).await.ok().flatten(),
    }
}

/// The caller of a billed request, found by its key, and the unread body.
///
/// The caller may come from a cache: `confirm.rs` re-reads it before a refusal.
pub(crate) async fn authenticated(
    gateway: &Gateway,
    request: Request,
    log: &RequestLog,
) -> Result<(Caller, Body), GatewayError> {
    let caller = match presented_key(request.headers()) {
        Ok(key) => require_caller(gateway.ledger.caller(key.digest()).await),
        Err(error) => Err(error),
    };
    let body = request.into_body();
    match caller {
        Ok(caller) => {
            log.caller(&caller);
            Ok((caller, body))
        }
        Err(error) => {
            drain_unread(body);
            Err(error)
        }
    }
}

/// The caller that [`super::layers::authenticate`] found.
pub(crate) struct Authenticated(pub Caller);

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

/// Reads the whole body, within its limits of size and time. The content type is ignored: only whether the body can be
/// parsed matters.
pub(crate) async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, GatewayError> {
    use axum::body::HttpBody as _;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        drain_unread(body);
        return Err(GatewayError::BodyTooLarge { limit });
    }
    let mut whole = BytesMut::new();
    // Size that must be reached by `due_by`. The timer starts only when the body has to be waited for.
    let (mut due, mut due_by) = (BODY_PACE, None);
    loop {
        let by = || *due_by.get_or_insert_with(|| Instant::now() + BODY_TIMEOUT);
        let frame = with_deadline(by, body.frame())
            .await
            .map_err(|DeadlineExceeded| GatewayError::BodyTooSlow)?;
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
        // Most bodies arrive in one piece, which is returned without a copy.
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.reserve(announced.saturating_sub(whole.len()));
        whole.extend_from_slice(&data);
        if whole.len() >= due {
            (due, due_by) = (whole.len() + BODY_PACE, None);
        }
    }
}

fn broken_body() -> GatewayError {
    let message = "The request body was cut off, or its HTTP framing is malformed.".to_owned();
    GatewayError::InvalidRequest {
        message,
        param: None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    /// Reads a body whose pieces arrive after these seconds with these sizes. Returns its length and the time in
    /// seconds.
    async fn read(
        pieces: impl IntoIterator<Item = (u64, usize)>,
    ) -> (Result<usize, GatewayError>, u64) {
        let pieces: Vec<_> = pieces.into_iter().collect();
        let pieces = stream::unfold(pieces.into_iter(), async |mut pieces| {
            let (seconds, bytes) = pieces.next()?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let piece = Ok::<_, std::convert::Infallible>(vec![b'x'; bytes]);
            Some((piece, pieces))
        });
        let started = Instant::now();
        let read = read_body(Body::from_stream(pieces), 1 << 20).await;
        (read.map(|body| body.len()), started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_read_and_a_dripping_one_is_not() {
        let (steady, _) = read(std::iter::repeat_n((1, 2_000), 200)).await;
        assert_eq!(steady.unwrap(), 400_000);
        let (late, _) = read([(25, 30_000), (4, 1_000), (29, 10)]).await;
        assert_eq!(late.unwrap(), 31_010);

        let too_slow = |read: Result<usize, GatewayError>| {
            assert!(matches!(read, Err(GatewayError::BodyTooSlow)), "{read:?}");
        };
        let (silent, took) = read([(1, 1_000), (60, 1_000)]).await;
        too_slow(silent);
        assert_eq!(took, 30);
        let (dripping, took) = read(std::iter::repeat_n((1, 100), 1_000)).await;
        too_slow(dripping);
        assert_eq!(took, 30);
        // A fast start does not extend the timeout of the rest.
        let fast = std::iter::once((0, 500_000));
        let (dripping, took) = read(fast.chain(std::iter::repeat_n((1, 100), 1_000))).await;
        too_slow(dripping);
        assert_eq!(took, 30);
    }
}
