//! `TOLLGATE__SECTION__KEY` in the environment replaces `section.key` in the file.

use std::collections::BTreeMap;

use crate::checked_toml::{Node, Origin, Value};

const PREFIX: &str = "TOLLGATE__";

/// Puts every override in its place in `document`; what does not belong there is then reported
/// like any other unknown key, under the variable's name.
pub fn override_values(document: &mut Node, environment: &BTreeMap<String, String>) {
    for (name, value) in environment {
        let Some(path) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let node = Node {
            origin: Origin::Variable(name.clone()),
            value: Value::Text(value.clone()),
        };
        let steps: Vec<&str> = path.split("__").collect();
        place(document, &steps, node);
    }
}

fn place(parent: &mut Node, steps: &[&str], node: Node) {
    let [step, rest @ ..] = steps else {
        *parent = node;
        return;
    };
    match &mut parent.value {
        Value::List(items) => {
            // A list is addressed by position; a position that is not there has no place.
            if let Some(item) = step.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                place(item, rest, node);
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
            place(entries.entry(key).or_insert(absent), rest, node);
        }
        // A plain value where the variable expects a table: replaced, so that it is reported.
        _ => {
            parent.value = Value::Table(BTreeMap::new());
            place(parent, steps, node);
        }
    }
}
