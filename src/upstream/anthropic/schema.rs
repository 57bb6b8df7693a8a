//! Rewrites a schema for structured output to the part of JSON Schema that the API supports.
//!
//! Objects are closed, so a value that fits the rewritten schema also fits the caller's, except for bounds that the API
//! cannot enforce: these are moved to the description, where the model reads them.

use serde_json::{Map, Value};

use crate::wire::chat::Schema;

/// Keywords that the API does not accept. `minItems` is accepted up to 1.
const BOUNDS: [&str; 11] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// The rewritten schema; a schema that is not an object is returned unchanged.
pub(crate) fn supported(schema: &Schema) -> Schema {
    let Ok(mut root) = serde_json::from_str::<Map<String, Value>>(schema.as_json()) else {
        return schema.clone();
    };
    rewrite(&mut root);
    Schema::new(&root)
}

fn rewrite(schema: &mut Map<String, Value>) {
    close(schema);
    describe_bounds(schema);
    // Descends only where schemas can be: a property may be called `minimum`.
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.values_mut().for_each(rewrite_value);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(several)) => {
                several.iter_mut().for_each(rewrite_value);
            }
            ("items" | "additionalProperties", value) => rewrite_value(value),
            _ => {}
        }
    }
}

fn rewrite_value(value: &mut Value) {
    if let Value::Object(schema) = value {
        rewrite(schema);
    }
}

/// Closes an object, as the API requires. A map (`additionalProperties` with a schema) is not changed: closed, it could
/// hold nothing, and the API's error message explains the problem.
fn close(schema: &mut Map<String, Value>) {
    let is_object = match schema.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => schema.contains_key("properties"),
    };
    let is_map = matches!(schema.get("additionalProperties"), Some(Value::Object(_)));
    if is_object && !is_map {
        schema.insert("additionalProperties".into(), false.into());
    }
}

/// Moves bounds that the API does not enforce into the description.
fn describe_bounds(schema: &mut Map<String, Value>) {
    let mut described = Vec::new();
    schema.retain(|keyword, value| {
        let many = keyword == "minItems" && value.as_u64().is_none_or(|least| least > 1);
        let is_bound = many || BOUNDS.contains(&keyword.as_str());
        if is_bound {
            described.push(format!("{keyword}: {value}"));
        }
        !is_bound
    });
    if described.is_empty() {
        return;
    }
    let bounds = described.join(", ");
    let description = match schema.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description} ({bounds})"),
        None => bounds,
    };
    schema.insert("description".into(), description.into());
}
