//! Charges of an earlier process that are still pending.

use std::sync::Arc;

use super::{Embedded, command::Command};
use crate::ledger::{Charged, LedgerError, PendingCharge};

impl Embedded {
    /// Charges the call unless its end is recorded already. When this returns it is committed, or nothing has changed.
    pub(crate) async fn settle_pending(
        &self,
        pending: &PendingCharge,
    ) -> Result<Option<Charged>, LedgerError> {
        // No call of this process may get its number, even if the clock was set back.
        self.ids.go_on_after(pending.call.id);
        let pending = Arc::new(pending.clone());
        self.writer
            .execute_soon(|reply| Command::SettlePending(pending, reply))
            .await
    }
}
