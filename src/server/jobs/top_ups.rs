//! Every few seconds, buys credit for accounts with automatic top-ups whose balance is low.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{outage::Outage, timestamp},
    gateway::{Gateway, top_ups},
};

const INTERVAL: Duration = Duration::from_secs(5);

/// Runs until shutdown is requested. An attempt that is interrupted then is resumed later, by this gateway or another.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    if gateway.payments.is_none() {
        return;
    }
    let mut looking = Outage::new("looking for automatic top-ups");
    loop {
        let round = async {
            tokio::time::sleep(INTERVAL).await;
            looking.log(&top_ups::round(&gateway, timestamp::now).await);
        };
        tokio::select! {
            () = round => {}
            () = gateway.shutdown.requested() => return,
        }
    }
}
