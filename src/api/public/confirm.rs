//! A remembered caller may begin, but no refusal leaves unconfirmed.
//!
//! Where many gateways share a ledger, each remembers callers and settings for a while. Credit is set
//! aside only where what is remembered is still so; but a request may be refused before that, for
//! a plan, a model or a ceiling that has since been changed at another gateway. So the refusal of
//! a remembered caller is kept back, the caller looked up, and the request tried once more. A ledger
//! of our own is never behind: with it there is one attempt.

use axum::{body::Body, response::Response};
use bytes::Bytes;

use crate::{
    api::extract::{known, read_body},
    base::keys::KeyDigest,
    gateway::Gateway,
    ledger::Caller,
    metered::NotStarted,
    wire::error::GatewayError,
};

/// What was just looked up is seldom stale as well; after so many times it is the store that is not
/// well.
const ROUNDS: usize = 3;

/// Has the caller's request answered by `attempt`, again if need be.
pub async fn confirmed<Attempt>(
    gateway: &Gateway,
    mut caller: Caller,
    attempt: impl Fn(Caller) -> Attempt,
) -> Result<Response, GatewayError>
where
    Attempt: Future<Output = Result<Response, NotStarted>>,
{
    for _ in 0..ROUNDS {
        let (digest, fresh) = (caller.digest, caller.seen.fresh);
        match attempt(caller).await {
            Ok(response) => return Ok(response),
            Err(NotStarted::Failed(error)) => return Err(error),
            Err(NotStarted::Refused(error)) if fresh => return Err(error),
            Err(NotStarted::Refused(_) | NotStarted::Stale) => {}
        }
        caller = Box::pin(look(gateway, digest)).await?;
    }
    Err(GatewayError::CreditUnavailable)
}

/// The whole body. Why it cannot be had is for callers to hear, and for nobody else.
pub async fn body_of(
    gateway: &Gateway,
    caller: &Caller,
    body: Body,
) -> Result<Bytes, GatewayError> {
    let read = read_body(body, gateway.max_body_bytes).await;
    if read.is_err() && !caller.seen.fresh {
        Box::pin(look(gateway, caller.digest)).await?;
    }
    read
}

async fn look(gateway: &Gateway, digest: KeyDigest) -> Result<Caller, GatewayError> {
    known(gateway.ledger.fresh_caller(digest).await)
}
