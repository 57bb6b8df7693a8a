//! Charges that a gateway could not write while it ran.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::{Shared, record::CallRecord, steps::Step};
use crate::{
    base::money::NanoUsd,
    ledger::{Charged, LedgerError, PendingCharge},
};

/// How long one of them is waited for; whoever has more time tries again.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Shared {
    /// Charges the call, unless it is known how it ended.
    pub async fn settle_pending(
        &self,
        owed: &PendingCharge,
    ) -> Result<Option<Charged>, LedgerError> {
        let call = &*owed.call;
        if !self.lane(&call.account_id).is_well() {
            return Err(LedgerError::Unavailable);
        }
        self.account(&call.account_id).await?;
        self.ids.go_on_after(call.id);
        let id = i64::try_from(call.id.0).unwrap_or(i64::MAX);
        let known = "SELECT 1 FROM calls WHERE id = $1";
        let known = self.inner.pool.ask(known, &[(&id, Type::INT8)]).await?;
        if !known.is_empty() {
            return Ok(None);
        }
        let record = CallRecord {
            call,
            usage: Some((owed.usage, owed.cost)),
        };
        // Where it is not heard of in time it may still come about: the next try finds the call.
        let mut step = Step::charge(&record, owed.cost);
        let heard = step.listen();
        self.hand_in(step);
        let heard = timeout(TIMEOUT, heard).await;
        let heard = heard.map_err(|_| LedgerError::Unavailable)?;
        let answer = heard.map_err(|_| LedgerError::Stopped)?;
        let answer = answer.map_err(|_| LedgerError::NotCommitted)?.charged()?;
        if answer.late {
            self.was_late(call, owed.cost);
        }
        Ok(Some(Charged {
            usage: owed.usage,
            cost: owed.cost,
            balance_before: NanoUsd::new(answer.before),
            balance_after: NanoUsd::new(answer.after),
        }))
    }
}
