//! Writes refused requests about once a second, for the people of their accounts.

use std::{sync::Arc, time::Duration};

use crate::{base::outage::Outage, gateway::Gateway};

const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until shutdown is requested; what is refused after that is written when the gateway stops.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let mut writing = Outage::new("writing refused requests");
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = gateway.shutdown.requested() => return,
        }
        writing.log(&gateway.write_refused_requests().await);
    }
}
