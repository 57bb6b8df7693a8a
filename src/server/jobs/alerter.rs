//! Runs the alert checks and delivers alerts.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    base::{outage::Outage, timestamp},
    gateway::{Gateway, alerts},
};

/// Longest time between two rounds of deliveries.
const DELIVERY_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until shutdown is requested. A delivery that is interrupted then is repeated later, by this gateway or
/// another.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    if !gateway.alerts.settings.enabled {
        return;
    }
    tokio::select! {
        () = check_and_deliver(&gateway) => {}
        () = gateway.shutdown.requested() => {}
    }
}

async fn check_and_deliver(gateway: &Gateway) {
    let mut checks = interval(gateway.alerts.settings.every);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut checking = Outage::new("checking for alerts");
    let mut delivering = Outage::new("delivering alerts");
    loop {
        let check_is_due = tokio::select! {
            _ = checks.tick() => true,
            () = gateway.alerts.check_requested() => true,
            () = sleep(DELIVERY_INTERVAL) => false,
        };
        if check_is_due {
            checking.log(&alerts::check(gateway, timestamp::now()).await);
        }
        delivering.log(&alerts::deliver(gateway, timestamp::now()).await);
    }
}
