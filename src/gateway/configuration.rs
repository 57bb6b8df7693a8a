//! The configuration in use: what the file says with the changes that operators made in the console.
//!
//! Both are replaced together: the routes are built anew from the file and the newest version of the store, by the same
//! code and with the same checks as at the start. What cannot be used changes nothing, and running calls finish with the
//! routes that they started with.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;

use super::{Gateway, Routes};
use crate::{
    backoffice::BackofficeError,
    config::{
        ConfigError,
        changes::{Base, Changes, Revision},
    },
    net::offload::Offload,
};

/// Time between two attempts to use a version that could not be used, because what it lacks may be there by now.
const RETRY: Duration = Duration::from_secs(2);

pub(crate) struct Configuration {
    /// The lock is never held while routes are built.
    known: Mutex<Known>,
}

struct Known {
    /// The newest known version, which may not be in use.
    newest: Revision,
    /// Why the newest version is not in use here.
    problem: Option<Problem>,
}

struct Problem {
    /// The version that cannot be used.
    number: i64,
    reason: Arc<String>,
    tried: Instant,
}

impl Configuration {
    pub(super) fn new(revision: Revision) -> Self {
        Self {
            known: Mutex::new(Known {
                newest: revision,
                problem: None,
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest known version, which may not be in use.
    pub(crate) fn newest(&self) -> Revision {
        self.known().newest.clone()
    }

    /// Why the newest version is not in use here; `None` if it is.
    pub(crate) fn problem(&self) -> Option<Arc<String>> {
        let known = self.known();
        known.problem.as_ref().map(|problem| problem.reason.clone())
    }

    fn learn(&self, newer: Revision) {
        let mut known = self.known();
        if newer.number > known.newest.number {
            known.newest = newer;
        }
    }

    /// Whether a version that could not be used is to be tried again now. Of several callers one is told so.
    fn is_retry_due(&self) -> bool {
        let mut known = self.known();
        let problem = known.problem.as_mut();
        let Some(due) = problem.filter(|problem| problem.tried.elapsed() >= RETRY) else {
            return false;
        };
        due.tried = Instant::now();
        true
    }
}

impl Known {
    /// Remembers why a version cannot be used, and logs each reason once.
    fn fail(&mut self, number: i64, reason: String) {
        let before = self.problem.take();
        let is_known =
            before.is_some_and(|before| before.number == number && *before.reason == reason);
        if !is_known {
            tracing::error!(
                version = number,
                "version {number} of the configuration cannot be used here, the previous one stays in use: {reason}"
            );
        }
        self.problem = Some(Problem {
            number,
            reason: Arc::new(reason),
            tried: Instant::now(),
        });
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
    /// Reads the store, and uses its newest version if that is not in use.
    pub(crate) async fn follow_configuration(self: &Arc<Self>) -> Result<(), BackofficeError> {
        let configuration = &self.configuration;
        let known = configuration.newest().number;
        match self.backoffice.config_newer_than(known).await? {
            Some((number, content)) => match revision((number, content)) {
                Ok(newer) => configuration.learn(newer),
                Err(reason) => {
                    configuration.known().fail(number, reason);
                    return Ok(());
                }
            },
            None if configuration.is_retry_due() => {}
            None => return Ok(()),
        }
        // On a thread of its own, because making clients and weighing examples takes many milliseconds.
        let gateway = self.clone();
        let built = spawn_blocking(move || drop(gateway.reload(None)));
        if let Err(error) = built.await {
            let mut known = configuration.known();
            let number = known.newest.number;
            known.fail(number, error.to_string());
        }
        Ok(())
    }

    /// Builds the routes with the newest known version, from a file that was read again or from the one in use.
    pub(crate) fn reload(&self, file: Option<&Arc<Base>>) -> Result<(), String> {
        loop {
            let before = self.routes();
            let newest = self.configuration.newest();
            if file.is_none() && before.revision.number == newest.number {
                return Ok(()); // It is in use already.
            }
            let base = file.unwrap_or(&before.base);
            let built = routes(base, &newest, &before, &self.offload);
            let mut known = self.configuration.known();
            if known.newest.number != newest.number || !Arc::ptr_eq(&before, &self.routes()) {
                continue; // Meanwhile a newer version was found, or other routes came into use.
            }
            let number = newest.number;
            let is_new = number > before.revision.number;
            match built {
                Ok(routes) => {
                    self.replace_routes(routes);
                    known.problem = None;
                    if is_new {
                        tracing::info!(
                            version = number,
                            "version {number} of the configuration is in use"
                        );
                    }
                    return Ok(());
                }
                Err(reason) => {
                    // What is wrong with another file is for who has read it.
                    if is_new && file.is_none() {
                        known.fail(number, reason.clone());
                    }
                    return Err(reason);
                }
            }
        }
    }

    /// Uses a version that was just added to the store.
    pub(crate) fn adopt(&self, newer: Revision) {
        self.configuration.learn(newer);
        drop(self.reload(None));
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
        Routes::new(config, Some(&current), &self.offload).map_err(|mistake| vec![mistake])
    }
}

fn routes(
    base: &Arc<Base>,
    revision: &Revision,
    current: &Routes,
    offload: &Offload,
) -> Result<Routes, String> {
    let config = base.read(revision);
    let config = config.map_err(|error: ConfigError| error.to_string())?;
    Routes::new(config, Some(current), offload)
}
