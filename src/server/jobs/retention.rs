//! Every six hours, prepares the storage of the coming months, and removes calls that are older than `store.keep_months`.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{month::Month, outage::Outage, timestamp},
    gateway::Gateway,
    ledger::LedgerError,
};

const INTERVAL: Duration = Duration::from_hours(6);
/// After a failure, e.g. because a long query held a lock.
const RETRY_DELAY: Duration = Duration::from_mins(5);

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>, keep_months: Option<u32>) {
    let mut preparing = Outage::new("preparing the tables of the coming months");
    let mut removing = Outage::new("removing old calls");
    loop {
        let round = async {
            let added = gateway.ledger.add_months().await;
            preparing.log(&added);
            let pruned = match keep_months {
                Some(months) => prune(&gateway, months).await,
                None => Ok(()),
            };
            removing.log(&pruned);
            let is_done = added.is_ok() && pruned.is_ok();
            tokio::time::sleep(if is_done { INTERVAL } else { RETRY_DELAY }).await;
        };
        tokio::select! {
            () = round => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}

async fn prune(gateway: &Gateway, keep_months: u32) -> Result<(), LedgerError> {
    let before = Month::of_ms(timestamp::now_ms()).earlier(keep_months);
    let pruned = gateway.ledger.prune(before).await?;
    if pruned.calls + pruned.entries > 0 {
        tracing::info!(
            calls = pruned.calls,
            entries = pruned.entries,
            "calls from before {before} were removed, as `store.keep_months` says"
        );
    }
    Ok(())
}
