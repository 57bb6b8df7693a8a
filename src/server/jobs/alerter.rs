//! Runs the alert checks and delivers alerts.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    base::timestamp,
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
    let mut checking = FailureLog::new("checking for alerts");
    let mut delivering = FailureLog::new("delivering alerts");
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

/// Logs the first of several failures in a row, and the first success after them.
struct FailureLog {
    what: &'static str,
    is_failing: bool,
}

impl FailureLog {
    fn new(what: &'static str) -> Self {
        let is_failing = false;
        Self { what, is_failing }
    }

    fn log(&mut self, result: &Result<(), impl fmt::Display>) {
        let what = self.what;
        match result {
            Ok(()) if self.is_failing => {
                tracing::info!("{what} works again");
                self.is_failing = false;
            }
            Err(error) if !self.is_failing => {
                tracing::warn!(%error, "{what} failed; it is retried until it works");
                self.is_failing = true;
            }
            _ => {}
        }
    }
}
