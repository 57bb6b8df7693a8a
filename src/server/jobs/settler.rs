//! Settles pending charges that earlier processes left in the spool: before the first request, and later those that
//! could not be settled then, or whose process has ended since. A charge stays in the spool until the ledger has it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};

use crate::{
    gateway::Gateway,
    ledger::{CallId, LedgerError, PendingCharge},
};

/// How long the start of the gateway waits for these charges.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which charges that could not be settled are retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two searches for spool files whose process has ended.
const ADOPT_INTERVAL: Duration = Duration::from_mins(1);
/// Number of charges that are settled at once, so that the ledger commits them in one batch.
const CONCURRENT: usize = 64;

/// Unsettled charges of earlier processes.
#[derive(Default)]
pub(crate) struct Inherited(HashMap<CallId, Arc<PendingCharge>>);

impl Inherited {
    /// Adopts the charges in the spool and settles them. Those that are not settled within the timeout are left for
    /// [`run`].
    pub(crate) async fn settled_at_start(gateway: &Gateway) -> Self {
        let mut inherited = Self::default();
        inherited.adopt(gateway).await;
        let settling = tokio::time::timeout(START_TIMEOUT, inherited.settle(gateway));
        if settling.await.is_err() || !inherited.0.is_empty() {
            let charges = inherited.0.len();
            tracing::warn!(
                charges,
                "settling charges from the spool failed; retrying every second"
            );
        }
        inherited
    }

    /// Adds the charges of spool files whose process has ended.
    async fn adopt(&mut self, gateway: &Gateway) {
        for pending in gateway.spool.adopt().await {
            self.0.insert(pending.call.id, Arc::new(pending));
        }
    }

    /// Tries to settle each charge once.
    async fn settle(&mut self, gateway: &Gateway) {
        if self.0.is_empty() {
            return;
        }
        let (mut now_settled, mut settled_before) = (0_usize, 0_usize);
        let all: Vec<_> = self.0.values().cloned().collect();
        let mut settling = stream::iter(all)
            .map(async |pending| (gateway.ledger.settle_pending(&pending).await, pending))
            .buffer_unordered(CONCURRENT);
        while let Some((settled, pending)) = settling.next().await {
            let id = pending.call.id;
            match settled {
                Ok(Some(call)) => {
                    now_settled += 1;
                    gateway.metrics.ended(&call, None);
                    if let Some(charged) = call.charged {
                        gateway.traffic.charged(charged);
                        gateway
                            .alerts
                            .charged(&call.account_id, charged.balance_after);
                    }
                }
                Ok(None) => settled_before += 1,
                Err(error @ LedgerError::NotFound { .. }) => {
                    tracing::error!(
                        %error, call = %id, cost.nanos = pending.cost.nanos(),
                        "a charge in the spool is of another store; it stays in the spool"
                    );
                    self.0.remove(&id);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, call = %id, "settling a charge from the spool failed; retrying");
                    continue;
                }
            }
            gateway.spool.settled(id);
            self.0.remove(&id);
        }
        if now_settled + settled_before > 0 {
            tracing::info!(
                charges = now_settled,
                settled_before,
                left = self.0.len(),
                "settled charges that an earlier process left in the spool"
            );
        }
    }
}

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>, mut inherited: Inherited) {
    let mut adopted_at = tokio::time::Instant::now();
    loop {
        let wait = if inherited.0.is_empty() {
            ADOPT_INTERVAL
        } else {
            RETRY_INTERVAL
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = gateway.shutdown.requested() => return,
        }
        if adopted_at.elapsed() >= ADOPT_INTERVAL {
            inherited.adopt(&gateway).await;
            adopted_at = tokio::time::Instant::now();
        }
        if gateway.ledger.health().takes_charges() {
            tokio::select! {
                () = inherited.settle(&gateway) => {}
                () = gateway.shutdown.deadline() => return,
            }
        }
    }
}
