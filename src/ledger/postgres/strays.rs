//! Holds of this gateway that no running call of it has.
//!
//! The account's row and its holds add up, so nothing else would notice; and no other gateway may release
//! them while this one lives. A stray hold keeps credit from its account but takes none: it is released,
//! logged and counted, and the account goes on.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{
    Shared,
    record::{get, unsigned},
    steps::Step,
};
use crate::{
    base::money::NanoUsd,
    db::postgres::Error,
    ledger::{CallId, LedgerError, StrayHold},
};

/// A hold without a call may be one that its caller has just given up, or ended: it is looked at twice.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

impl Shared {
    /// Releases the holds of this gateway that belong to no running call of it, and says which they were.
    pub(super) async fn release_strays(&self) -> Result<Vec<StrayHold>, LedgerError> {
        let suspects = self.strays().await?;
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        // What was handed in meanwhile may be their end.
        self.all_written().await;
        let mut strays = self.strays().await?;
        strays.retain(|stray| suspects.contains(stray));
        for stray in &strays {
            tracing::error!(
                call.id = %stray.call,
                account.id = stray.account_id,
                held.nanos = stray.amount.nanos(),
                "a hold without a running call was found by the audit, and is released"
            );
            self.inner.health.stray_holds.inc();
            self.hand_in(Step::forget(&stray.account_id, stray.call));
        }
        self.all_written().await;
        Ok(strays)
    }

    async fn strays(&self) -> Result<Vec<StrayHold>, LedgerError> {
        let lease = **self.inner.lease.load();
        let query = "SELECT id, account_id, amount FROM holds WHERE slot = $1 AND epoch = $2";
        let parameters = [
            (&lease.slot as _, Type::INT4),
            (&lease.epoch as _, Type::INT8),
        ];
        let rows = self.inner.pool.ask(query, &parameters).await?;
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
