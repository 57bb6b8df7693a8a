//! Writes refused requests about once a second, for the people of their accounts.

use std::{sync::Arc, time::Duration};

use crate::gateway::Gateway;

const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until shutdown is requested; what is refused after that is written when the gateway stops.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = gateway.shutdown.requested() => return,
        }
        write(&gateway, &mut is_failing).await;
    }
}

/// Logs the first of several failures in a row, and the first success after them.
async fn write(gateway: &Gateway, is_failing: &mut bool) {
    match gateway.write_refused_requests().await {
        Ok(()) if *is_failing => {
            tracing::info!("writing refused requests works again");
            *is_failing = false;
        }
        Err(error) if !*is_failing => {
            tracing::warn!(%error, "writing refused requests failed; it is retried every second");
            *is_failing = true;
        }
        _ => {}
    }
}
