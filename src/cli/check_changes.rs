//! The changes of the console in `tollgate check`: whether they still fit the file.

use crate::{
    backoffice,
    config::{Config, changes::Kind},
    gateway::configuration::revision,
    server::{describe, refusal},
};

/// The configuration with the newest changes of the store, and the result for them if there are any; without changes if
/// they do not fit, or cannot be read, with which a gateway does not start.
pub(super) async fn applied(config: Config) -> (Config, Option<Result<String, String>>) {
    let newest = match backoffice::newest_config(&config.store.location).await {
        Ok(Some(newest)) => newest,
        Ok(None) => return (config, None),
        Err(reason) => return (config, Some(Err(format!("cannot be read: {reason}")))),
    };
    let number = newest.0;
    let revision = match revision(newest) {
        Ok(revision) => revision,
        Err(reason) => return (config, Some(Err(reason))),
    };
    if revision.changes.is_empty() {
        return (config, None);
    }
    match config.base.read(&revision) {
        Ok(changed) => {
            let said = format!("version {number}; {}", describe(&revision.changes));
            (config.adopting(changed), Some(Ok(said)))
        }
        Err(error) => (config, Some(Err(refusal(number, &error.to_string())))),
    }
}

/// Entries that were changed in the console before the file changed them.
pub(super) fn outdated(config: &Config) -> Vec<String> {
    let entries = Kind::ALL.into_iter();
    let entries = entries.flat_map(|kind| config.base.entries(kind, &config.revision.changes));
    let outdated = entries.filter(|entry| entry.change.is_some() && entry.is_outdated());
    let notes = outdated.map(|entry| {
        let (kind, name) = (entry.kind.as_str(), entry.name);
        format!("{kind} `{name}` was changed in the console, and in the file after that: what the console says counts")
    });
    notes.collect()
}
