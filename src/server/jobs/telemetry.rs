//! Sends the metrics to the operator's collector, again and again.

use std::sync::Arc;

use crate::{
    base::outage::Outage,
    gateway::{Gateway, metrics::Snapshot},
    telemetry::LAST_FLUSH,
};

/// Runs until shutdown is requested.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let telemetry = gateway.telemetry.as_ref();
    let Some(interval) = telemetry.and_then(|telemetry| telemetry.metrics_interval()) else {
        return;
    };
    let mut sending = Outage::new("sending metrics to the OpenTelemetry collector");
    let sending = async {
        loop {
            tokio::time::sleep(interval).await;
            sending.log(&send(&gateway).await);
        }
    };
    // A collector that does not answer must not hold up the stop.
    tokio::select! {
        () = sending => {}
        () = gateway.shutdown.requested() => {}
    }
}

/// Sends the last metrics and spans. Does not take long, whatever the collector does.
pub(crate) async fn close(gateway: &Gateway) {
    let Some(telemetry) = &gateway.telemetry else {
        return;
    };
    let metrics = async {
        if let Err(error) = send(gateway).await {
            tracing::warn!(error, "the last metrics could not be sent");
        }
    };
    // Side by side, so that one of them is sent if the other cannot be.
    let last = async { tokio::join!(telemetry.close(), metrics) };
    if tokio::time::timeout(LAST_FLUSH, last).await.is_err() {
        tracing::warn!("the last spans and metrics could not be sent in time");
    }
}

async fn send(gateway: &Gateway) -> Result<(), String> {
    let Some(telemetry) = &gateway.telemetry else {
        return Ok(());
    };
    let now = Snapshot::of(gateway);
    let text = gateway.metrics.for_collector(gateway.ledger.health(), &now);
    telemetry.send_metrics(&text).await
}
