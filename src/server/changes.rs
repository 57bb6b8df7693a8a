//! The changes of the console at the start: they are made in what the file says before anything is served.

use std::time::Duration;

use super::StartError;
use crate::{
    backoffice::{Backoffice, BackofficeError},
    config::{
        Config,
        changes::{Changes, Revision},
    },
    gateway::configuration::revision,
};

/// How often a store that cannot be read is asked, a second apart: a server may be starting, a file may be locked. A file of
/// another version is asked once.
const ATTEMPTS: u32 = 5;

/// What a start does if the changes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableChanges {
    /// It fails: calls would be charged the prices of the file.
    Fail,
    /// It serves the file alone until they can be read, as the operator has decided.
    ServeFile,
}

/// The newest version in the store; version 0 if there is none.
async fn newest(backoffice: &Backoffice) -> Result<Revision, String> {
    let mut attempt = 1;
    let newest = loop {
        match backoffice.config_newer_than(0).await {
            Ok(newest) => break newest,
            Err(error @ BackofficeError::OtherVersion(_)) => return Err(error.to_string()),
            Err(error) if attempt == ATTEMPTS => return Err(error.to_string()),
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
/// start. So does a store that cannot be read, unless the operator has decided otherwise for this start.
pub(super) async fn applied(
    config: Config,
    backoffice: &Backoffice,
    unreadable: UnreadableChanges,
) -> Result<Config, StartError> {
    match newest(backoffice).await {
        Ok(newest) if newest.number == 0 => Ok(config),
        Ok(newest) => {
            let number = newest.number;
            let unusable = |problem: String| StartError::Changes(refusal(number, &problem));
            let changed = config.base.read(&newest);
            let changed = changed.map_err(|error| unusable(error.to_string()))?;
            Ok(config.adopting(changed))
        }
        Err(reason) => match unreadable {
            UnreadableChanges::ServeFile => {
                tracing::error!(
                    "the changes of the console cannot be read, and the file is served without them until they can: {reason}"
                );
                Ok(config)
            }
            UnreadableChanges::Fail => Err(StartError::UnreadableChanges { reason }),
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use tokio::time::Instant;

    use super::*;

    /// The start beside a database in this folder.
    async fn start(folder: &Path, unreadable: UnreadableChanges) -> Result<Config, StartError> {
        let database = folder.join("tollgate.db");
        let text = format!(
            "store.url = \"sqlite:{}\"\nproviders.play.kind = \"simulator\"\n\
             deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
            database.display()
        );
        let token = "4f1c9b7e02d86a35c1e94b7d60a2f835".to_owned();
        let environment = BTreeMap::from([("TOLLGATE_OPERATOR_TOKEN".to_owned(), token)]);
        let config = Config::parse("test.toml", &text, &environment).unwrap();
        applied(config, &Backoffice::beside(&database), unreadable).await
    }

    /// Whatever the reason, the prices of the file are charged only if the operator says so.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_read_fails_the_start() {
        for (state, said) in [
            ("fine", None),
            ("damaged", Some("not a database")),
            ("other version", Some("another version of tollgate")),
            ("locked", Some("locked")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("tollgate.portal.db");
            start(folder.path(), UnreadableChanges::Fail).await.unwrap();
            let stranger = rusqlite::Connection::open(&file).unwrap();
            match state {
                "damaged" => {
                    std::fs::write(&file, "garbage".repeat(999)).unwrap();
                }
                "other version" => stranger.pragma_update(None, "user_version", 99).unwrap(),
                "locked" => {
                    stranger
                        .pragma_update(None, "journal_mode", "DELETE")
                        .unwrap();
                    stranger.execute_batch("BEGIN EXCLUSIVE").unwrap();
                }
                _ => {}
            }
            let before = Instant::now();
            let started = start(folder.path(), UnreadableChanges::Fail).await;
            let waited = before.elapsed() >= Duration::from_secs(4);
            match (started, said) {
                (Ok(_), None) => {}
                (Err(error @ StartError::UnreadableChanges { .. }), Some(said)) => {
                    let reason = error.to_string();
                    assert!(reason.contains(said), "{state}: {reason}");
                    assert!(reason.contains("--without-console-changes"), "{reason}");
                }
                (started, _) => panic!("{state}: {:?}", started.err()),
            }
            let may_recover = ["damaged", "locked"].contains(&state);
            assert_eq!(waited, may_recover, "{state}");
            let decided = start(folder.path(), UnreadableChanges::ServeFile).await;
            assert!(decided.is_ok(), "{state}");
        }
    }
}
