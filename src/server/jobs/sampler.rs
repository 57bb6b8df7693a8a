//! Samples the gateway's traffic counters once a second, for the console.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::gateway::Gateway;

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let started = Instant::now();
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            // Rounded to the nearest second, because a tick comes a moment after it.
            now = seconds.tick() => {
                let elapsed = now.duration_since(started) + Duration::from_millis(500);
                gateway.traffic.tick(elapsed.as_secs());
                gateway.breakdown.tick(elapsed.as_secs(), &gateway.metrics);
            }
            () = gateway.shutdown.requested() => return,
        }
    }
}
