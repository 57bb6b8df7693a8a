//! Generates a small, deterministic value that satisfies a JSON Schema.
//!
//! Supported are types, `enum`, `const`, references, combinations, bounds and formats, which tools and structured
//! outputs use. A `pattern` is ignored.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

mod scalar;

/// Beyond this depth only required fields and items are generated, so that recursive schemas end.
const OPTIONAL_DEPTH: usize = 4;
const MAX_DEPTH: usize = 24;
/// Limit of values in one example: a schema can require more than fits in memory.
const MAX_VALUES: usize = 10_000;

/// A value that satisfies the schema.
pub(crate) fn value_for(schema: &str) -> Value {
    let root: Value = serde_json::from_str(schema).unwrap_or_default();
    let mut builder = Builder {
        root: &root,
        values_left: MAX_VALUES,
    };
    builder.example(&root, 0)
}

/// Like [`value_for`], but always an object: empty if the schema is for something else.
pub(crate) fn object_for(schema: &str) -> Value {
    match value_for(schema) {
        object @ Value::Object(_) => object,
        _ => Value::Object(Map::new()),
    }
}

struct Builder<'a> {
    root: &'a Value,
    /// How many more values may be generated.
    values_left: usize,
}

impl Builder<'_> {
    fn example(&mut self, schema: &Value, depth: usize) -> Value {
        if depth > MAX_DEPTH || self.values_left == 0 {
            return Value::Null;
        }
        self.values_left -= 1;
        let schema = &*self.combined(schema, depth);
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(value) = list(schema, "enum").and_then(<[_]>::first) {
            return value.clone();
        }
        match kind(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => scalar::integer(schema),
            "number" => scalar::number(schema),
            "boolean" => json!(true),
            "null" => Value::Null,
            _ => scalar::text(schema),
        }
    }

    /// The schema merged with its reference, every part of `allOf` and one option of `anyOf` or `oneOf`.
    fn combined<'s>(&mut self, schema: &'s Value, depth: usize) -> Cow<'s, Value> {
        let mut parts: Vec<Value> = Vec::new();
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#');
            parts.extend(
                pointer
                    .and_then(|pointer| self.root.pointer(pointer))
                    .cloned(),
            );
        }
        parts.extend(list(schema, "allOf").into_iter().flatten().cloned());
        for either in ["anyOf", "oneOf"] {
            let options = list(schema, either).unwrap_or_default();
            // At depth prefers `null`, by which recursive schemas end.
            let null = options.iter().find(|option| kind(option) == "null");
            let chosen = null.filter(|_| depth > OPTIONAL_DEPTH);
            parts.extend(chosen.or(options.first()).cloned());
        }
        if parts.is_empty() {
            return Cow::Borrowed(schema);
        }
        let mut merged = schema.as_object().cloned().unwrap_or_default();
        for key in ["$ref", "allOf", "anyOf", "oneOf"] {
            merged.remove(key);
        }
        for part in parts {
            // A part may be a combination too, and may contain itself, so depth and number are limited.
            if depth < MAX_DEPTH && self.values_left > 0 {
                self.values_left -= 1;
                merge(&mut merged, &self.combined(&part, depth + 1));
            }
        }
        Cow::Owned(Value::Object(merged))
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required: Vec<_> = list(schema, "required").unwrap_or_default().to_vec();
        let required: Vec<_> = required.iter().filter_map(Value::as_str).collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut fields = Map::new();
        for (name, schema) in properties.into_iter().flatten() {
            if depth <= OPTIONAL_DEPTH || required.contains(&name.as_str()) {
                fields.insert(name.clone(), self.example(schema, depth + 1));
            }
        }
        let text = json!({ "type": "string" });
        let others = schema.get("additionalProperties");
        let others = others.filter(|others| others.is_object()).unwrap_or(&text);
        for name in required {
            if !fields.contains_key(name) {
                fields.insert(name.to_owned(), self.example(others, depth + 1));
            }
        }
        Value::Object(fields)
    }

    fn array(&mut self, schema: &Value, depth: usize) -> Value {
        let size = |key: &str| schema.get(key).and_then(Value::as_u64);
        let least = size("minItems").unwrap_or(0);
        let length = if depth <= OPTIONAL_DEPTH {
            least.max(1)
        } else {
            least
        };
        let length = length.min(size("maxItems").unwrap_or(u64::MAX));
        let text = json!({ "type": "string" });
        let items = schema
            .get("items")
            .filter(|items| items.is_object())
            .unwrap_or(&text);
        let first = list(schema, "prefixItems").unwrap_or_default();
        let unique = schema.get("uniqueItems") == Some(&json!(true));
        let mut values = Vec::new();
        for at in 0..usize::try_from(length).unwrap_or(usize::MAX) {
            if self.values_left == 0 {
                break;
            }
            let value = self.example(first.get(at).unwrap_or(items), depth + 1);
            values.push(if unique {
                scalar::nth_variant(items, value, at)
            } else {
                value
            });
        }
        Value::Array(values)
    }
}

/// The schema's type; without `type`, a guess by its keywords.
fn kind(schema: &Value) -> &str {
    let known = ["properties", "required", "additionalProperties"];
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or("string"),
        _ if schema.get("items").is_some() || schema.get("prefixItems").is_some() => "array",
        _ if known.iter().any(|key| schema.get(key).is_some()) => "object",
        _ if schema.as_object().is_some_and(Map::is_empty) => "object",
        _ if ["minimum", "maximum", "multipleOf"]
            .iter()
            .any(|key| schema.get(key).is_some()) =>
        {
            "number"
        }
        _ => "string",
    }
}

/// Merges `part` into `schema`: `properties` and `required` are united; of other keywords, `schema`'s own win.
fn merge(schema: &mut Map<String, Value>, part: &Value) {
    for (key, value) in part.as_object().into_iter().flatten() {
        match (schema.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                known.extend(more.clone());
            }
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                known.extend(more.iter().cloned());
            }
            (Some(_), _) => {}
            (None, value) => {
                schema.insert(key.clone(), value.clone());
            }
        }
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> Option<&'a [Value]> {
    schema.get(key)?.as_array().map(Vec::as_slice)
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
            (
                json!({"allOf":[{"properties":{"a":{"const":1}}}],"properties":{"b":{"const":2}}}),
                json!({"b":2,"a":1}),
            ),
            (json!({"allOf":[{"type":"string"}]}), json!("example")),
            (
                json!({"properties":{"a":{"const":1}},"anyOf":[{"required":["b"]},{"required":["c"]}]}),
                json!({"a":1,"b":"example"}),
            ),
            (
                json!({"required":["k"],"additionalProperties":{"type":"integer"}}),
                json!({"k":1}),
            ),
            (
                json!({"prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":2}),
                json!([1, "example"]),
            ),
            (
                json!({"items":{"type":"integer"},"minItems":3,"uniqueItems":true}),
                json!([1, 2, 3]),
            ),
            (
                json!({"items":{"enum":["x","y"]},"minItems":2,"uniqueItems":true}),
                json!(["x", "y"]),
            ),
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
        assert!(value_for(r##"{"$ref":"#"}"##).is_object());
        let twice = r##"{"allOf":[{"$ref":"#"},{"$ref":"#"}],"type":"object"}"##;
        assert!(value_for(twice).is_object());
    }

    #[test]
    fn a_schema_that_requires_too_many_values_ends() {
        let huge = (0..8).fold(
            json!({"type":"string"}),
            |items, _| json!({"type":"array","items":items,"minItems":1_000_000}),
        );
        let example = value_for(&huge.to_string()).to_string();
        assert!(example.len() < 1 << 20);
    }
}
