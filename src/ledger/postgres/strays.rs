//! Stray holds: holds of this gateway without a running call.
//!
//! The account's row and its holds add up, so no other check would find them, and no other gateway may release them
//! while this one is alive. A stray hold blocks credit of its account but spends none, so it is released, logged and
//! counted, and the account is not frozen.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{
    Shared,
    operations::Operation,
    record::{get, unsigned},
};
use crate::{
    base::money::NanoUsd,
    db::postgres::Error,
    ledger::{CallId, LedgerError, StrayHold},
};

/// The delay before a suspected hold is checked again: its call may just have been ended or abandoned.
const RECHECK_DELAY: Duration = Duration::from_secs(2);

impl Shared {
    /// Releases and returns the holds of this gateway that belong to none of its running calls.
    pub(super) async fn release_strays(&self) -> Result<Vec<StrayHold>, LedgerError> {
        let suspects = self.strays().await?;
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        tokio::time::sleep(RECHECK_DELAY).await;
        // Operations queued meanwhile may have ended the call.
        self.wait_until_written().await;
        let mut strays = self.strays().await?;
        strays.retain(|stray| suspects.contains(stray));
        for stray in &strays {
            tracing::error!(
                call.id = %stray.call,
                account.id = stray.account_id,
                held.nanos = stray.amount.nanos(),
                "the audit found a hold without a running call; releasing it"
            );
            self.inner.health.stray_holds.inc();
            self.submit(Operation::cancel(&stray.account_id, stray.call));
        }
        self.wait_until_written().await;
        Ok(strays)
    }

    async fn strays(&self) -> Result<Vec<StrayHold>, LedgerError> {
        let lease = **self.inner.lease.load();
        let query =
            "SELECT id, account_id, amount_nano_usd FROM holds WHERE slot = $1 AND epoch = $2";
        let parameters = [
            (&lease.slot as _, Type::INT4),
            (&lease.epoch as _, Type::INT8),
        ];
        let rows = self.inner.pool.query(query, &parameters).await?;
        let holds = rows.iter().map(|row| {
            Ok(StrayHold {
                call: CallId(unsigned(get(row, 0)?)),
                account_id: get(row, 1)?,
                amount: NanoUsd::new(get(row, 2)?),
            })
        });
        let mut holds: Vec<_> = holds.collect::<Result<_, Error>>()?;
        holds.retain(|hold| !self.inner.open_calls.contains(hold.call));
        Ok(holds)
    }
}
