//! Whether an account could start a call at all, before the call is known.

use std::sync::Arc;

use super::{NotStarted, admit::unpaid, enter, need::Need};
use crate::{
    base::money::NanoUsd,
    catalog::Prices,
    gateway::Gateway,
    ledger::{Caller, HoldRefused, HoldRequest},
    wire::error::GatewayError,
};

/// The least that a call can need.
const LEAST: Need = Need {
    tokens: 0,
    amount: NanoUsd::new(1),
    worst: NanoUsd::new(1),
};

/// Refuses a caller that could start no call, however small: its key is inactive, its account is closed, frozen or
/// without credit, or too many of its calls are abandoned. The error is that of [`super::start`].
///
/// It places the smallest hold there is and cancels it, so both answers come from the same step of the ledger; and it
/// waits in the same queue as calls do.
pub(crate) async fn could_start(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    request_id: &str,
) -> Result<(), NotStarted> {
    if gateway.abandoned.is_at_limit(&caller.account_id) {
        let limit = gateway.abandoned.limit();
        return Err(GatewayError::TooManyAbandoned { limit }.into());
    }
    let permit = enter(gateway).await?;
    let placing = gateway.ledger.hold(HoldRequest {
        id: gateway.ledger.next_call(),
        seen: caller.seen,
        reservations: &[],
        request_id,
        account_id: &caller.account_id,
        payer: &caller.payer,
        secret: caller.digest,
        model: "",
        routed_model: "",
        prices: Arc::new(Prices::default()),
        stream: false,
        reserved_tokens: LEAST.tokens,
        amount: LEAST.amount,
        worst: LEAST.worst,
        decision: None,
        agent: None,
        idempotency: None,
        overdraft: gateway.max_overdraft,
    });
    match placing.await {
        Ok(hold) => {
            hold.cancel();
            if let Some(permit) = permit {
                permit.admitted();
            }
            Ok(())
        }
        Err(HoldRefused::Stale) => Err(NotStarted::Stale),
        Err(refused) => Err(unpaid(gateway, refused, LEAST, &|_| None).into()),
    }
}
