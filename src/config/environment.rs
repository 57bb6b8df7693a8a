//! `TOLLGATE__SECTION__KEY` in the environment replaces `section.key` in the file.

use std::collections::BTreeMap;

use crate::base::checked_toml::{Mistake, Node, Origin, Value};

const PREFIX: &str = "TOLLGATE__";

/// Applies every override to `document`. A variable that names an unknown setting is reported later like any unknown
/// key, under the variable's name; one that names a list entry that does not exist is returned as a mistake.
pub(crate) fn override_values(
    document: &mut Node,
    environment: &BTreeMap<String, String>,
) -> Vec<Mistake> {
    let mut unplaced = Vec::new();
    for (name, value) in environment {
        let Some(path) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let node = Node {
            origin: Origin::Variable(name.clone()),
            value: Value::Text(value.clone()),
        };
        let steps: Vec<&str> = path.split("__").collect();
        if let Err(missing) = set_at(document, &steps, node) {
            unplaced.push(Mistake {
                origin: Origin::Variable(name.clone()),
                message: format!("`{missing}` is not in the file, so it cannot be replaced"),
            });
        }
    }
    unplaced
}

/// Sets the value at the path `steps`, or returns the part of the path that does not exist.
fn set_at(parent: &mut Node, steps: &[&str], node: Node) -> Result<(), String> {
    let [step, rest @ ..] = steps else {
        *parent = node;
        return Ok(());
    };
    match &mut parent.value {
        Value::List(items) => {
            // List entries are addressed by position.
            match step.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                Some(item) => {
                    set_at(item, rest, node).map_err(|missing| format!("[{step}].{missing}"))
                }
                None => Err(format!("[{step}]")),
            }
        }
        Value::Table(entries) => {
            let known = entries
                .keys()
                .find(|key| key.eq_ignore_ascii_case(step))
                .cloned();
            let key = known.unwrap_or_else(|| step.to_ascii_lowercase());
            let absent = Node {
                origin: node.origin.clone(),
                value: Value::Table(BTreeMap::new()),
            };
            let entry = entries.entry(key.clone()).or_insert(absent);
            set_at(entry, rest, node).map_err(|missing| {
                let dot = if missing.starts_with('[') { "" } else { "." };
                format!("{key}{dot}{missing}")
            })
        }
        // A plain value where the variable needs a table. The table replaces it, so that the mismatch is reported.
        _ => {
            parent.value = Value::Table(BTreeMap::new());
            parent.origin = node.origin.clone();
            set_at(parent, steps, node)
        }
    }
}
