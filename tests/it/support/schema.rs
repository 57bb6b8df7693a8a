//! A validator for the part of JSON Schema that the descriptions of the APIs use.
//!
//! Objects are closed: a field that no schema of the object names is a mismatch unless `additionalProperties` allows it,
//! so that a response with a field too many is found. A keyword that the validator does not know is one too.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Keywords that say nothing about which values are valid, and two that are not checked.
const NOTES: [&str; 9] = [
    "title",
    "description",
    "default",
    "deprecated",
    "example",
    "examples",
    "discriminator",
    "format",
    "pattern",
];

/// The fields of an object that its schemas name.
enum Named {
    All,
    Some(HashSet<String>),
}

impl Named {
    fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Some(own), Self::Some(other)) => own.extend(other),
            (_, Self::All) => *self = Self::All,
            (Self::All, _) => {}
        }
    }
}

/// What is wrong with the value, with the place of each mistake. `document` is what references lead into.
pub fn mismatches(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    validate(document, schema, value, "body", &mut found);
    found
}

fn validate(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let named = evaluate(document, schema, value, at, found);
    if let (Value::Object(fields), Named::Some(named)) = (value, named) {
        let unnamed = fields.iter().filter(|(name, _)| !named.contains(*name));
        found.extend(unnamed.map(|(name, value)| format!("{at}.{name} is not described: {value}")));
    }
}

/// Checks a value by one of its schemas; returns the fields that the schema names.
fn evaluate(
    document: &Value,
    schema: &Value,
    value: &Value,
    at: &str,
    found: &mut Vec<String>,
) -> Named {
    let mut named = Named::Some(HashSet::new());
    let Value::Object(schema) = schema else {
        if schema == &Value::Bool(false) {
            found.push(format!("{at}: no value is valid"));
        }
        return Named::All;
    };
    if schema.keys().all(|key| is_note(key)) {
        return Named::All; // any value
    }
    for (keyword, wanted) in schema {
        let mistake = match keyword.as_str() {
            "$ref" => {
                let target = resolve(document, wanted);
                named.add(evaluate(document, target, value, at, found));
                None
            }
            "allOf" => {
                for part in wanted.as_array().unwrap() {
                    named.add(evaluate(document, part, value, at, found));
                }
                None
            }
            "anyOf" | "oneOf" => {
                let parts = wanted.as_array().unwrap();
                named.add(choose(document, keyword, parts, value, at, found));
                None
            }
            "properties" | "additionalProperties" | "required" => None, // below
            "items" => {
                for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                    validate(document, wanted, item, &format!("{at}[{place}]"), found);
                }
                None
            }
            _ => check(keyword, wanted, value),
        };
        found.extend(mistake.map(|mistake| format!("{at} {mistake}: {value}")));
    }
    if let Value::Object(fields) = value {
        named.add(evaluate_fields(document, schema, fields, at, found));
    }
    named
}

fn evaluate_fields(
    document: &Value,
    schema: &Map<String, Value>,
    fields: &Map<String, Value>,
    at: &str,
    found: &mut Vec<String>,
) -> Named {
    let missing = schema.get("required").and_then(Value::as_array);
    let missing = missing.into_iter().flatten().filter_map(Value::as_str);
    let missing = missing.filter(|name| !fields.contains_key(*name));
    found.extend(missing.map(|name| format!("{at}.{name} is missing")));
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = schema.get("additionalProperties");
    let mut named = HashSet::new();
    for (name, value) in fields {
        let place = format!("{at}.{name}");
        if let Some(property) = properties.and_then(|properties| properties.get(name)) {
            named.insert(name.clone());
            validate(document, property, value, &place, found);
        } else if let Some(others) = others {
            named.insert(name.clone());
            if others == &Value::Bool(false) {
                found.push(format!("{place} is not described: {value}"));
            } else {
                validate(document, others, value, &place, found);
            }
        }
    }
    Named::Some(named)
}

/// Checks a value by alternatives. If none fits, the mismatches are those of the one that fits best.
fn choose(
    document: &Value,
    keyword: &str,
    parts: &[Value],
    value: &Value,
    at: &str,
    found: &mut Vec<String>,
) -> Named {
    let mut named = Named::Some(HashSet::new());
    let mut fitting = 0;
    let mut closest: Option<Vec<String>> = None;
    for part in parts {
        let mut mistakes = Vec::new();
        let by_part = evaluate(document, part, value, at, &mut mistakes);
        if mistakes.is_empty() {
            named.add(by_part);
            fitting += 1;
        } else if closest
            .as_ref()
            .is_none_or(|closest| weight(&mistakes) < weight(closest))
        {
            closest = Some(mistakes);
        }
    }
    if fitting == 0 {
        found.extend(closest.into_iter().flatten());
        return Named::All; // the mismatches above are enough
    }
    if keyword == "oneOf" && fitting > 1 {
        found.push(format!(
            "{at} fits {fitting} alternatives of oneOf: {value}"
        ));
    }
    named
}

/// How far a value is from an alternative: another constant means that another alternative is meant.
fn weight(mistakes: &[String]) -> usize {
    let weights = mistakes.iter().map(|mistake| {
        if mistake.contains(" must be of type") {
            10
        } else if mistake.contains(" must be ") && !mistake.contains(" must be at ") {
            100
        } else {
            1
        }
    });
    weights.sum()
}

fn is_note(keyword: &str) -> bool {
    NOTES.contains(&keyword) || keyword.starts_with("x-")
}

/// The mistake of a value by one keyword, if there is one.
fn check(keyword: &str, wanted: &Value, value: &Value) -> Option<String> {
    let number = value.as_f64().zip(wanted.as_f64());
    let length = match (keyword, value) {
        ("minLength" | "maxLength", Value::String(text)) => Some(text.chars().count()),
        ("minItems" | "maxItems", Value::Array(items)) => Some(items.len()),
        ("minProperties" | "maxProperties", Value::Object(fields)) => Some(fields.len()),
        _ => None,
    };
    let length = length.map(|length| length as u64).zip(wanted.as_u64());
    let (holds, is) = match keyword {
        "type" => (has_type(wanted, value), "be of type"),
        "const" => (wanted == value, "be"),
        "enum" => (wanted.as_array().unwrap().contains(value), "be one of"),
        "minimum" => (number.is_none_or(|(own, most)| own >= most), "be at least"),
        "maximum" => (number.is_none_or(|(own, most)| own <= most), "be at most"),
        "exclusiveMinimum" => (
            number.is_none_or(|(own, most)| own > most),
            "be at least above",
        ),
        "minLength" | "minItems" | "minProperties" => (
            length.is_none_or(|(own, least)| own >= least),
            "be at least as long as",
        ),
        "maxLength" | "maxItems" | "maxProperties" => (
            length.is_none_or(|(own, most)| own <= most),
            "be at most as long as",
        ),
        "uniqueItems" => (true, ""),
        note if is_note(note) => (true, ""),
        unknown => return Some(format!("has a schema with the keyword `{unknown}`")),
    };
    (!holds).then(|| format!("must {is} {wanted}"))
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("`{other}` is no type"),
    };
    match wanted {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    }
}

/// What a reference leads to.
pub fn resolve<'a>(document: &'a Value, reference: &Value) -> &'a Value {
    let reference = reference.as_str().unwrap();
    let target = document.pointer(reference.strip_prefix('#').unwrap());
    target.unwrap_or_else(|| panic!("there is no {reference}"))
}
