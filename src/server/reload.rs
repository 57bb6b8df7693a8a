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

/// The files that a configuration is read from, and how they looked before that.
pub struct Watched {
    file: PathBuf,
    /// Those that it names.
    named: Vec<PathBuf>,
    seen: Vec<Stamp>,
}

type Stamp = Option<(SystemTime, u64)>;

impl Watched {
    pub fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            named: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Reads them. What changes meanwhile is seen the next time; of files that are named for the first time nobody
    /// knows how they looked, so all is read again.
    pub fn load(&mut self) -> Result<Config, String> {
        loop {
            self.seen = self.stamps();
            let config = Config::load(&self.file).map_err(|error| error.to_string())?;
            let named = config.named_files();
            if named == self.named {
                return Ok(config);
            }
            self.named = named;
        }
    }

    fn have_changed(&self) -> bool {
        self.stamps() != self.seen
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let named = self.named.iter().map(|path| stamp(path));
        std::iter::once(stamp(&self.file)).chain(named).collect()
    }
}

/// Reads the files anew when they change, until the gateway stops.
pub async fn on_change(gateway: Arc<Gateway>, mut files: Watched) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return tracing::error!("SIGHUP cannot be received: the configuration stays as it is");
    };
    let mut mistake = None;
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
            () = gateway.shutdown.requested() => return,
        };
        // A mistake may be in a file that is not known to be one of them yet.
        let changed = files.have_changed();
        if !changed && !asked && mistake.is_none() {
            continue;
        }
        let read = files.load();
        match read.and_then(|config| replace(&gateway, config)) {
            Ok(()) => {
                tracing::info!("the configuration was read anew");
                mistake = None;
            }
            Err(error) => {
                if changed || asked || mistake.as_ref() != Some(&error) {
                    tracing::error!("the configuration stays as it was: {error}");
                }
                mistake = Some(error);
            }
        }
    }
}

/// Puts its models and upstreams in the place of those in use.
fn replace(gateway: &Gateway, config: Config) -> Result<(), String> {
    let routes = Routes::new(config, Some(&gateway.routes()))?;
    gateway.replace_routes(routes);
    Ok(())
}
