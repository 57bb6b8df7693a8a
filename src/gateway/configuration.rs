//! The configuration in use: what the file says with the changes that operators made in the console.
//!
//! Both are replaced together: the routes are built anew from the file and the newest version of the store, by the same
//! code and with the same checks as at the start. What cannot be used changes nothing, and running calls finish with the
//! routes that they started with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::task::spawn_blocking;

use super::{Gateway, Routes};
use crate::{
    backoffice::BackofficeError,
    config::{
        ConfigError,
        changes::{Base, Changes, Revision},
    },
};

pub(crate) struct Configuration {
    /// The newest known version. The lock is held while routes are built, so that they are built one after the other.
    wanted: Mutex<Revision>,
    /// Why the newest version is not in use here.
    problem: ArcSwapOption<String>,
}

impl Configuration {
    pub(super) fn new(revision: Revision) -> Self {
        Self {
            wanted: Mutex::new(revision),
            problem: ArcSwapOption::empty(),
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Revision> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the newest version is not in use here; `None` if it is.
    pub(crate) fn problem(&self) -> Option<Arc<String>> {
        self.problem.load_full()
    }
}

/// A version that was read from the store.
pub(crate) fn revision((number, content): (i64, String)) -> Result<Revision, String> {
    Ok(Revision {
        number,
        changes: Arc::new(Changes::parse(&content)?),
    })
}

/// Checks changes on a thread of its own, because making clients and weighing examples takes many milliseconds.
pub(crate) async fn check(gateway: &Arc<Gateway>, changes: Changes) -> Result<(), Vec<String>> {
    let gateway = gateway.clone();
    let checked = spawn_blocking(move || gateway.check_changes(changes).map(drop)).await;
    checked.unwrap_or_else(|error| Err(vec![error.to_string()]))
}

impl Gateway {
    /// Reads the store, and uses its newest version if that is not in use. Returns whether there was a new one.
    pub(crate) async fn follow_configuration(&self) -> Result<bool, BackofficeError> {
        let known = self.configuration.wanted().number;
        let Some(newer) = self.backoffice.config_newer_than(known).await? else {
            return Ok(false);
        };
        match revision(newer) {
            Ok(newer) => drop(self.reload(None, Some(newer))),
            Err(problem) => self.configuration.problem.store(Some(Arc::new(problem))),
        }
        Ok(true)
    }

    /// The number of the newest known version.
    pub(crate) fn newest_configuration(&self) -> i64 {
        self.configuration.wanted().number
    }

    /// Builds the routes from a file that was read again, or with a newer version, or both.
    pub(crate) fn reload(
        &self,
        base: Option<Arc<Base>>,
        newer: Option<Revision>,
    ) -> Result<(), String> {
        let mut wanted = self.configuration.wanted();
        if let Some(newer) = newer.filter(|newer| newer.number > wanted.number) {
            *wanted = newer;
        }
        let current = self.routes();
        let base = base.unwrap_or_else(|| current.base.clone());
        let built = routes(&base, &wanted, Some(&current));
        let number = wanted.number;
        match built {
            Ok(routes) => {
                self.replace_routes(routes);
                self.configuration.problem.store(None);
                if number > current.revision.number {
                    tracing::info!(
                        version = number,
                        "version {number} of the configuration is in use"
                    );
                }
                Ok(())
            }
            Err(problem) => {
                if number > current.revision.number {
                    tracing::error!(
                        version = number,
                        "version {number} of the configuration cannot be used here, the previous one stays in use: {problem}"
                    );
                    let problem = Some(Arc::new(problem.clone()));
                    self.configuration.problem.store(problem);
                }
                Err(problem)
            }
        }
    }

    /// Checks changes without using them: reads them with this gateway's file, and makes their clients.
    fn check_changes(&self, changes: Changes) -> Result<Routes, Vec<String>> {
        changes.check_bounds().map_err(|mistake| vec![mistake])?;
        let current = self.routes();
        let revision = Revision {
            number: current.revision.number,
            changes: Arc::new(changes),
        };
        let config = current.base.config(&revision);
        let config = config.map_err(|mistakes| {
            let mistakes = mistakes.iter();
            mistakes.map(ToString::to_string).collect::<Vec<_>>()
        })?;
        Routes::new(config, Some(&current)).map_err(|mistake| vec![mistake])
    }
}

fn routes(
    base: &Arc<Base>,
    revision: &Revision,
    current: Option<&Routes>,
) -> Result<Routes, String> {
    let config = base.read(revision);
    let config = config.map_err(|error: ConfigError| error.to_string())?;
    Routes::new(config, current)
}
