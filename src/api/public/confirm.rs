//! Re-reads a cached caller before refusing it, because the cache may be stale.
//!
//! Gateways that share a ledger cache callers and settings for a while. A hold is placed only if the cached data is
//! still current. But a request may be refused before that, because of a plan, a model setting or a ceiling that has
//! since been changed through another gateway. So if a cached caller is refused, the caller is read from the store and
//! the request is tried again. The embedded ledger is always current: with it there is one attempt.

use crate::{
    api::extract::require_caller, base::keys::KeyDigest, gateway::Gateway, ledger::Caller,
    metered::NotStarted, wire::error::GatewayError,
};

/// Most attempts. A caller that was just read is seldom stale, so after these the store is considered unavailable.
const MAX_ATTEMPTS: usize = 3;

/// Runs `attempt`; after a refusal of a cached caller, again with the caller as the store has it.
pub(crate) async fn retry_if_stale<Attempt, T>(
    gateway: &Gateway,
    mut caller: Caller,
    attempt: impl Fn(Caller) -> Attempt,
) -> Result<T, GatewayError>
where
    Attempt: Future<Output = Result<T, NotStarted>>,
{
    for _ in 0..MAX_ATTEMPTS {
        let (digest, fresh) = (caller.digest, caller.seen.fresh);
        match attempt(caller).await {
            Ok(done) => return Ok(done),
            Err(NotStarted::NotAdmitted(error) | NotStarted::Failed(error, _)) => {
                return Err(error);
            }
            Err(NotStarted::Refused(error)) if fresh => return Err(error),
            Err(NotStarted::Refused(_) | NotStarted::Stale) => {}
        }
        caller = Box::pin(fresh_caller(gateway, digest)).await?;
    }
    Err(GatewayError::CreditUnavailable)
}

/// Reads the caller from the store.
pub(super) async fn fresh_caller(
    gateway: &Gateway,
    digest: KeyDigest,
) -> Result<Caller, GatewayError> {
    require_caller(gateway.ledger.fresh_caller(digest).await)
}
