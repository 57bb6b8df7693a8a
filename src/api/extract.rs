//! Extracts the API key and the caller from a request.
//!
//! A refused request's body is drained, so that the client can read the error response.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderName, header, request::Parts},
};

use super::{Source, access_log::RequestLog, dialect::Dialect, refusal_limits::find_caller};
use crate::{
    base::keys::ApiKey,
    catalog::Plan,
    gateway::Gateway,
    ledger::{Caller, KeyTerms, Ledger, LedgerError},
    net::drain::drain_unread,
    wire::{agent::Agent, error::GatewayError},
};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Most keys of one request that are tried.
const MAX_KEYS: usize = 4;

/// Address of the client: the peer of the connection, or the client of a trusted proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

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

/// The API keys of a request of the Messages API: those in `x-api-key` and `Authorization` that have the form of our
/// keys. One of the headers may have a key of another service, which is skipped.
pub(crate) fn presented_keys(headers: &HeaderMap) -> Result<Vec<ApiKey>, GatewayError> {
    let plain = headers.get_all(API_KEY).iter();
    let plain = plain.map(|value| value.to_str().map_or("?", str::trim));
    let bearer = headers.get_all(header::AUTHORIZATION).iter();
    let bearer = bearer.filter_map(|value| {
        let (scheme, key) = value.to_str().unwrap_or("bearer ?").split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let mut sent = plain
        .chain(bearer)
        .filter(|key| !key.is_empty())
        .take(MAX_KEYS)
        .peekable();
    if sent.peek().is_none() {
        return Err(GatewayError::MissingKey);
    }
    let keys: Vec<_> = sent.filter_map(ApiKey::parse).collect();
    if keys.is_empty() {
        return Err(GatewayError::InvalidKey);
    }
    Ok(keys)
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
pub(crate) struct VisibleTo {
    pub plan: Plan,
    /// The models of the caller's key may be fewer.
    pub terms: Arc<KeyTerms>,
}

impl FromRequestParts<Arc<Gateway>> for VisibleTo {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, Self::Rejection> {
        let keys = match Dialect::of_headers(&parts.headers) {
            Dialect::OpenAi => presented_key(&parts.headers).map(|key| vec![key]),
            Dialect::Messages => presented_keys(&parts.headers),
        };
        let mut keys = keys.unwrap_or_default();
        let client = parts.extensions.get().map(|Peer(address)| *address);
        let sent = keys.len();
        keys.retain(|key| may_look_up(gateway, key, client));
        let caller = if keys.is_empty() && sent > 0 {
            None
        } else {
            optional_caller(&gateway.ledger, keys).await
        };
        if let Some((caller, log)) = caller.as_ref().zip(parts.extensions.get::<RequestLog>()) {
            log.caller(caller);
        }
        let open = caller.filter(|caller| !caller.account_closed);
        Ok(open.map_or_else(
            || Self {
                plan: Plan::ANONYMOUS,
                terms: Arc::default(),
            },
            |caller| Self {
                plan: caller.plan,
                terms: caller.terms,
            },
        ))
    }
}

/// Whether a key may be looked up in the store. While an address has been refused too often, only known keys are.
fn may_look_up(gateway: &Gateway, key: &ApiKey, client: Option<IpAddr>) -> bool {
    gateway.ledger.has_in_memory(key.digest()) || gateway.refusals.address_wait(|| client).is_none()
}

/// The caller of a public endpoint, if it has a valid key. If the store is unavailable, cached data is used, because
/// the list of models must not fail (§4.4).
async fn optional_caller(ledger: &Ledger, keys: Vec<ApiKey>) -> Option<Caller> {
    if keys.is_empty() {
        let _ = ledger.refresh().await;
        return None;
    }
    for key in keys {
        let digest = key.digest();
        let caller = match ledger.fresh_caller(digest).await {
            Ok(caller) => caller,
            Err(_) => ledger.caller(digest).await.ok().flatten(),
        };
        if caller.is_some() {
            return caller;
        }
    }
    None
}

/// The caller of a billed request, found by its key, and the unread body.
///
/// The caller may come from a cache: `confirm.rs` re-reads it before a refusal.
pub(crate) async fn authenticated(
    gateway: &Gateway,
    request: Request,
    source: Option<&Source>,
    log: &RequestLog,
    dialect: Dialect,
) -> Result<(Caller, Body), GatewayError> {
    let headers = request.headers();
    let client = || source.map(|source| source.client(headers));
    let caller = find_caller(gateway, headers, dialect, client, Some(log), false).await;
    if let Some(agent) = Agent::read(headers) {
        log.sent_by(agent);
    }
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
