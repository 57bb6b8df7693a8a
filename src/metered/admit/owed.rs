//! What was delivered is owed: charged in the store, or spooled until it can be.

use super::Admitted;
use crate::{
    ledger::Outcome,
    metered::CHARGE_TIMEOUT,
    wire::{chat::Usage, error::GatewayError},
};

/// Where a charge is when the response may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    InStore,
    /// On the disk, outside the store. The store is still to be tried: [`Admitted::settle_spooled`].
    InSpool,
}

impl Admitted<'_> {
    /// Charges what a delivered response used. Where the store cannot be written for two seconds, the charge goes to
    /// the spool; either way it survives the process when this returns.
    ///
    /// After an error it is in neither: the response must not be finished, and the call is to be freed.
    pub async fn charge_or_spool(
        &mut self,
        usage: Usage,
        outcome: Outcome,
    ) -> Result<Settled, GatewayError> {
        let gateway = self.gateway;
        let timeout = async {
            tokio::select! {
                () = tokio::time::sleep(CHARGE_TIMEOUT) => {}
                () = gateway.shutdown.deadline() => {}
            }
        };
        let Err(unavailable) = self.charge(usage, outcome, timeout).await else {
            return Ok(Settled::InStore);
        };
        let Some(owed) = self.credit.owed(usage, outcome) else {
            return Err(unavailable);
        };
        if let Err(error) = gateway.spool.add(&owed).await {
            tracing::error!(
                %error,
                account.id = owed.call.account_id,
                model = owed.call.model,
                tokens.r#in = usage.prompt,
                tokens.out = usage.completion,
                "a charge could be written neither to the store nor to the spool: the call is not charged",
            );
            return Err(unavailable);
        }
        self.credit.is_spooled();
        // What it used is certain; only the store's part is still to come.
        self.place
            .settle(usage.total().saturating_sub(self.counted));
        Ok(Settled::InSpool)
    }

    /// Goes on trying to settle a charge that is in the spool. When the gateway stops before that, the next process
    /// finds it there.
    pub async fn settle_spooled(mut self, usage: Usage, outcome: Outcome) {
        let gateway = self.gateway;
        let stop = gateway.shutdown.deadline();
        if self.charge(usage, outcome, stop).await.is_ok() {
            gateway.spool.settled(self.credit.id());
        }
    }

    /// Charges what was used for a client that left before there was a response.
    pub async fn charge_abandoned(mut self, usage: Usage) {
        let outcome = Outcome::ClientLeft;
        match self.charge_or_spool(usage, outcome).await {
            Ok(Settled::InStore) => {}
            Ok(Settled::InSpool) => self.settle_spooled(usage, outcome).await,
            Err(error) => self.free(Outcome::NotCharged, Some(error.to_string())),
        }
    }
}
