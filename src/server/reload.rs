//! Reloads the configuration while the gateway runs: on SIGHUP, and when one of its files or of those that the changes of the
//! console name changes.
//!
//! Models, providers, deployments, router weights and tools are replaced as a whole, or not at all if the
//! configuration has a mistake. Running calls finish with the routes that they started with. All other settings need
//! a restart, and so do the files with their secrets; the log names those that have changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use sha2::{Digest as _, Sha256};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    config::{
        Config, NamedFile,
        changes::{Base, Revision},
    },
    gateway::Gateway,
};

/// Time between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The files of a configuration, with their state when they were last read.
pub(crate) struct ConfigFiles {
    file: PathBuf,
    /// Further files that `file` refers to.
    referenced: Vec<NamedFile>,
    /// Files with secrets that the changes of the console name, and of which base and version they are.
    in_console: Vec<NamedFile>,
    console: Option<(Arc<Base>, i64)>,
    /// What the process was started with.
    started_with: Option<Started>,
    /// Stamps of all files, taken before they were last read.
    stamps: BTreeMap<PathBuf, Stamp>,
}

/// The file with which the process was started, and the content of the files that it then read once and for all.
struct Started {
    base: Arc<Base>,
    contents: Contents,
}

/// Digests of files by the settings that name them. Their content is secret, so that it is not kept.
type Contents = BTreeMap<String, Option<[u8; 32]>>;

/// Modification time and size of a file, by which changes are detected; `None` if it cannot be read.
type Stamp = Option<(SystemTime, u64)>;

impl ConfigFiles {
    pub(crate) fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            referenced: Vec::new(),
            in_console: Vec::new(),
            console: None,
            started_with: None,
            stamps: BTreeMap::new(),
        }
    }

    /// Reads the configuration. The stamps are taken first, so a change during the read is detected later. If the
    /// files referred to are not the known ones, their stamps are missing, and everything is read again.
    pub(crate) fn load(&mut self) -> Result<Config, String> {
        loop {
            self.stamps = self.current_stamps();
            let contents = self.contents_read_once();
            let config = Config::load(&self.file).map_err(|error| error.to_string())?;
            let referenced = config.named_files();
            if referenced == self.referenced {
                self.started_with.get_or_insert_with(|| Started {
                    base: config.base.clone(),
                    contents,
                });
                return Ok(config);
            }
            self.referenced = referenced;
        }
    }

    /// The settings that differ from those with which the process was started, and that it does not use before a restart.
    /// A setting whose file has another content differs too.
    fn needing_restart(&self, base: &Base) -> BTreeSet<String> {
        let Some(started) = &self.started_with else {
            return BTreeSet::new();
        };
        let mut settings = started.base.needing_restart(base);
        let contents = self.contents_read_once();
        // A setting that names another file is among them already.
        let replaced = contents.into_iter().filter(|(setting, content)| {
            let before = started.contents.get(setting);
            before.is_some_and(|before| before != content)
        });
        settings.extend(replaced.map(|(setting, _)| setting));
        settings
    }

    fn contents_read_once(&self) -> Contents {
        let files = self.referenced.iter();
        let files = files.filter(|file| Base::needs_restart(&file.setting));
        let content = |path: &Path| Some(Sha256::digest(std::fs::read(path).ok()?).into());
        files
            .map(|file| (file.setting.clone(), content(&file.path)))
            .collect()
    }

    /// Watches the files that the changes in use name too.
    fn watch_console(&mut self, base: &Arc<Base>, revision: &Revision) {
        let known = self.console.as_ref();
        if known.is_some_and(|(of, number)| Arc::ptr_eq(of, base) && *number == revision.number) {
            return;
        }
        self.in_console = base.secret_files_with(&revision.changes);
        self.console = Some((base.clone(), revision.number));
    }

    /// Whether a file has changed since it was last read. One that was not watched until now was read without a stamp, so it
    /// may have.
    fn have_changed(&self) -> bool {
        let mut current = self.current_stamps().into_iter();
        current.any(|(path, stamp)| self.stamps.get(&path) != Some(&stamp))
    }

    fn current_stamps(&self) -> BTreeMap<PathBuf, Stamp> {
        let stamp = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let named = self.referenced.iter().chain(&self.in_console);
        std::iter::once(&self.file)
            .chain(named.map(|file| &file.path))
            .map(|path| (path.clone(), stamp(path)))
            .collect()
    }
}

/// Reloads the configuration on SIGHUP and when its files change, until shutdown is requested.
pub(crate) async fn on_change(gateway: Arc<Gateway>, mut files: ConfigFiles) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return tracing::error!("SIGHUP cannot be received; the configuration is never reloaded");
    };
    let mut last_error = None;
    loop {
        let sighup = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
            () = gateway.shutdown.requested() => return,
        };
        // After an error the files are read at every check, since the error may be in a referenced file that is not
        // known yet.
        let routes = gateway.routes();
        files.watch_console(&routes.base, &routes.revision);
        drop(routes); // not kept while others are built
        let changed = files.have_changed();
        if !changed && !sighup && last_error.is_none() {
            continue;
        }
        let read = files.load().and_then(|config| {
            // The changes of the console are made again, in what the file says now.
            gateway.reload(Some(&config.base)).map(|()| config.base)
        });
        match read {
            Ok(base) => {
                tracing::info!("configuration reloaded");
                warn_of_restart(&files.needing_restart(&base));
                last_error = None;
            }
            Err(error) => {
                if changed || sighup || last_error.as_ref() != Some(&error) {
                    tracing::error!(
                        "configuration not reloaded, the previous one stays in use: {error}"
                    );
                }
                last_error = Some(error);
            }
        }
    }
}

fn warn_of_restart(settings: &BTreeSet<String>) {
    if settings.is_empty() {
        return;
    }
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let settings = settings.join(", ");
    tracing::warn!(
        settings,
        "restart the gateway to use what has changed in {settings}"
    );
}
