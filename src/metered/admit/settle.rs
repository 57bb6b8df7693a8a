//! Charges of delivered responses: committed in the store, or spooled on the disk until they can be.

use super::Admitted;
use crate::{
    ledger::Outcome,
    metered::CHARGE_TIMEOUT,
    wire::{chat::Usage, error::GatewayError},
};

/// Where a charge is stored when the response may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    InStore,
    /// In a file beside the store; [`Admitted::settle_spooled`] goes on trying the store.
    InSpool,
}

impl Admitted {
    /// Charges a delivered response. If the store cannot be written for [`CHARGE_TIMEOUT`], the charge goes to the spool;
    /// either way it survives the process when this returns.
    ///
    /// After an error it is in neither: the response must not be finished, and the hold is to be released.
    pub(crate) async fn charge_or_spool(
        &mut self,
        usage: Usage,
        outcome: Outcome,
    ) -> Result<Settled, GatewayError> {
        let gateway = self.gateway.clone();
        let timeout = async {
            tokio::select! {
                () = tokio::time::sleep(CHARGE_TIMEOUT) => {}
                () = gateway.shutdown.deadline() => {}
            }
        };
        let Err(unavailable) = self.charge(usage, outcome, timeout).await else {
            return Ok(Settled::InStore);
        };
        if matches!(unavailable, GatewayError::IdempotencyInProgress) {
            return Err(unavailable); // another call with its key was charged
        }
        let Some(pending) = self.hold.pending_charge(usage, outcome) else {
            return Err(unavailable);
        };
        if let Err(error) = gateway.spool.add(&pending).await {
            tracing::error!(
                %error,
                account.id = pending.call.account_id,
                model = pending.call.model,
                tokens.r#in = usage.prompt,
                tokens.out = usage.completion,
                "a charge could be written neither to the store nor to the spool; the stream ends with an error and is not charged",
            );
            return Err(unavailable);
        }
        self.hold.mark_spooled();
        // The usage is final; only the charge in the store is still pending.
        self.reservation
            .settle(usage.total().saturating_sub(self.counted));
        Ok(Settled::InSpool)
    }

    /// Retries a spooled charge in the store. If the gateway stops before that works, the next process settles it from
    /// the spool.
    pub(crate) async fn settle_spooled(mut self, usage: Usage, outcome: Outcome) {
        let gateway = self.gateway.clone();
        let stop = gateway.shutdown.deadline();
        match self.charge(usage, outcome, stop).await {
            Ok(()) => gateway.spool.settled(self.hold.id()),
            // The client sent its request again meanwhile, and has paid for that.
            Err(GatewayError::IdempotencyInProgress) => {
                gateway.spool.settled(self.hold.id());
                self.hold.unmark_spooled();
                let cause = "another call with its idempotency key was charged";
                tracing::warn!(
                    call = self.hold.id().0,
                    "a spooled charge is not made: {cause}"
                );
                self.release(Outcome::NotCharged, Some(cause.into()));
            }
            Err(_) => {}
        }
    }

    /// Charges a call whose client left before its response started.
    pub(crate) async fn charge_abandoned(mut self, usage: Usage) {
        let outcome = Outcome::ClientLeft;
        match self.charge_or_spool(usage, outcome).await {
            Ok(Settled::InStore) => {}
            Ok(Settled::InSpool) => self.settle_spooled(usage, outcome).await,
            Err(error) => self.release(Outcome::NotCharged, Some(error.to_string())),
        }
    }
}
