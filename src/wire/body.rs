//! A request's body: JSON of the right shape, or the field that is wrong and why.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};

use super::depth::{MAX_DEPTH, too_deep};
use crate::error::GatewayError;

pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, GatewayError> {
    if too_deep(body) {
        let message = format!("The body nests more than {MAX_DEPTH} levels deep.");
        return Err(GatewayError::InvalidRequest {
            message,
            param: None,
        });
    }
    // All of it, also what is passed over unread.
    let body = std::str::from_utf8(body).map_err(not_json)?;
    serde_json::from_str(body).map_err(|_| explain::<T>(body))
}

/// Reads the body once more, this time keeping track of where it goes wrong.
///
/// Tracking costs something for every key, so requests that are right do not pay for it.
fn explain<T: DeserializeOwned>(body: &str) -> GatewayError {
    // First whether it is JSON at all: where a word or a variant is expected, the typed reader
    // takes any other value for bad syntax.
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
        "expected value" => "it has the wrong type",
        reason => reason,
    };
    match path.as_str() {
        "." => GatewayError::InvalidRequest {
            message: format!("The body must be a JSON object: {reason}."),
            param: None,
        },
        path => GatewayError::invalid(path, format!("`{path}` is not right: {reason}.")),
    }
}

fn not_json(reason: impl fmt::Display) -> GatewayError {
    GatewayError::InvalidRequest {
        message: format!("The body is not valid JSON: {reason}."),
        param: None,
    }
}
