//! Applies the bounds on refused requests (`gateway/refusals.rs`) to the public API.
//!
//! A request with a valid key counts for its account alone, so that a client cannot lock out others behind the same
//! address; with shared stores, others whose keys this gateway has seen lately.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    response::Response,
};

use super::{
    Source,
    access_log::RequestLog,
    dialect::Dialect,
    extract::{Peer, presented_key, presented_keys, require_caller},
};
use crate::{
    base::keys::ApiKey,
    gateway::Gateway,
    ledger::Caller,
    wire::error::{GatewayError, REFUSALS_EXCEEDED},
};

/// The client's address, if the request came in at the public listener.
pub(crate) fn client_address(request: &Request, source: Option<&Source>) -> Option<IpAddr> {
    match source {
        Some(source) => Some(source.client(request.headers())),
        None => request.extensions().get().map(|Peer(address)| *address),
    }
}

/// Finds the caller by the key in the headers; from the store if `fresh`, else from the cache if it is there.
///
/// While an address has been refused too often, keys from it that would have to be looked up in the store are refused
/// without that. Keys that are not valid are noted in `log`.
pub(crate) async fn find_caller(
    gateway: &Gateway,
    headers: &HeaderMap,
    dialect: Dialect,
    client: impl Fn() -> Option<IpAddr>,
    log: Option<&RequestLog>,
    fresh: bool,
) -> Result<Caller, GatewayError> {
    let found = match dialect {
        Dialect::OpenAi => match presented_key(headers) {
            Ok(key) => look_up(gateway, &key, &client, log, fresh).await,
            Err(error) => Err(error),
        },
        // Boxed, so that the other requests reserve no memory for it.
        Dialect::Messages => Box::pin(find_by_any(gateway, headers, &client, log, fresh)).await,
    };
    match found {
        Err(error @ (GatewayError::MissingKey | GatewayError::InvalidKey)) => {
            Err(count_unknown(gateway, client(), error))
        }
        other => other,
    }
}

/// Finds the caller by the first key that is valid; the error is that of the last one.
async fn find_by_any(
    gateway: &Gateway,
    headers: &HeaderMap,
    client: impl Fn() -> Option<IpAddr>,
    log: Option<&RequestLog>,
    fresh: bool,
) -> Result<Caller, GatewayError> {
    let mut found = Err(GatewayError::InvalidKey);
    for key in presented_keys(headers)? {
        found = look_up(gateway, &key, &client, log, fresh).await;
        if !matches!(found, Err(GatewayError::InvalidKey)) {
            break;
        }
    }
    found
}

async fn look_up(
    gateway: &Gateway,
    key: &ApiKey,
    client: impl Fn() -> Option<IpAddr>,
    log: Option<&RequestLog>,
    fresh: bool,
) -> Result<Caller, GatewayError> {
    let (ledger, digest) = (&gateway.ledger, key.digest());
    if let Some(seconds) = gateway.refusals.address_wait(client)
        && !ledger.has_in_memory(digest)
    {
        return Err(too_many("address", seconds));
    }
    let caller = require_caller(if fresh {
        ledger.fresh_caller(digest).await
    } else {
        ledger.caller(digest).await
    });
    match (&caller, log) {
        (Ok(_), Some(log)) => log.key_prefix(key.visible_prefix()),
        (Err(GatewayError::InvalidKey), Some(log)) => log.invalid_key(digest),
        _ => {}
    }
    caller
}

/// Counts the refusal of a request without a valid key, and returns its error: 429 if its address has been refused too
/// often.
pub(crate) fn count_unknown(
    gateway: &Gateway,
    client: Option<IpAddr>,
    error: GatewayError,
) -> GatewayError {
    let counted = client.map_or(Ok(()), |client| gateway.refusals.count_address(client));
    counted.map_or_else(|seconds| too_many("address", seconds), |()| error)
}

/// Refuses an account that has been refused too often.
pub(crate) fn check_account(gateway: &Gateway, account_id: &str) -> Result<(), GatewayError> {
    match gateway.refusals.account_wait(account_id) {
        None => Ok(()),
        Some(seconds) => Err(too_many("account", seconds)),
    }
}

/// Counts the refusal of a request of an account. `label` is that of its error.
pub(crate) fn count_refusal(gateway: &Gateway, account_id: &str, label: &str, response: &Response) {
    let status = response.status();
    // A key that is no longer valid must not block its account, and a blocked request does not prolong the block.
    let counts = status.is_client_error()
        && status != StatusCode::UNAUTHORIZED
        && label != REFUSALS_EXCEEDED;
    if !counts {
        return;
    }
    let may_retry = response.headers().contains_key(header::RETRY_AFTER);
    gateway.refusals.count(account_id, may_retry);
}

/// Counts a request that counts tokens, or refuses it: they are free and in no window, so this is their only bound.
pub(crate) fn count_count(gateway: &Gateway, caller: &Caller) -> Result<(), GatewayError> {
    let counted = gateway.refusals.count_counting(&caller.account_id);
    counted.map_err(|seconds| GatewayError::TooManyCounts { seconds })
}

fn too_many(whose: &'static str, seconds: u64) -> GatewayError {
    GatewayError::TooManyRefused { whose, seconds }
}
