//! Audits the ledger every minute and requests an alert check if an account does not add up.

use std::{sync::Arc, time::Duration};

use crate::gateway::Gateway;

const INTERVAL: Duration = Duration::from_mins(1);

/// Runs until shutdown is requested. The first run checks the whole ledger, the others what has changed since the run
/// before.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    loop {
        let audit = async {
            // The ledger itself logs and counts the violations.
            match gateway.ledger.reconcile().await {
                Ok(audit) if audit.violations.is_empty() => {}
                Ok(_) => gateway.alerts.request_check(),
                Err(error) => {
                    tracing::error!(%error, "auditing the ledger failed; retrying in a minute");
                }
            }
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = audit => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
