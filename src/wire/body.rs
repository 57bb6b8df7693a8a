//! Parses a request body. The error names the field that is wrong and why.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};

use super::shape::{Excess, MAX_DEPTH, MAX_VALUES, excess};
use crate::wire::error::GatewayError;

/// Writes the error for the field at a path, with the reason.
type FieldError = fn(&str, &str) -> GatewayError;

/// Parses a body of OpenAI's APIs, whose errors name a field like `tools[1].type`.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, GatewayError> {
    parse_with(body, |path, reason| {
        GatewayError::invalid(path, format!("`{path}` is not right: {reason}."))
    })
}

/// Parses a body of the Messages API, whose errors begin with the path in dots: `tools.1.type: …`.
pub(crate) fn parse_dotted<T: DeserializeOwned>(body: &[u8]) -> Result<T, GatewayError> {
    let parsed = parse_with(body, |path, reason| {
        let path = path.replace('[', ".").replace(']', "");
        GatewayError::invalid(path, format!("{reason}."))
    });
    parsed.map_err(GatewayError::beginning_with_path)
}

fn parse_with<T: DeserializeOwned>(
    body: &[u8],
    field_error: FieldError,
) -> Result<T, GatewayError> {
    if let Some(excess) = excess(body) {
        return Err(too_much(&excess));
    }
    // Checks the whole body, including values that the parser skips.
    let body = std::str::from_utf8(body).map_err(not_json)?;
    serde_json::from_str(body).map_err(|_| explain::<T>(body, field_error))
}

/// The error for a body that is refused before it is parsed.
fn too_much(excess: &Excess<'_>) -> GatewayError {
    let (message, param) = match excess {
        Excess::Depth => (
            format!("The body nests more than {MAX_DEPTH} levels deep."),
            None,
        ),
        Excess::Values { field } => {
            let most = format!(
                "a body may have at most {MAX_VALUES} JSON values, counting objects, arrays and their entries"
            );
            let message = match field {
                Some(field) => format!("`{field}` has too many entries: {most}."),
                None => format!("The body has too many entries: {most}."),
            };
            (message, field.map(str::to_owned))
        }
    };
    GatewayError::InvalidRequest { message, param }
}

/// Parses an invalid body again, this time tracking the path, to find the field at fault.
///
/// Tracking has a cost for each key, so valid requests are parsed without it. The number of keys is bounded by then.
fn explain<T: DeserializeOwned>(body: &str, field_error: FieldError) -> GatewayError {
    // First checks that it is JSON at all: where the typed parser expects a keyword or a variant, it reports any other
    // value as bad syntax.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(body) {
        return not_json(error);
    }
    let mut json = serde_json::Deserializer::from_str(body);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut json) else {
        return not_json("it cannot be read");
    };
    let path = error.path().to_string();
    let reason = error.into_inner().to_string();
    let reason = match reason.split(" at line ").next().unwrap_or_default() {
        "expected value" => "it has the wrong type".to_owned(),
        reason => in_json_terms(reason),
    };
    match path.as_str() {
        "." => GatewayError::InvalidRequest {
            message: format!("The body must be a JSON object: {reason}."),
            param: None,
        },
        path => field_error(path, &reason),
    }
}

/// Translates serde's reason from names of Rust types into those of JSON, which callers know.
pub(crate) fn in_json_terms(reason: &str) -> String {
    const TERMS: [(&str, &str); 12] = [
        ("type: map", "type: object"),
        ("type: sequence", "type: array"),
        ("type: unit value", "type: null"),
        ("type: floating point", "type: number"),
        ("type: integer", "type: number"),
        ("expected a sequence", "expected an array"),
        ("expected a map", "expected an object"),
        ("expected u64", "expected a whole number of at least 0"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected variant identifier", "expected a string"),
    ];
    // Names of Rust types: `struct Tool`, `struct Tool with 2 elements`, `enum Kind`.
    if let Some((before, _)) = reason.split_once("expected struct ") {
        return in_json_terms(before) + "expected an object";
    }
    if let Some((before, _)) = reason.split_once("expected enum ") {
        return in_json_terms(before) + "expected a string";
    }
    if reason.starts_with("data did not match any variant") {
        return "it has none of the forms that are accepted here".to_owned();
    }
    let mut translated = reason.to_owned();
    for (rust, json) in TERMS {
        translated = translated.replace(rust, json);
    }
    translated
}

fn not_json(reason: impl fmt::Display) -> GatewayError {
    GatewayError::InvalidRequest {
        message: format!("The body is not valid JSON: {reason}."),
        param: None,
    }
}
