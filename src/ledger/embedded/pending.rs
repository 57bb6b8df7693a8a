//! Charges that a process before this one could not write.

use std::sync::Arc;

use super::{Embedded, billing, directory::Shared, sqlite::Database};
use crate::ledger::{Charged, LedgerError, PendingCharge};

impl Embedded {
    /// Charges the call, unless it is known how it ended. When this returns it is committed, or nothing has changed.
    pub async fn settle_pending(
        &self,
        owed: &PendingCharge,
    ) -> Result<Option<Charged>, LedgerError> {
        // No call of this process may have its number, though the clock were set back.
        self.ids.go_on_after(owed.call.id);
        let owed = Arc::new(owed.clone());
        let settled = owed.clone();
        self.writer
            .run_soon(
                move |database, directory| settle(database, directory, &owed),
                move |directory, _| {
                    let directory = directory.read();
                    let mut credit = directory.credit(&settled.call.account_id);
                    credit.release(settled.call.id);
                },
            )
            .await
    }
}

fn settle(
    database: &Database,
    directory: &Shared,
    owed: &PendingCharge,
) -> Result<Option<Charged>, LedgerError> {
    let call = &owed.call;
    directory.read().account(&call.account_id)?;
    if database.has_call(call.id)? || database.has_new_call(call.id) {
        return Ok(None);
    }
    directory
        .read()
        .credit(&call.account_id)
        .hold_nothing(call.id);
    billing::charge(database, directory, call, owed.usage, owed.cost).map(Some)
}
