//! Every hour: deletes the sessions and links of the portal that have expired, and old alerts; and credits
//! payments that could not be credited when they were told of.

use std::{sync::Arc, time::Duration};

use crate::{
    base::timestamp,
    gateway::{Gateway, actions},
};

const INTERVAL: Duration = Duration::from_hours(1);
/// How long alerts that are over are shown, in seconds.
const ALERTS_KEPT: i64 = 90 * 86_400;

/// Runs until the gateway is asked to stop. Nobody waits for it: an expired session is none already.
pub async fn run(gateway: Arc<Gateway>) {
    loop {
        let prune = async {
            if let Err(error) = gateway.backoffice.prune(timestamp::now()).await {
                tracing::warn!(%error, "expired sessions and links of the portal could not be deleted");
            }
            let kept_since = timestamp::now() - ALERTS_KEPT;
            if let Err(error) = gateway.backoffice.prune_alerts(kept_since).await {
                tracing::warn!(%error, "old alerts could not be deleted");
            }
            actions::settle_what_is_left(&gateway).await;
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = prune => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
