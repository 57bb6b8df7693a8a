//! Fragments → one document.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

const VERSION: &str = "3.1.0";

/// In the head: responses that every operation below a path has unless it describes them itself, by the path's beginning.
/// The longest one that fits applies.
const COMMON_RESPONSES: &str = "responses_below";

/// Merges fragments, given as file names and their text, into one document. The first is the head. Shared components that
/// nothing refers to are left out.
///
/// Fails if a file is malformed or has something that another one has, or if a reference leads nowhere.
pub fn assemble<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Value, String> {
    let mut document = Map::from_iter([("openapi".to_owned(), VERSION.into())]);
    let (mut paths, mut components) = (Map::new(), Map::new());
    for (place, (name, text)) in files.into_iter().enumerate() {
        let file: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        for (key, value) in file {
            match key.as_str() {
                "paths" => merge(name, &mut paths, value)?,
                "components" => {
                    for (kind, value) in object(name, value)? {
                        let of_kind = components.entry(kind).or_insert_with(|| json!({}));
                        let of_kind = of_kind.as_object_mut().expect("it was made as an object");
                        merge(name, of_kind, value)?;
                    }
                }
                _ if place == 0 => {
                    document.insert(key, value);
                }
                other => return Err(format!("{name}: `{other}` belongs in the head")),
            }
        }
    }
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let common = document.shift_remove(COMMON_RESPONSES);
    if let Some(common) = common {
        add_common_responses(&mut paths, &object("the head", common)?);
    }
    document.insert("paths".to_owned(), paths.into());
    let components = referenced(&Value::from(document.clone()), components)?;
    document.insert("components".to_owned(), components.into());
    Ok(document.into())
}

fn object(name: &str, value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(object) => Ok(object),
        other => Err(format!("{name}: {other} is not an object")),
    }
}

/// Adds the entries of a file, none of which may be there.
fn merge(name: &str, into: &mut Map<String, Value>, entries: Value) -> Result<(), String> {
    for (key, value) in object(name, entries)? {
        if into.contains_key(&key) {
            return Err(format!("{name}: `{key}` is in another file too"));
        }
        into.insert(key, value);
    }
    Ok(())
}

fn add_common_responses(paths: &mut Map<String, Value>, common: &Map<String, Value>) {
    for (path, item) in paths {
        let below = common.iter().filter(|(start, _)| path.starts_with(*start));
        let responses = below.max_by_key(|(start, _)| start.len());
        let Some((_, Value::Object(responses))) = responses else {
            continue;
        };
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let Some(Value::Object(own)) = operation.get_mut("responses") else {
                continue;
            };
            for (status, response) in responses {
                own.entry(status).or_insert_with(|| response.clone());
            }
            own.sort_keys();
        }
    }
}

/// The components that the document refers to, also by other components; security schemes are all kept.
fn referenced(
    document: &Value,
    components: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let whole = json!({ "components": components });
    let mut found = HashSet::new();
    let mut open = references(document);
    while let Some(reference) = open.pop() {
        let target = whole.pointer(&reference[1..]);
        target.ok_or_else(|| format!("there is no {reference}"))?;
        // A reference can lead to a part of a component.
        let component = reference.split('/').take(4).collect::<Vec<_>>().join("/");
        let whole_component = whole.pointer(&component[1..]).unwrap_or(&Value::Null);
        if found.insert(component) {
            open.extend(references(whole_component));
        }
    }
    let mut kept = components;
    for (kind, of_kind) in &mut kept {
        if let Value::Object(of_kind) = of_kind
            && kind != "securitySchemes"
        {
            of_kind.retain(|name, _| found.contains(&format!("#/components/{kind}/{name}")));
            of_kind.sort_keys();
        }
    }
    kept.retain(|_, of_kind| {
        of_kind
            .as_object()
            .is_some_and(|of_kind| !of_kind.is_empty())
    });
    Ok(kept)
}

/// Every reference to a component in the value.
fn references(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if text.starts_with("#/components/") => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Object(fields) => fields.values().flat_map(references).collect(),
        _ => Vec::new(),
    }
}
