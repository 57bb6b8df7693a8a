//! `TOLLGATE__SECTION__KEY` in the environment replaces `section.key` in the file.

use std::collections::BTreeMap;

use crate::base::checked_toml::{Mistake, Node, Origin, Value};

const PREFIX: &str = "TOLLGATE__";

/// Puts every override in its place in `document`; what does not belong there is then reported
/// like any other unknown key, under the variable's name. Returns those that have no place at all.
pub fn override_values(
    document: &mut Node,
    environment: &BTreeMap<String, String>,
) -> Vec<Mistake> {
    let mut astray = Vec::new();
    for (name, value) in environment {
        let Some(path) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let node = Node {
            origin: Origin::Variable(name.clone()),
            value: Value::Text(value.clone()),
        };
        let steps: Vec<&str> = path.split("__").collect();
        if let Err(nowhere) = place(document, &steps, node) {
            astray.push(Mistake {
                origin: Origin::Variable(name.clone()),
                message: format!("`{nowhere}` is not in the file, so it cannot be replaced"),
            });
        }
    }
    astray
}

/// Replaces what the steps lead to, or says where they lead nowhere.
fn place(parent: &mut Node, steps: &[&str], node: Node) -> Result<(), String> {
    let [step, rest @ ..] = steps else {
        *parent = node;
        return Ok(());
    };
    match &mut parent.value {
        Value::List(items) => {
            // A list is addressed by position.
            match step.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                Some(item) => {
                    place(item, rest, node).map_err(|nowhere| format!("[{step}].{nowhere}"))
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
            place(entry, rest, node).map_err(|nowhere| {
                let dot = if nowhere.starts_with('[') { "" } else { "." };
                format!("{key}{dot}{nowhere}")
            })
        }
        // A plain value where the variable expects a table: replaced, so that it is reported.
        _ => {
            parent.value = Value::Table(BTreeMap::new());
            parent.origin = node.origin.clone();
            place(parent, steps, node)
        }
    }
}
