//! The arguments of a tool as JSON Schema, in the part of it that every provider takes.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// Keywords that say something to a model. The rest (`$schema`, `title`, `format`, `default`) is
/// refused by one provider or another.
const KEPT: [&str; 6] = [
    "type",
    "description",
    "properties",
    "required",
    "items",
    "enum",
];

/// An object schema without references.
pub fn of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let Value::Object(mut schema) = plain(schema.into()) else {
        unreachable!("the schema of a struct is an object");
    };
    // A tool has a description of its own.
    schema.remove("description");
    schema
}

fn plain(schema: Value) -> Value {
    let Value::Object(schema) = schema else {
        return schema;
    };
    let kept = schema.into_iter().filter_map(|(key, value)| {
        let value = match (key.as_str(), value) {
            // `["string", "null"]`: what is optional is not required, and that says it.
            ("type", Value::Array(types)) => types.into_iter().find(|word| word != "null")?,
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

    /// Not shown.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Arguments {
        /// Several of
        /// them
        symbols: Vec<String>,
        days: Option<u32>,
        inner: Inner,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        flag: bool,
    }

    #[test]
    fn a_schema_is_plain() {
        let schema = serde_json::to_string(&of::<Arguments>()).unwrap();
        insta::assert_snapshot!(schema, @r#"{"type":"object","properties":{"symbols":{"type":"array","items":{"type":"string"},"description":"Several of them"},"days":{"type":"integer"},"inner":{"type":"object","properties":{"flag":{"type":"boolean"}},"required":["flag"]}},"required":["symbols","inner"]}"#);
    }
}
