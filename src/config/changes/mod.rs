//! Changes of models, aliases, deployments and providers that operators made in the console.
//!
//! They are kept in the store as a whole, as numbered revisions, and replace entries of the file and of the built-in
//! catalog: an entry that was changed replaces the other one whole. The result is checked like the file itself, by the
//! same code. A value that may be a secret cannot be among them: providers name variables and files.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

mod apply;
mod base;
mod difference;
mod entries;
mod models;
mod secrets;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use self::{
    apply::Applied,
    base::Base,
    difference::{LineChange, entry_values, lines},
    entries::{Entry, Source, deployment_name, unique},
    text::{leaves, write as write_entry},
};

/// Most bytes of all changes, as they are stored.
pub(crate) const MAX_BYTES: usize = 128 << 10;
/// Most bytes of an entry.
const MAX_ENTRY: usize = 16 << 10;
/// Most bytes of an entry's name.
const MAX_NAME: usize = 200;

/// The kinds of entries that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Model,
    Alias,
    Deployment,
    Provider,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Model, Self::Alias, Self::Deployment, Self::Provider];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Alias => "alias",
            Self::Deployment => "deployment",
            Self::Provider => "provider",
        }
    }

    /// Its name in paths and in the JSON of changes.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Alias => "aliases",
            Self::Deployment => "deployments",
            Self::Provider => "providers",
        }
    }

    pub(crate) fn parse(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == plural)
    }
}

/// What was done to one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// The entry as TOML; `None` if it is removed.
    pub set: Option<String>,
    /// The entry that it replaces, as it was at that time in the file or in the built-in catalog; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// All changes at one time, by the names of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Changes {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, Change>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, Change>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub deployments: BTreeMap<String, Change>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub providers: BTreeMap<String, Change>,
}

/// The changes of a version; version 0 is the file alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revision {
    pub number: i64,
    pub changes: Arc<Changes>,
}

impl Changes {
    pub(crate) fn of(&self, kind: Kind) -> &BTreeMap<String, Change> {
        match kind {
            Kind::Model => &self.models,
            Kind::Alias => &self.aliases,
            Kind::Deployment => &self.deployments,
            Kind::Provider => &self.providers,
        }
    }

    pub(crate) fn of_mut(&mut self, kind: Kind) -> &mut BTreeMap<String, Change> {
        match kind {
            Kind::Model => &mut self.models,
            Kind::Alias => &mut self.aliases,
            Kind::Deployment => &mut self.deployments,
            Kind::Provider => &mut self.providers,
        }
    }

    /// All changes, with the kind and the name of each entry.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Kind, &str, &Change)> {
        Kind::ALL.into_iter().flat_map(|kind| {
            let changes = self.of(kind).iter();
            changes.map(move |(name, change)| (kind, name.as_str(), change))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Whether both say the same of every entry, whatever it replaced when it was changed.
    pub(crate) fn say_the_same_as(&self, other: &Self) -> bool {
        let said = |(kind, name, change): (_, _, &Change)| (kind, name, change.set.clone());
        self.all().map(said).eq(other.all().map(said))
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("changes are plain JSON")
    }

    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        serde_json::from_str(json)
            .map_err(|error| format!("stored changes are unreadable: {error}"))
    }

    /// Checks sizes and names, before anything else reads them.
    pub(crate) fn check_bounds(&self) -> Result<(), String> {
        for (kind, name, change) in self.all() {
            let kind = kind.as_str();
            if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
                return Err(format!(
                    "The name of a {kind} has 1 to {MAX_NAME} characters, without line breaks."
                ));
            }
            if change
                .set
                .as_ref()
                .is_some_and(|text| text.len() > MAX_ENTRY)
            {
                return Err(format!(
                    "The {kind} `{name}` has more than 16 KiB of settings."
                ));
            }
        }
        if self.to_json().len() > MAX_BYTES {
            return Err(
                "These are more than 128 KiB of changes. Move some of them into the file.".into(),
            );
        }
        Ok(())
    }
}
