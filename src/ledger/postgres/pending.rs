//! Late settlement of charges from the spool.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::{Shared, operations::Operation, record::CallRecord};
use crate::{
    base::money::NanoUsd,
    ledger::{Charged, LedgerError, PendingCharge},
};

/// Timeout of one attempt; the caller may repeat it.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Shared {
    /// Charges the call, unless the database has a record of its end.
    pub(crate) async fn settle_pending(
        &self,
        pending: &PendingCharge,
    ) -> Result<Option<Charged>, LedgerError> {
        let call = &*pending.call;
        if !self.lane(&call.account_id).is_healthy() {
            return Err(LedgerError::Unavailable);
        }
        self.account(&call.account_id).await?;
        self.ids.go_on_after(call.id);
        let id = i64::try_from(call.id.0).unwrap_or(i64::MAX);
        let known = "SELECT 1 FROM calls WHERE id = $1";
        let known = self.inner.pool.query(known, &[(&id, Type::INT8)]).await?;
        if !known.is_empty() {
            return Ok(None);
        }
        // A call of a time whose calls were pruned has no row even if it was charged.
        let pruned = "SELECT 1 FROM ledger_entries WHERE account_id = $1 AND kind = 'opening'
            AND first_call_of(ref::timestamp AT TIME ZONE 'UTC') > $2";
        let parameters = [(&call.account_id as _, Type::TEXT), (&id as _, Type::INT8)];
        if !self.inner.pool.query(pruned, &parameters).await?.is_empty() {
            pending.warn_of_pruning();
            return Ok(None);
        }
        let record = CallRecord {
            call,
            usage: Some((pending.usage, pending.cost)),
        };
        // After a timeout the charge may still be committed: the next attempt finds the call.
        let mut operation = Operation::charge(&record);
        let replied = operation.expect_reply();
        self.submit(operation);
        let reply = timeout(TIMEOUT, replied).await;
        let reply = reply.map_err(|_| LedgerError::Unavailable)?;
        let reply = reply.map_err(|_| LedgerError::Stopped)?;
        let reply = reply.map_err(|_| LedgerError::NotCommitted)?;
        let reply = match reply.charged() {
            Err(LedgerError::KeySpent) => {
                pending.warn_of_spent_key();
                return Ok(None);
            }
            reply => reply?,
        };
        self.count_kept(call);
        if reply.is_late {
            self.count_late_settlement(call, pending.cost);
        }
        Ok(Some(Charged {
            usage: pending.usage,
            cost: pending.cost,
            balance_before: NanoUsd::new(reply.balance_before_nano_usd),
            balance_after: NanoUsd::new(reply.balance_after_nano_usd),
        }))
    }
}
