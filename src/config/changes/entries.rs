//! The entries of a configuration with where each comes from: the built-in catalog, the file, or a change.

use std::collections::BTreeMap;

use toml::{Table, Value as Toml};

use super::{Base, Change, Changes, Kind, text};
use crate::base::checked_toml::{Node, Value};

/// Where an entry comes from that was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provenance {
    BuiltIn,
    File,
}

/// An entry without changes: its name, where it comes from, and its settings.
pub(super) type Original = (String, Provenance, Table);

/// What is shown of a URL with a user or a password in it.
const HIDDEN: &str = "(hidden: it has a password in it)";

/// One entry, as it is in the file or the built-in catalog and as it is now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub name: String,
    /// Without changes; `None` if it was added by one.
    pub original: Option<(Provenance, Table)>,
    pub change: Option<Change>,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    BuiltIn,
    File,
    Changed,
    Added,
    Removed,
}

impl Source {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::File => "file",
            Self::Changed => "changed",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

impl Entry {
    /// Its settings now; `None` if it was removed.
    pub(crate) fn current(&self) -> Option<Table> {
        match &self.change {
            Some(change) => Some(change.set.as_ref()?.parse().unwrap_or_default()),
            None => self.original.as_ref().map(|(_, table)| table.clone()),
        }
    }

    pub(crate) fn source(&self) -> Source {
        match (&self.change, &self.original) {
            (Some(Change { set: None, .. }), _) => Source::Removed,
            (Some(_), Some(_)) => Source::Changed,
            (Some(_), None) => Source::Added,
            (None, Some((Provenance::File, _))) => Source::File,
            (None, _) => Source::BuiltIn,
        }
    }

    /// Its text in the file or the built-in catalog.
    pub(crate) fn original_text(&self) -> Option<String> {
        self.original.as_ref().map(|(_, table)| text::write(table))
    }

    /// Its text now; `None` if it was removed.
    pub(crate) fn current_text(&self) -> Option<String> {
        self.current().map(|table| text::write(&table))
    }

    /// Whether the file's entry is another one than when the change was made.
    pub(crate) fn is_outdated(&self) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.replaces != self.original_text())
    }

    /// Whether a part of it is hidden, so that it can only be changed in the file.
    pub(crate) fn is_hidden(&self) -> bool {
        let url = self
            .original
            .as_ref()
            .and_then(|(_, table)| table.get("base_url"));
        url.and_then(Toml::as_str)
            .is_some_and(|url| url.starts_with(HIDDEN))
    }
}

impl Base {
    /// The entries of a kind: those of the file and the catalog in their order, then the added ones.
    pub(crate) fn entries(&self, kind: Kind, changes: &Changes) -> Vec<Entry> {
        let mut changes = changes.of(kind).clone();
        let originals = self.originals(kind).into_iter();
        let mut entries: Vec<_> = originals
            .map(|(name, provenance, table)| Entry {
                kind,
                change: changes.remove(&name),
                name,
                original: Some((provenance, table)),
            })
            .collect();
        entries.extend(changes.into_iter().map(|(name, change)| Entry {
            kind,
            name,
            original: None,
            change: Some(change),
        }));
        entries
    }

    /// Sets what each change replaces: what it replaced in `before` if it is the same change, else the entry of today.
    #[must_use]
    pub(crate) fn with_replaced(&self, mut changes: Changes, before: &Changes) -> Changes {
        for kind in Kind::ALL {
            let originals: BTreeMap<_, _> = self
                .originals(kind)
                .into_iter()
                .map(|(name, _, table)| (name, text::write(&table)))
                .collect();
            for change in changes.of_mut(kind).values_mut() {
                let read = change
                    .set
                    .as_ref()
                    .and_then(|set| set.parse::<Table>().ok());
                if let Some(entry) = read {
                    change.set = Some(text::write(&entry));
                }
            }
            for (name, change) in changes.of_mut(kind).iter_mut() {
                let earlier = before
                    .of(kind)
                    .get(name)
                    .filter(|earlier| earlier.set == change.set);
                change.replaces = match earlier {
                    Some(earlier) => earlier.replaces.clone(),
                    None => originals.get(name).cloned(),
                };
            }
            // What equals the file's entry, or removes nothing, is no change.
            changes
                .of_mut(kind)
                .retain(|name, change| match &change.set {
                    Some(_) => change.set.as_ref() != originals.get(name),
                    None => originals.contains_key(name),
                });
        }
        changes
    }

