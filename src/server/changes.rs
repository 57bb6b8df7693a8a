//! The changes of the console at the start: they are made in what the file says before anything is served.

use std::time::Duration;

use super::StartError;
use crate::{
    backoffice::Backoffice,
    config::{
        Config, StoreLocation,
        changes::{Changes, Revision},
    },
    gateway::configuration::revision,
};

/// How often a database server that does not respond is asked, a second apart.
const ATTEMPTS: u32 = 5;

/// The newest version in the store; version 0 if there is none.
async fn newest(backoffice: &Backoffice, attempts: u32) -> Result<Revision, String> {
    let mut attempt = 1;
    let newest = loop {
        match backoffice.config_newer_than(0).await {
            Ok(newest) => break newest,
            Err(error) if attempt == attempts => return Err(error.to_string()),
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
        attempt += 1;
    };
    newest.map_or_else(|| Ok(Revision::default()), revision)
}

/// Says why a file cannot be used with the changes of a version, and what can be done.
pub(crate) fn refusal(number: i64, problem: &str) -> String {
    let back = match number - 1 {
        ..=0 => String::new(),
        before => format!(" (or `--to {before}`: to the version before)"),
    };
    format!(
        "the file does not fit the changes that were made in the console (version {number}):\n{problem}\n\
         Correct the file, or drop the changes with `tollgate config rollback --config FILE --to 0`, which goes back to \
         the file alone{back}."
    )
}

/// The configuration with the newest version of the store.
///
/// A gateway that served without the changes would charge wrong prices, so a version that does not fit the file fails the
/// start. So does a store that cannot be asked, except for a damaged file beside an SQLite database: it stops no call, and
/// the changes are made as soon as it can be read.
pub(super) async fn applied(config: Config, backoffice: &Backoffice) -> Result<Config, StartError> {
    let attempts = match &config.store.location {
        StoreLocation::File(_) => 1,
        StoreLocation::Postgres { .. } => ATTEMPTS,
    };
    match newest(backoffice, attempts).await {
        Ok(newest) if newest.number == 0 => Ok(config),
        Ok(newest) => {
            let number = newest.number;
            let unusable = |problem: String| StartError::Changes(refusal(number, &problem));
            let changed = config.base.read(&newest);
            let changed = changed.map_err(|error| unusable(error.to_string()))?;
            Ok(config.adopting(changed))
        }
        Err(reason) => match &config.store.location {
            StoreLocation::File(_) => {
                tracing::error!(
                    "changes of the console cannot be read, and the file is served without them: {reason}"
                );
                Ok(config)
            }
            StoreLocation::Postgres { .. } => {
                let reason = format!("the changes of the console cannot be read: {reason}");
                Err(StartError::Changes(reason))
            }
        },
    }
}

/// Whether there are changes.
pub(crate) fn describe(changes: &Changes) -> String {
    let count = changes.all().count();
    match count {
        1 => "1 entry differs from the file".into(),
        count => format!("{count} entries differ from the file"),
    }
}
