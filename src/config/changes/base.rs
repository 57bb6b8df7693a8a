//! What the file and the environment say, kept so that it can be read again with other changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use super::{
    Applied, Changes, Revision,
    entries::{Original, as_table},
    secrets, text,
};
use crate::{
    base::{
        checked_toml::{self, Mistake, Node, Origin, Value},
        keys::Secret,
    },
    config::{
        Config, ConfigError,
        own_models::{CatalogSays, OwnModels},
        paths::{self, NamedFile},
        read,
        values::Environment,
    },
};

/// The sections that are read again while the gateway runs.
const READ_AGAIN: [&str; 7] = [
    "catalog",
    "models",
    "aliases",
    "providers",
    "deployments",
    "routing",
    "tools",
];

pub(crate) struct Base {
    /// The name of the file in messages.
    pub(super) source: String,
    /// The file's folder, which relative paths are relative to.
    pub(super) folder: PathBuf,
    /// The file with the overrides of the environment.
    pub(super) document: Node,
    /// The models of the file itself.
    pub(super) own_models: OwnModels,
    pub(super) environment: Environment,
    /// The models of the built-in catalog and of the file's, which are read once, and what the file's says of all its own.
    pub(super) models: OnceLock<(Vec<Original>, CatalogSays)>,
}

impl fmt::Debug for Base {
    /// Without the environment, which has secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base({})", self.source)
    }
}

impl Base {
    pub(crate) fn new(
        source: &str,
        folder: &Path,
        document: Node,
        own_models: OwnModels,
        environment: &Environment,
    ) -> Self {
        Self {
            source: source.to_owned(),
            folder: folder.to_owned(),
            document,
            own_models,
            environment: environment.clone(),
            models: OnceLock::new(),
        }
    }

    /// Of a text without mistakes, with the operator token that a file cannot have.
    pub(crate) fn of_text(source: &str, text: &str, token: &Secret) -> Self {
        let token = (
            "TOLLGATE_OPERATOR_TOKEN".to_owned(),
            token.reveal().to_owned(),
        );
        let environment = Environment::from([token]);
        checked_toml::parse(text).map_or_else(
            |_| Self::default(),
            |document| {
                let (folder, own) = (Path::new(""), OwnModels::default());
                Self::new(source, folder, document, own, &environment)
            },
        )
    }

    /// Reads the configuration with these changes, exactly as it is read at the start.
    pub(crate) fn read(self: &Arc<Self>, revision: &Revision) -> Result<Config, ConfigError> {
        self.config(revision).map_err(|mistakes| ConfigError {
            source: self.source.clone(),
            mistakes,
        })
    }

    pub(crate) fn config(self: &Arc<Self>, revision: &Revision) -> Result<Config, Vec<Mistake>> {
        self.models(); // The catalog as it is now, and not when a page first shows it.
        let refused = secrets::mistakes(self, &revision.changes);
        if !refused.is_empty() {
            return Err(refused); // before a file is opened that a change names
        }
        let (mut applied, mut mistakes) = Applied::to(self, &revision.changes);
        mistakes.extend(paths::resolve(&mut applied.document, &self.folder));
        match read::config(applied, &self.environment) {
            Ok(config) if mistakes.is_empty() => Ok(Config {
                base: self.clone(),
                revision: revision.clone(),
                ..config
            }),
            Ok(_) => Err(mistakes),
            Err(mut found) => {
                self.own_models.name_entries(&mut found);
                mistakes.extend(found);
                Err(mistakes)
            }
        }
    }

    /// The settings that differ in another file and take effect with a restart alone.
    pub(crate) fn needing_restart(&self, other: &Self) -> BTreeSet<String> {
        let settings = |base: &Self| -> BTreeSet<(String, String)> {
            let mut all = as_table(&base.document);
            all.retain(|section, _| Self::needs_restart(section));
            text::leaves(&all).into_iter().collect()
        };
        let (ours, theirs) = (settings(self), settings(other));
        let different = ours.symmetric_difference(&theirs);
        different.map(|(name, _)| name.clone()).collect()
    }

    /// The files with secrets that the file and the environment name.
    pub(crate) fn secret_files(&self) -> Vec<NamedFile> {
        paths::named_files(&self.document, &self.folder)
    }

    /// Those that these changes of the console name, and others that stay with them.
    pub(crate) fn secret_files_with(&self, changes: &Changes) -> Vec<NamedFile> {
        if changes.is_empty() {
            return Vec::new();
        }
        let (applied, _) = Applied::to(self, changes);
        paths::named_files(&applied.document, &self.folder)
    }

    /// Whether a setting takes effect with a restart alone.
    pub(crate) fn needs_restart(setting: &str) -> bool {
        let section = setting.split('.').next().unwrap_or_default();
        !READ_AGAIN.contains(&section)
    }

    /// The value at a path of tables.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter()
            .try_fold(&self.document, |node, key| match &node.value {
                Value::Table(entries) => entries.get(*key),
                _ => None,
            })
    }
}

impl Default for Base {
    fn default() -> Self {
        Self {
            source: String::new(),
            folder: PathBuf::new(),
            own_models: OwnModels::default(),
            document: Node {
                origin: Origin::Absent,
                value: Value::Table(BTreeMap::new()),
            },
            environment: Environment::new(),
            models: OnceLock::new(),
        }
    }
}
