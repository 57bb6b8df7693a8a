//! Follows the versions of the configuration in the store, and reports which one this gateway uses.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::{
    backoffice::GatewayReport,
    base::{outage::Outage, timestamp},
    gateway::Gateway,
};

/// How often the store is asked for a new version.
const INTERVAL: Duration = Duration::from_secs(1);
/// Seconds between two reports, unless something has changed.
const REPORT_SECONDS: i64 = 30;

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>, name: String) {
    let mut seconds = interval(INTERVAL);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut asking = Outage::new("asking for a new version of the configuration");
    let mut reported: Option<GatewayReport> = None;
    loop {
        tokio::select! {
            _ = seconds.tick() => {}
            () = gateway.shutdown.requested() => return,
        }
        let followed = gateway.follow_configuration().await;
        asking.log(&followed);
        let now = report(&gateway, &name);
        let is_news = reported.as_ref().is_none_or(|before| {
            (before.number, &before.problem) != (now.number, &now.problem)
                || now.seen_at >= before.seen_at + REPORT_SECONDS
        });
        if is_news && followed.is_ok() && gateway.backoffice.report_config(&now).await.is_ok() {
            reported = Some(now);
        }
    }
}

fn report(gateway: &Gateway, name: &str) -> GatewayReport {
    GatewayReport {
        gateway: name.to_owned(),
        number: gateway.routes_now().revision.number,
        problem: gateway
            .configuration
            .problem()
            .map(|problem| (*problem).clone()),
        seen_at: timestamp::now(),
    }
}

/// What this gateway is called on pages: its machine and its port.
pub(crate) fn name(public: std::net::SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => public.to_string(),
        host => format!("{host}:{}", public.port()),
    }
}
