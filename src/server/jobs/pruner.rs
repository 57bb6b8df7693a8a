//! Every hour, deletes expired sessions and links of the portal and old alerts, and credits payments that could not
//! be credited when they were delivered.

use std::{sync::Arc, time::Duration};

use crate::{
    base::timestamp,
    gateway::{Gateway, actions},
};

const INTERVAL: Duration = Duration::from_hours(1);
/// Seconds for which closed alerts are kept.
const ALERT_RETENTION: i64 = 90 * 86_400;

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
            actions::credit_pending_payments(&gateway).await;
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = prune => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
