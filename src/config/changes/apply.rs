//! Puts changes into the document of the file, before it is read.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use super::{Base, Change, Changes, Kind, entries::deployment_names};
use crate::base::checked_toml::{self, Mistake, Node, Origin, Value};

/// The document of a file with changes in it. Models are apart, because they are in other files.
pub(crate) struct Applied {
    pub document: Node,
    /// The models of the file itself, as a document of a catalog.
    pub own_models: Option<Node>,
    /// Changed and added models, as a document of a catalog.
    pub models: Option<Node>,
    pub removed_models: BTreeSet<String>,
}

impl Applied {
    /// The document as it is, without changes.
    pub(crate) fn unchanged(document: Node) -> Self {
        Self {
            document,
            own_models: None,
            models: None,
            removed_models: BTreeSet::new(),
        }
    }

    pub(super) fn to(base: &Base, changes: &Changes) -> (Self, Vec<Mistake>) {
        let mut applied = Self::unchanged(base.document.clone());
        applied.own_models.clone_from(&base.own_models.catalog);
        if changes.is_empty() {
            return (applied, Vec::new());
        }
        let mut mistakes = Vec::new();
        let root = table(&mut applied.document);
        let providers = table(root.entry("providers".into()).or_insert_with(empty));
        for (name, entry) in read_all(Kind::Provider, &changes.providers, &mut mistakes) {
            replace(providers, name, entry);
        }
        let models = table(root.entry("models".into()).or_insert_with(empty));
        let aliases = table(models.entry("aliases".into()).or_insert_with(empty));
        for (name, entry) in read_all(Kind::Alias, &changes.aliases, &mut mistakes) {
            let target = entry.and_then(|entry| alias_target(&name, entry, &mut mistakes));
            replace(aliases, name, target);
        }
        change_deployments(root, &changes.deployments, &mut mistakes);
        let mut models = Vec::new();
        for (id, entry) in read_all(Kind::Model, &changes.models, &mut mistakes) {
            match entry {
                None => drop(applied.removed_models.insert(id)),
                Some(mut entry) => {
                    let origin = entry.origin.clone();
                    let settings = table(&mut entry);
                    base.catalog_says().complete(&id, settings, &origin);
                    let value = Value::Text(id);
                    settings.insert("id".into(), Node { origin, value });
                    models.push(entry);
                }
            }
        }
        let list = Node {
            origin: Origin::Absent,
            value: Value::List(models),
        };
        let mut catalog = empty();
        table(&mut catalog).insert("models".into(), list);
        applied.models = Some(catalog);
        (applied, mistakes)
    }
}

/// The changed entries of a kind; `None` for those that are removed. One that is no TOML is a mistake, and left out.
fn read_all(
    kind: Kind,
    changes: &BTreeMap<String, Change>,
    mistakes: &mut Vec<Mistake>,
) -> Vec<(String, Option<Node>)> {
    let mut read = Vec::new();
    for (name, change) in changes {
        let Some(text) = &change.set else {
            read.push((name.clone(), None));
            continue;
        };
        let origin = Origin::Change(format!("{} `{name}`", kind.as_str()));
        let parsed = checked_toml::parse(text).map_err(|found| {
            let found = found.into_iter();
            found.map(|mistake| mistake.to_string()).collect()
        });
        // Pages, comparisons and records read it with the other parser, which refuses e.g. integers that do not fit.
        let parsed = parsed.and_then(|entry| match text.parse::<Table>() {
            Ok(_) => Ok(entry),
            Err(error) => Err(vec![format!("this cannot be read: {}", error.message())]),
        });
        match parsed {
            Ok(entry) => read.push((name.clone(), Some(entry.with_origin(&origin)))),
            Err(found) => mistakes.extend(found.into_iter().map(|message| Mistake {
                message,
                origin: origin.clone(),
            })),
        }
    }
    read
}

fn replace(entries: &mut BTreeMap<String, Node>, name: String, entry: Option<Node>) {
    match entry {
        Some(entry) => drop(entries.insert(name, entry)),
        None => drop(entries.remove(&name)),
    }
}

/// The model of an alias, which has no other setting.
fn alias_target(name: &str, mut entry: Node, mistakes: &mut Vec<Mistake>) -> Option<Node> {
    let origin = entry.origin.clone();
    let entries = table(&mut entry);
    let target = entries.remove("model");
    for key in entries.keys() {
        mistakes.push(Mistake {
            origin: origin.clone(),
            message: format!("`{key}` is not a setting; an alias has `model`"),
        });
    }
    if target.is_none() {
        mistakes.push(Mistake {
            origin,
            message: format!("`models.aliases.{name}` is missing its `model`"),
        });
    }
    target
}

fn change_deployments(
    root: &mut BTreeMap<String, Node>,
    changes: &BTreeMap<String, Change>,
    mistakes: &mut Vec<Mistake>,
) {
    let none = || Node {
        origin: Origin::Absent,
        value: Value::List(Vec::new()),
    };
    let list = root.entry("deployments".into()).or_insert_with(none);
    let Value::List(deployments) = &mut list.value else {
        return; // reported when it is read
    };
    let names = deployment_names(deployments);
    let mut all: Vec<(Option<String>, Node)> = names
        .into_iter()
        .map(Some)
        .zip(std::mem::take(deployments))
        .collect();
    for (name, entry) in read_all(Kind::Deployment, changes, mistakes) {
        let at = all
            .iter()
            .position(|(known, _)| known.as_ref() == Some(&name));
        match (at, entry) {
            (Some(at), Some(entry)) => all[at].1 = entry,
            (Some(at), None) => drop(all.remove(at)),
            (None, Some(entry)) => all.push((None, entry)),
            (None, None) => {}
        }
    }
    deployments.extend(all.into_iter().map(|(_, entry)| entry));
}

fn empty() -> Node {
    Node {
        origin: Origin::Absent,
        value: Value::Table(BTreeMap::new()),
    }
}

/// The entries of a table. Another value is replaced by an empty table; reading the document reports it.
fn table(node: &mut Node) -> &mut BTreeMap<String, Node> {
    if !matches!(node.value, Value::Table(_)) {
        node.value = Value::Table(BTreeMap::new());
    }
    match &mut node.value {
        Value::Table(entries) => entries,
        _ => unreachable!("it was made a table above"),
    }
}
