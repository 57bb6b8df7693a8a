//! Checks every minute that the books add up, and says so if they do not.

use std::{sync::Arc, time::Duration};

use crate::gateway::Gateway;

const INTERVAL: Duration = Duration::from_mins(1);

/// Runs until the gateway is asked to stop. The first look is at everything, the others are at
/// what has changed since.
pub async fn run(gateway: Arc<Gateway>) {
    loop {
        let look = async {
            // What is wrong with the books was logged and counted where it was found.
            match gateway.ledger.reconcile().await {
                Ok(audit) if audit.violations.is_empty() => {}
                Ok(_) => gateway.alerts.want(),
                Err(error) => tracing::error!(%error, "the books could not be checked"),
            }
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = look => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
