//! Every six hours, prepares the storage of the coming months, and removes calls that are older than `store.keep_months`.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{month::Month, timestamp},
    gateway::Gateway,
};

const INTERVAL: Duration = Duration::from_hours(6);

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>, keep_months: Option<u32>) {
    loop {
        let round = async {
            if let Err(error) = gateway.ledger.add_months().await {
                tracing::warn!(%error, "preparing the tables of the coming months failed; retrying in six hours");
            }
            if let Some(months) = keep_months {
                prune(&gateway, months).await;
            }
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = round => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}

async fn prune(gateway: &Gateway, keep_months: u32) {
    let before = Month::of_ms(timestamp::now_ms()).earlier(keep_months);
    match gateway.ledger.prune(before).await {
        Ok(pruned) if pruned.calls + pruned.entries > 0 => tracing::info!(
            calls = pruned.calls,
            entries = pruned.entries,
            "calls from before {before} were removed, as `store.keep_months` says"
        ),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "removing old calls failed; retrying in six hours");
        }
    }
}
