//! Audits the ledger every minute and requests an alert check if an account does not add up.

use std::{sync::Arc, time::Duration};

use crate::{base::outage::Outage, gateway::Gateway};

const INTERVAL: Duration = Duration::from_mins(1);

/// Runs until shutdown is requested. The first run checks the whole ledger, the others what has changed since the run
/// before.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let mut auditing = Outage::new("auditing the ledger");
    loop {
        let audit = async {
            // The ledger itself logs and counts the violations.
            let audit = gateway.ledger.reconcile().await.map(|audit| {
                if !audit.violations.is_empty() {
                    gateway.alerts.request_check();
                }
            });
            auditing.log(&audit);
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = audit => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
