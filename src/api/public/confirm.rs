//! Re-reads a cached caller before refusing it, because the cache may be stale.
//!
//! Gateways that share a ledger cache callers and settings for a while. A hold is placed only if the cached data is
//! still current. But a request may be refused before that, because of a plan, a model setting or a ceiling that has
//! since been changed through another gateway. So if a cached caller is refused, the caller is read from the store and
//! the request is tried again. The embedded ledger is always current: with it there is one attempt.

use axum::{body::Body, response::Response};
use bytes::Bytes;

use crate::{
    api::extract::{read_body, require_caller},
    base::keys::KeyDigest,
    gateway::Gateway,
    ledger::Caller,
    metered::NotStarted,
    wire::error::GatewayError,
};

/// Most attempts. A caller that was just read is seldom stale, so after these the store is considered unavailable.
const MAX_ATTEMPTS: usize = 3;

/// Runs `attempt`; after a refusal of a cached caller, again with the caller as the store has it.
pub(crate) async fn retry_if_stale<Attempt>(
    gateway: &Gateway,
    mut caller: Caller,
    attempt: impl Fn(Caller) -> Attempt,
) -> Result<Response, GatewayError>
where
    Attempt: Future<Output = Result<Response, NotStarted>>,
{
    for _ in 0..MAX_ATTEMPTS {
        let (digest, fresh) = (caller.digest, caller.seen.fresh);
        match attempt(caller).await {
            Ok(response) => return Ok(response),
            Err(NotStarted::Failed(error)) => return Err(error),
            Err(NotStarted::Refused(error)) if fresh => return Err(error),
            Err(NotStarted::Refused(_) | NotStarted::Stale) => {}
        }
        caller = Box::pin(fresh_caller(gateway, digest)).await?;
    }
    Err(GatewayError::CreditUnavailable)
}

/// Reads the whole body. If that fails, a cached caller is re-read first, so that a key that was disabled meanwhile
/// gets the error for its key.
pub(crate) async fn read_caller_body(
    gateway: &Gateway,
    caller: &Caller,
    body: Body,
) -> Result<Bytes, GatewayError> {
    let read = read_body(body, gateway.max_body_bytes).await;
    if read.is_err() && !caller.seen.fresh {
        Box::pin(fresh_caller(gateway, caller.digest)).await?;
    }
    read
}

/// Reads the caller from the store.
async fn fresh_caller(gateway: &Gateway, digest: KeyDigest) -> Result<Caller, GatewayError> {
    require_caller(gateway.ledger.fresh_caller(digest).await)
}
