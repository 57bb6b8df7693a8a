//! A value that satisfies a JSON Schema: small, plain, always the same.

use serde_json::{Map, Value, json};

/// Past this depth only what a schema insists on is filled in, so that recursive schemas end.
const GENEROUS_DEPTH: usize = 4;
const MAX_DEPTH: usize = 24;

pub fn value_for(schema: &str) -> Value {
    let root: Value = serde_json::from_str(schema).unwrap_or_default();
    example(&root, &root, 0)
}

/// Like [`value_for`], for a place where only an object will do.
pub fn object_for(schema: &str) -> Value {
    match value_for(schema) {
        object @ Value::Object(_) => object,
        _ => Value::Object(Map::new()),
    }
}

fn example(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let resolved = target
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        return resolved.map_or(Value::Null, |target| example(target, root, depth + 1));
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(value) = first(schema, "enum") {
        return value.clone();
    }
    for either in ["anyOf", "oneOf"] {
        if let Some(options) = schema.get(either).and_then(Value::as_array) {
            // The option that ends soonest: recursive schemas offer `null` for that.
            let null = options
                .iter()
                .find(|option| option.get("type") == Some(&json!("null")));
            let chosen = null.filter(|_| depth > GENEROUS_DEPTH).or(options.first());
            return chosen.map_or(Value::Null, |option| example(option, root, depth + 1));
        }
    }
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        let mut merged = Map::new();
        for part in all {
            if let Value::Object(fields) = example(part, root, depth + 1) {
                merged.extend(fields);
            }
        }
        return Value::Object(merged);
    }
    match kind(schema) {
        "object" => object(schema, root, depth),
        "array" => array(schema, root, depth),
        "integer" | "number" => number(schema),
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => text(schema),
    }
}

fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or("string"),
        _ if schema.get("items").is_some() => "array",
        _ if schema.get("properties").is_some() => "object",
        _ if schema.as_object().is_some_and(Map::is_empty) => "object",
        _ => "string",
    }
}

fn object(schema: &Value, root: &Value, depth: usize) -> Value {
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<_> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let filled = properties
        .into_iter()
        .flatten()
        .filter(|(name, _)| depth <= GENEROUS_DEPTH || required.contains(&name.as_str()));
    let mut fields: Map<_, _> = filled
        .map(|(name, schema)| (name.clone(), example(schema, root, depth + 1)))
        .collect();
    for name in required {
        fields.entry(name).or_insert_with(|| json!("example"));
    }
    Value::Object(fields)
}

fn array(schema: &Value, root: &Value, depth: usize) -> Value {
    let least = schema
        .get("minItems")
        .and_then(Value::as_u64)
        .unwrap_or(0)
        .min(64);
    let wanted = if depth <= GENEROUS_DEPTH {
        least.max(1)
    } else {
        least
    };
    let most = schema
        .get("maxItems")
        .and_then(Value::as_u64)
        .unwrap_or(u64::MAX);
    let any = json!({ "type": "string" });
    let items = schema.get("items").unwrap_or(&any);
    (0..wanted.min(most))
        .map(|_| example(items, root, depth + 1))
        .collect()
}

fn number(schema: &Value) -> Value {
    let bound = |key: &str| schema.get(key).cloned();
    if let Some(least) = bound("minimum") {
        return least;
    }
    if let Some(above) = bound("exclusiveMinimum").as_ref().and_then(Value::as_i64) {
        return json!(above + 1);
    }
    if let Some(step) = bound("multipleOf") {
        return step;
    }
    match bound("maximum").as_ref().and_then(Value::as_i64) {
        Some(most) if most < 1 => json!(most),
        _ => json!(1),
    }
}

fn text(schema: &Value) -> Value {
    let known = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-01T00:00:00Z",
        Some("date") => "2026-01-01",
        Some("time") => "00:00:00Z",
        Some("email") => "user@example.com",
        Some("uri" | "url") => "https://example.com",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("ipv4") => "127.0.0.1",
        _ => "example",
    };
    let length = |key: &str| {
        schema
            .get(key)
            .and_then(Value::as_u64)
            .and_then(|n| usize::try_from(n).ok())
    };
    let least = length("minLength").unwrap_or(0).min(4_096);
    let most = length("maxLength").unwrap_or(usize::MAX);
    let padded = format!("{known:x<least$}");
    json!(padded.chars().take(most).collect::<String>())
}

fn first<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key)?.as_array()?.first()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_satisfy_their_schemas() {
        for (schema, value) in [
            (
                json!({"type":"object","properties":{"a":{"type":"integer","minimum":3}}}),
                json!({"a":3}),
            ),
            (
                json!({"type":"array","items":{"enum":["x","y"]},"minItems":2}),
                json!(["x", "x"]),
            ),
            (
                json!({"$ref":"#/$defs/n","$defs":{"n":{"type":["string","null"]}}}),
                json!("example"),
            ),
            (
                json!({"anyOf":[{"type":"boolean"},{"type":"null"}]}),
                json!(true),
            ),
            (json!({"type":"string","minLength":9}), json!("examplexx")),
            (json!({}), json!({})),
        ] {
            assert_eq!(value_for(&schema.to_string()), value, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let tree = json!({
            "type": "object", "required": ["next"],
            "properties": {
                "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
                "rest": {"type": "array", "items": {"$ref": "#"}},
            },
        });
        assert!(value_for(&tree.to_string()).is_object());
    }
}
