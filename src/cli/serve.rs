//! `tollgate serve`: production.

use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    config::Config,
    server::{self, Running},
    telemetry,
};

pub async fn run(file: &Path) -> Result<(), String> {
    let config = Config::load(file).map_err(|error| error.to_string())?;
    telemetry::start(&config.log);
    let catalog = config.catalog_file.clone();
    let running = server::start(config)
        .await
        .map_err(|error| error.to_string())?;
    running.reload_from(file.to_owned(), catalog);
    tracing::info!(
        public = %running.public,
        operator = %running.operator,
        "tollgate {} is ready at {}", env!("CARGO_PKG_VERSION"), running.origin,
    );
    until_stopped(running).await
}

/// Serves until the process is asked to stop, then stops in good order.
pub async fn until_stopped(running: Running) -> Result<(), String> {
    let listen =
        |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: no new work; running answers may finish (a second signal cuts them)");
    tokio::select! {
        () = running.stop() => {}
        _ = terminate.recv() => return Err("stopped at once; running answers were cut".into()),
        _ = interrupt.recv() => return Err("stopped at once; running answers were cut".into()),
    }
    tracing::info!("stopped");
    Ok(())
}