    fn originals(&self, kind: Kind) -> Vec<Original> {
        let from_file = |(name, node): (String, &Node)| (name, Provenance::File, as_table(node));
        match kind {
            Kind::Model => self.models().to_vec(),
            Kind::Provider => named(self.at(&["providers"]))
                .map(from_file)
                .map(|(name, provenance, table)| (name, provenance, without_password(table)))
                .collect(),
            Kind::Alias => named(self.at(&["models", "aliases"]))
                .map(|(name, node)| {
                    let target = Table::from_iter([("model".to_owned(), as_toml(node))]);
                    (name, Provenance::File, target)
                })
                .collect(),
            Kind::Deployment => match self.at(&["deployments"]).map(|node| &node.value) {
                Some(Value::List(items)) => deployment_names(items)
                    .into_iter()
                    .zip(items)
                    .map(from_file)
                    .collect(),
                _ => Vec::new(),
            },
        }
    }
}

fn without_password(mut provider: Table) -> Table {
    let url = provider.get("base_url").and_then(Toml::as_str);
    if url.is_some_and(|url| url.contains('@')) {
        provider.insert("base_url".into(), HIDDEN.into());
    }
    provider
}

/// What deployments are called: by their model and provider, with the upstream's name of the model, and numbered if that
/// is not unique.
pub(super) fn deployment_names(deployments: &[Node]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for deployment in deployments {
        let name = deployment_name(&as_table(deployment));
        names.push(unique(name, |name| names.iter().any(|known| known == name)));
    }
    names
}

/// What a deployment is called.
pub(crate) fn deployment_name(entry: &Table) -> String {
    let text = |key: &str| entry.get(key).and_then(Toml::as_str).unwrap_or_default();
    let name = format!("{}@{}", text("model"), text("provider"));
    match text("upstream_model") {
        "" => name,
        upstream => format!("{name}/{upstream}"),
    }
}

/// The name, with a number if it is taken.
pub(crate) fn unique(name: String, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number: u32| format!("{name}#{number}"));
    let mut free = std::iter::once(name.clone()).chain(numbered);
    free.find(|name| !is_taken(name)).unwrap_or(name)
}

fn named(node: Option<&Node>) -> impl Iterator<Item = (String, &Node)> {
    let entries = match node.map(|node| &node.value) {
        Some(Value::Table(entries)) => Some(entries),
        _ => None,
    };
    let entries = entries.into_iter().flatten();
    entries.map(|(name, node)| (name.clone(), node))
}

pub(super) fn as_table(node: &Node) -> Table {
    match as_toml(node) {
        Toml::Table(table) => table,
        _ => Table::new(),
    }
}

fn as_toml(node: &Node) -> Toml {
    match &node.value {
        Value::Text(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Flag(flag) => (*flag).into(),
        Value::List(items) => items.iter().map(as_toml).collect::<Vec<_>>().into(),
        Value::Table(entries) => {
            let entries = entries
                .iter()
                .map(|(key, node)| (key.clone(), as_toml(node)));
            Toml::Table(entries.collect())
        }
        Value::Other(text) => {
            let mut parsed = format!("value = {text}")
                .parse::<Table>()
                .unwrap_or_default();
            parsed
                .remove("value")
                .unwrap_or_else(|| text.as_str().into())
        }
    }
}
