//! Every few seconds, buys credit for accounts with automatic top-ups whose balance is low.

use std::{sync::Arc, time::Duration};

use crate::{
    base::timestamp,
    gateway::{Gateway, top_ups},
};

const INTERVAL: Duration = Duration::from_secs(5);

/// Runs until shutdown is requested. An attempt that is interrupted then is resumed later, by this gateway or another.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    if gateway.payments.is_none() {
        return;
    }
    let mut failing = false;
    loop {
        let round = async {
            tokio::time::sleep(INTERVAL).await;
            let done = top_ups::round(&gateway, timestamp::now).await;
            match done {
                Ok(()) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "looking for automatic top-ups failed; it is retried until it works");
                }
                Err(_) => {}
            }
        };
        tokio::select! {
            () = round => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
