//! What differs between two entries, or between two sets of changes.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use similar::{ChangeTag, TextDiff};

use super::{Changes, leaves};

/// A line of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineChange {
    Same(String),
    Removed(String),
    Added(String),
}

/// Compares two texts line by line.
pub(crate) fn lines(before: &str, after: &str) -> Vec<LineChange> {
    let compared = TextDiff::from_lines(before, after);
    let changes = compared.iter_all_changes().map(|change| {
        let line = change.value().trim_end_matches('\n').to_owned();
        match change.tag() {
            ChangeTag::Equal => LineChange::Same(line),
            ChangeTag::Delete => LineChange::Removed(line),
            ChangeTag::Insert => LineChange::Added(line),
        }
    });
    changes.collect()
}

/// The values of these entries that differ from those of the other set, for the record of an action: by kind, name and key.
pub(crate) fn entry_values(changes: &Changes, other: &Changes) -> Json {
    let (mine, others) = (flat(changes), flat(other));
    let differing = mine
        .into_iter()
        .filter(|(key, value)| others.get(key) != Some(value));
    Json::Object(differing.collect::<Map<_, _>>())
}

fn flat(changes: &Changes) -> BTreeMap<String, Json> {
    let mut values = BTreeMap::new();
    for (kind, name, change) in changes.all() {
        let place = format!("{} {name}", kind.as_str());
        let Some(text) = &change.set else {
            values.insert(place, Json::from("removed"));
            continue;
        };
        // A text that is no TOML is never stored.
        let entry = text.parse().unwrap_or_default();
        let entries = leaves(&entry).into_iter();
        values.extend(
            entries.map(|(key, value)| (format!("{place} {key}"), Json::from(unquoted(&value)))),
        );
    }
    values
}

fn unquoted(value: &str) -> &str {
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.filter(|inner| !inner.contains('\\')).unwrap_or(value)
}
