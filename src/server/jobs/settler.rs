//! Settles the charges that earlier processes left in the spool: before the first request, and later those that could
//! not be settled then, or whose process has ended since.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};

use crate::{
    gateway::Gateway,
    ledger::{CallId, LedgerError, PendingCharge},
};

/// How long a start waits for them.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon those are tried again that could not be settled.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked for files that nobody holds any more.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);
/// How many are settled at once: the ledger commits them together.
const AT_ONCE: usize = 64;

/// Charges that earlier processes have left, as far as they are not settled yet.
#[derive(Default)]
pub struct Inherited(HashMap<CallId, Arc<PendingCharge>>);

impl Inherited {
    /// Takes over what is in the spool and settles it. What cannot be settled in time is left for [`run`].
    pub async fn settled_at_start(gateway: &Gateway) -> Self {
        let mut inherited = Self::default();
        inherited.look(gateway).await;
        let settling = tokio::time::timeout(START_TIMEOUT, inherited.settle(gateway));
        if settling.await.is_err() || !inherited.0.is_empty() {
            let charges = inherited.0.len();
            tracing::warn!(
                charges,
                "charges in the spool could not be settled yet; they are tried again"
            );
        }
        inherited
    }

    async fn look(&mut self, gateway: &Gateway) {
        for owed in gateway.spool.adopt().await {
            self.0.insert(owed.call.id, Arc::new(owed));
        }
    }

    async fn settle(&mut self, gateway: &Gateway) {
        if self.0.is_empty() {
            return;
        }
        let (mut now, mut before) = (0_usize, 0_usize);
        let all: Vec<_> = self.0.values().cloned().collect();
        let mut settling = stream::iter(all)
            .map(async |owed| (gateway.ledger.settle_pending(&owed).await, owed))
            .buffer_unordered(AT_ONCE);
        while let Some((settled, owed)) = settling.next().await {
            let id = owed.call.id;
            match settled {
                Ok(Some(call)) => {
                    now += 1;
                    gateway.metrics.ended(&call);
                    if let Some(charged) = call.charged {
                        gateway.traffic.charged(charged);
                        gateway
                            .alerts
                            .charged(&call.account_id, charged.balance_after);
                    }
                }
                Ok(None) => before += 1,
                Err(error @ LedgerError::NotFound { .. }) => {
                    tracing::error!(
                        %error, call = %id, cost.nanos = owed.cost.nanos(),
                        "a charge in the spool is of another store; it stays in the spool"
                    );
                    self.0.remove(&id);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, call = %id, "a charge in the spool could not be settled yet");
                    continue;
                }
            }
            gateway.spool.settled(id);
            self.0.remove(&id);
        }
        if now + before > 0 {
            tracing::info!(
                charges = now,
                settled_before = before,
                left = self.0.len(),
                "settled charges that an earlier process left in the spool"
            );
        }
    }
}

/// Runs until the gateway is asked to stop.
pub async fn run(gateway: Arc<Gateway>, mut inherited: Inherited) {
    let mut looked = tokio::time::Instant::now();
    loop {
        let wait = if inherited.0.is_empty() {
            LOOK_INTERVAL
        } else {
            RETRY_INTERVAL
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = gateway.shutdown.requested() => return,
        }
        if looked.elapsed() >= LOOK_INTERVAL {
            inherited.look(&gateway).await;
            looked = tokio::time::Instant::now();
        }
        if gateway.ledger.health().takes_charges() {
            tokio::select! {
                () = inherited.settle(&gateway) => {}
                () = gateway.shutdown.deadline() => return,
            }
        }
    }
}
