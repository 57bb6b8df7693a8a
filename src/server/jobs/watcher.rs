//! Looks once a second at what the gateway is doing, for the console.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::gateway::Gateway;

/// Runs until the gateway is asked to stop.
pub async fn run(gateway: Arc<Gateway>) {
    let began = Instant::now();
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            // To the nearest second: it comes a moment after each.
            now = seconds.tick() => {
                let since = now.duration_since(began) + Duration::from_millis(500);
                gateway.traffic.tick(since.as_secs());
            }
            () = gateway.shutdown.requested() => return,
        }
    }
}
