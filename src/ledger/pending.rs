//! Late settlement: charges of delivered calls that their process could not commit.

use super::{Call, Ledger, LedgerError};
use crate::{base::money::NanoUsd, wire::chat::Usage};

/// The charge of a delivered call that is not committed yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingCharge {
    /// The call's record at its end, without a charge.
    pub call: Box<Call>,
    pub usage: Usage,
    pub cost: NanoUsd,
}

impl Ledger {
    /// Charges a call whose hold may be gone: from its hold if there is one, then from available credit, then as debt.
    ///
    /// At most once for a call ID: `None` if the ledger has a record of the call's end already. Such a record may be a
    /// charge that was committed without its process learning of it, or a call recorded as not charged because its
    /// charge could not be spooled either and its client got an error.
    pub(crate) async fn settle_pending(
        &self,
        pending: &PendingCharge,
    ) -> Result<Option<Call>, LedgerError> {
        let charged = match self {
            Self::Embedded(ledger) => ledger.settle_pending(pending).await?,
            Self::Shared(ledger) => ledger.settle_pending(pending).await?,
        };
        Ok(charged.map(|charged| Call {
            charged: Some(charged),
            ..(*pending.call).clone()
        }))
    }
}

impl PendingCharge {
    /// Logs that the call is older than the calls that the ledger has kept: it may have been charged before, so it is not
    /// charged now.
    pub(super) fn warn_of_pruning(&self) {
        tracing::error!(
            call = %self.call.id,
            account.id = self.call.account_id,
            cost.nanos = self.cost.nanos(),
            "a pending charge is older than the calls that were pruned and may have been made; it is not made again"
        );
    }

    /// Logs that the client has sent its request again meanwhile, and has paid for that.
    pub(super) fn warn_of_spent_key(&self) {
        tracing::warn!(
            call = %self.call.id,
            account.id = self.call.account_id,
            cost.nanos = self.cost.nanos(),
            "a pending charge is not made: another call with its idempotency key was charged meanwhile"
        );
    }
}
