//! Every hour, deletes expired sessions and links of the portal, old alerts and old refused requests, credits payments
//! that could not be credited when they were delivered, and finishes deletions of accounts that were interrupted.

use std::{sync::Arc, time::Duration};

use crate::{
    base::timestamp,
    gateway::{Gateway, actions},
};

const INTERVAL: Duration = Duration::from_hours(1);
/// Seconds for which closed alerts are kept.
const ALERT_RETENTION: i64 = 90 * 86_400;
/// For how long refused requests are kept.
const REFUSED_RETENTION_MS: i64 = 30 * 86_400_000;
/// For how many minutes counts of them are: pages show the last 24 hours.
const REFUSED_COUNTS_RETENTION: i64 = 48 * 60;

/// Runs until shutdown is requested. Nothing depends on its timing, because expired sessions are refused anyway.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    loop {
        let prune = async {
            if let Err(error) = gateway.backoffice.prune(timestamp::now()).await {
                tracing::warn!(%error, "deleting expired sessions and links failed; retrying in an hour");
            }
            let kept_since = timestamp::now() - ALERT_RETENTION;
            if let Err(error) = gateway.backoffice.prune_alerts(kept_since).await {
                tracing::warn!(%error, "deleting old alerts failed; retrying in an hour");
            }
            let now = timestamp::now_ms();
            let kept_since = now - REFUSED_RETENTION_MS;
            let counted_since = now.div_euclid(60_000) - REFUSED_COUNTS_RETENTION;
            let pruning = gateway.backoffice.prune_refused(kept_since, counted_since);
            if let Err(error) = pruning.await {
                tracing::warn!(%error, "deleting old refused requests failed; retrying in an hour");
            }
            actions::credit_pending_payments(&gateway).await;
            actions::finish_deletions(&gateway).await;
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = prune => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
