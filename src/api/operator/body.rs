//! Extractor of JSON bodies. The error for an invalid body names the field.

use axum::extract::{FromRequest, Request};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use super::error::OperatorError;
use crate::{api::read_body, ledger::Edit, wire::in_json_terms};

const MAX_BYTES: usize = 64 << 10;

pub(crate) struct JsonBody<T>(pub T);

/// Reads a field that is present: a value sets it, `null` clears it. A field that is absent has its default, which keeps
/// it.
pub(crate) fn set_or_clear<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Edit<T>, D::Error> {
    let value = Option::deserialize(deserializer)?;
    Ok(value.map_or(Edit::Clear, Edit::Set))
}

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = OperatorError;

    async fn from_request(request: Request, _: &S) -> Result<Self, Self::Rejection> {
        let body = read_body(request.into_body(), MAX_BYTES)
            .await
            .map_err(OperatorError::Body)?;
        let body = if body.trim_ascii().is_empty() {
            &b"{}"[..]
        } else {
            &body
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let reason = error.inner().to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            let reason = in_json_terms(reason);
            let param = (path != ".").then_some(path);
            let message = match &param {
                Some(param) => format!("`{param}` is not right: {reason}."),
                None => format!("The body is not right: {reason}."),
            };
            OperatorError::Invalid { message, param }
        })?;
        json.end().map_err(|_| OperatorError::Invalid {
            message: "The body has more data after its JSON object.".into(),
            param: None,
        })?;
        Ok(Self(read))
    }
}
