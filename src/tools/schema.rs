//! JSON Schema of a tool's arguments, limited to the keywords that every provider accepts.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// Keywords that are useful to a model. Some provider refuses each of the others (`$schema`, `title`, `format`,
/// `default`).
const KEPT: [&str; 6] = [
    "type",
    "description",
    "properties",
    "required",
    "items",
    "enum",
];

/// The schema of a struct, without references.
pub(crate) fn of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let Value::Object(mut schema) = plain(schema.into()) else {
        unreachable!("the schema of a struct is an object");
    };
    // The tool has its own description.
    schema.remove("description");
    schema
}

fn plain(schema: Value) -> Value {
    let Value::Object(schema) = schema else {
        return schema;
    };
    let kept = schema.into_iter().filter_map(|(key, value)| {
        let value = match (key.as_str(), value) {
            // `["string", "null"]` of an optional field: its absence from `required` is enough.
            ("type", Value::Array(types)) => types.into_iter().find(|name| name != "null")?,
            ("description", Value::String(text)) => {
                Value::String(text.split_whitespace().collect::<Vec<_>>().join(" "))
            }
            ("properties", Value::Object(fields)) => {
                let fields = fields.into_iter().map(|(name, field)| (name, plain(field)));
                Value::Object(fields.collect())
            }
            ("items", items) => plain(items),
            (key, value) if KEPT.contains(&key) => value,
            _ => return None,
        };
        Some((key, value))
    });
    Value::Object(kept.collect())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// This text must not be in the schema.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Arguments {
        /// Several of
        /// them
        symbols: Vec<String>,
        days: Option<u32>,
        inner: Inner,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Inner {
        flag: bool,
    }

    #[test]
    fn a_schema_is_plain() {
        let schema = serde_json::to_string(&of::<Arguments>()).unwrap();
        insta::assert_snapshot!(schema, @r#"{"type":"object","properties":{"symbols":{"type":"array","items":{"type":"string"},"description":"Several of them"},"days":{"type":"integer"},"inner":{"type":"object","properties":{"flag":{"type":"boolean"}},"required":["flag"]}},"required":["symbols","inner"]}"#);
    }
}
