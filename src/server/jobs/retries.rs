//! Every minute, deletes responses that were kept for retries long enough, and makes room for others.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{base::outage::Outage, gateway::Gateway};

const INTERVAL: Duration = Duration::from_mins(1);
/// How often to look whether much was stored since.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A gateway that has stored this part of the limit makes room at once.
const PART: u64 = 16;

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let most = gateway.retries.max_total_bytes();
    let mut deleting = Outage::new("deleting responses that were kept for retries");
    loop {
        let round = async {
            gateway.retries.sweep();
            deleting.log(&gateway.ledger.make_room_for_retries(most).await);
            let swept = Instant::now();
            tokio::time::sleep(LOOK_INTERVAL).await;
            while swept.elapsed() < INTERVAL && gateway.ledger.kept_bytes() <= most / PART {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::select! {
            () = round => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
