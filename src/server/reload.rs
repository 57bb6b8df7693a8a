//! Reads the configuration anew while the gateway runs: on SIGHUP, and when its file changes.
//!
//! Models, providers, deployments and tools are replaced as a whole, or not at all. Calls that run
//! finish with what they began with. Everything else in the file takes a restart.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    config::Config,
    gateway::{Gateway, Routes},
};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Watches `file` and the catalog it names until the gateway stops.
pub async fn on_change(gateway: Arc<Gateway>, file: PathBuf, mut catalog: Option<PathBuf>) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return tracing::error!("SIGHUP cannot be received: the configuration stays as it is");
    };
    let mut seen = stamps(&file, catalog.as_deref());
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
            () = gateway.shutdown.requested() => return,
        };
        let now = stamps(&file, catalog.as_deref());
        if now == seen && !asked {
            continue;
        }
        match read(&gateway, &file) {
            Ok(named) => {
                catalog = named;
                tracing::info!("the configuration was read anew");
            }
            Err(error) => {
                tracing::error!("the configuration stays as it was: {error}");
            }
        }
        seen = stamps(&file, catalog.as_deref());
    }
}

/// Puts the file's models and upstreams in the place of those in use; says which catalog it names.
fn read(gateway: &Gateway, file: &Path) -> Result<Option<PathBuf>, String> {
    let config = Config::load(file).map_err(|error| error.to_string())?;
    let catalog = config.catalog_file.clone();
    let routes = Routes::new(config, Some(&gateway.routes()))?;
    gateway.replace_routes(routes);
    Ok(catalog)
}

type Stamp = Option<(SystemTime, u64)>;

fn stamps(file: &Path, catalog: Option<&Path>) -> (Stamp, Stamp) {
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    (stamp(file), catalog.and_then(stamp))
}
