//! A schema for structured output, held to the part of JSON Schema that the API takes.
//!
//! Whatever fits the schema that goes out also fits the caller's: objects are closed where they
//! were open, and bounds that cannot be enforced are told to the model in words.

use serde_json::{Map, Value};

use crate::wire::chat::Schema;

/// The bounds that the API refuses to enforce.
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

pub fn acceptable(schema: &Schema) -> Schema {
    let Ok(mut root) = serde_json::from_str::<Map<String, Value>>(schema.as_json()) else {
        return schema.clone();
    };
    rewrite(&mut root);
    Schema::new(&root)
}

fn rewrite(schema: &mut Map<String, Value>) {
    close(schema);
    tell_bounds(schema);
    // By where schemas stand: a property may well be called `minimum`.
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

/// The API wants every object closed. One that is a map by its nature is left as it is: closed,
/// it could hold nothing, and the API's refusal says what is wrong.
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

fn tell_bounds(schema: &mut Map<String, Value>) {
    let mut told = Vec::new();
    schema.retain(|keyword, value| {
        let many = keyword == "minItems" && value.as_u64().is_none_or(|least| least > 1);
        let is_bound = many || BOUNDS.contains(&keyword.as_str());
        if is_bound {
            told.push(format!("{keyword}: {value}"));
        }
        !is_bound
    });
    if told.is_empty() {
        return;
    }
    let bounds = told.join(", ");
    let description = match schema.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description} ({bounds})"),
        None => bounds,
    };
    schema.insert("description".into(), description.into());
}
