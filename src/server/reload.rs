//! Reads the configuration anew while the gateway runs: on SIGHUP, and when its file changes.
//!
//! Models, providers, deployments, router weights and tools are replaced as a whole, or not at all. Calls that run
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

/// Watches `file` and the files it names until the gateway stops.
pub async fn on_change(gateway: Arc<Gateway>, file: PathBuf, mut named: Vec<PathBuf>) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return tracing::error!("SIGHUP cannot be received: the configuration stays as it is");
    };
    let mut seen = stamps(&file, &named);
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
            () = gateway.shutdown.requested() => return,
        };
        if stamps(&file, &named) == seen && !asked {
            continue;
        }
        let config;
        (seen, config) = load(&file, &mut named);
        match config.and_then(|config| replace(&gateway, config)) {
            Ok(()) => tracing::info!("the configuration was read anew"),
            Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        }
    }
}

/// What the files say, and how they looked before they were read: what changes meanwhile is seen the next time.
/// Of files that it names for the first time nobody knows how they looked, so it is read again.
fn load(file: &Path, named: &mut Vec<PathBuf>) -> (Vec<Stamp>, Result<Config, String>) {
    loop {
        let before = stamps(file, named);
        match Config::load(file) {
            Ok(config) if config.named_files() != *named => *named = config.named_files(),
            read => return (before, read.map_err(|error| error.to_string())),
        }
    }
}

/// Puts its models and upstreams in the place of those in use.
fn replace(gateway: &Gateway, config: Config) -> Result<(), String> {
    let routes = Routes::new(config, Some(&gateway.routes()))?;
    gateway.replace_routes(routes);
    Ok(())
}

type Stamp = Option<(SystemTime, u64)>;

fn stamps(file: &Path, named: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    let named = named.iter().map(|path| stamp(path));
    std::iter::once(stamp(file)).chain(named).collect()
}
