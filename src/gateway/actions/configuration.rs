//! Operator actions on the configuration: new versions of what differs from the file.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{ActionError, OperatorActions, rolled_back};
use crate::{
    backoffice::NewConfigVersion,
    base::{keys::random_id, timestamp},
    config::changes::{Changes, Revision, entry_values},
    gateway::configuration::{check, revision},
};

/// Most characters of the note of a version.
const MAX_NOTE: usize = 500;

/// Changes to be applied.
#[derive(Clone, Debug)]
pub(crate) struct NewVersion {
    /// All changes, not only the new ones.
    pub changes: Changes,
    /// The version that they were based on.
    pub based_on: i64,
    pub note: String,
}

impl OperatorActions {
    /// Checks the changes and makes them the newest version. Returns its number.
    pub(crate) async fn change_configuration(&self, new: NewVersion) -> Result<i64, ActionError> {
        if new.note.chars().count() > MAX_NOTE {
            return Err(ActionError::Configuration(vec![format!(
                "A note has at most {MAX_NOTE} characters."
            )]));
        }
        let actions = self.clone();
        self.run_to_completion(async move { actions.apply(new).await })
            .await
    }

    /// Makes the changes of an earlier version the newest version; version 0 is the file without changes. A version that
    /// says what the newest says already is refused, so that a repeated rollback changes nothing.
    pub(crate) async fn roll_back_configuration(
        &self,
        to: i64,
        based_on: i64,
    ) -> Result<i64, ActionError> {
        let changes = match to {
            0 => Changes::default(),
            to => {
                let found = self.gateway.backoffice.config_version(to).await?;
                let (_, content) = found.ok_or(ActionError::NoSuchVersion(to))?;
                Changes::parse(&content)
                    .map_err(|reason| ActionError::Configuration(vec![reason]))?
            }
        };
        let note = format!("Rolled back to {}", rolled_back(to));
        let new = NewVersion {
            changes,
            based_on,
            note,
        };
        let actions = self.clone();
        let applied = self.run_to_completion(async move { actions.apply(new).await });
        match applied.await? {
            number if number == based_on => Err(ActionError::ConfigurationUnchanged(to)),
            number => Ok(number),
        }
    }

    async fn apply(&self, new: NewVersion) -> Result<i64, ActionError> {
        let gateway = &self.gateway;
        let within = new.changes.check_bounds();
        within.map_err(|mistake| ActionError::Configuration(vec![mistake]))?;
        gateway.follow_configuration().await?;
        let before = self.version(new.based_on).await?;
        let base = gateway.routes().base.clone();
        let changes = base.with_replaced(new.changes, &before);
        if changes == before && gateway.configuration.newest().number == new.based_on {
            return Ok(new.based_on); // Nothing would change.
        }
        check(gateway, changes.clone())
            .await
            .map_err(ActionError::Configuration)?;
        let content = changes.to_json();
        let version = NewConfigVersion {
            id: &random_id("config_"),
            at_ms: timestamp::now_ms(),
            actor: &self.actor,
            note: new.note.trim(),
            content: &content,
            based_on: new.based_on,
        };
        let added = gateway.backoffice.add_config_version(version).await?;
        let Some(number) = added else {
            return Err(ActionError::ConfigurationConflict);
        };
        let subject = subject(&changes, &before);
        let was = with_version(entry_values(&before, &changes), new.based_on, "");
        let is = with_version(entry_values(&changes, &before), number, new.note.trim());
        self.record("config.change", &subject, Some(was), Some(is))
            .await;
        // Other gateways find it in the store. It was checked above, so it can be used here too.
        let changes = Arc::new(changes);
        let (gateway, newer) = (gateway.clone(), Revision { number, changes });
        let _ = spawn_blocking(move || gateway.adopt(newer)).await;
        Ok(number)
    }

    /// The changes of a version that others are based on.
    async fn version(&self, number: i64) -> Result<Changes, ActionError> {
        if number == 0 {
            return Ok(Changes::default());
        }
        let found = self.gateway.backoffice.config_version(number).await?;
        let (version, content) = found.ok_or(ActionError::ConfigurationConflict)?;
        let read = revision((version.number, content));
        let read = read.map_err(|reason| ActionError::Configuration(vec![reason]))?;
        Ok((*read.changes).clone())
    }
}

/// What was changed: the entry, if it is one.
fn subject(changes: &Changes, before: &Changes) -> String {
    let differs = |one: &Changes, other: &Changes| {
        let entries = one
            .all()
            .filter(|(kind, name, change)| other.of(*kind).get(*name) != Some(change));
        entries
            .map(|(_, name, _)| name.to_owned())
            .collect::<Vec<_>>()
    };
    let mut names = differs(changes, before);
    names.extend(differs(before, changes));
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [only] => only.clone(),
        _ => "configuration".into(),
    }
}

fn with_version(values: Value, number: i64, note: &str) -> Value {
    let mut all = json!({ "version": number });
    if let (Some(all), Value::Object(values)) = (all.as_object_mut(), values) {
        all.extend(values);
        if !note.is_empty() {
            all.insert("note".into(), note.into());
        }
    }
    all
}
