//! Late settlement: a call that was delivered by a process that could not write its charge.

use super::{Call, Ledger, LedgerError};
use crate::{base::money::NanoUsd, wire::chat::Usage};

/// A call that was delivered and is not charged yet.
#[derive(Clone, Debug)]
pub struct PendingCharge {
    /// How it ended, without a charge.
    pub call: Box<Call>,
    pub usage: Usage,
    pub cost: NanoUsd,
}

impl Ledger {
    /// Charges a call that may hold nothing any more: from what it holds, then from what is free, then on account.
    ///
    /// Once, by its number: `None` where the ledger knows already how the call ended. A charge that came about though
    /// nobody heard of it is one way; another is a call that was recorded as not charged, because its charge could not
    /// be spooled either and its client was told so.
    pub async fn settle_pending(&self, owed: &PendingCharge) -> Result<Option<Call>, LedgerError> {
        let charged = match self {
            Self::Embedded(ledger) => ledger.settle_pending(owed).await?,
            Self::Shared(ledger) => ledger.settle_pending(owed).await?,
        };
        Ok(charged.map(|charged| Call {
            charged: Some(charged),
            ..(*owed.call).clone()
        }))
    }
}
