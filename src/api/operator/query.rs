//! Extractor of query strings, and the time range that several queries have.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::{Deserialize, de::DeserializeOwned};

use super::error::OperatorError;
use crate::base::timestamp;

/// The query as `T`; a query that cannot be read gets the error envelope of this API.
pub(crate) struct ReadQuery<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for ReadQuery<T> {
    type Rejection = OperatorError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(_) => Err(OperatorError::Invalid {
                message: "The query cannot be read.".into(),
                param: None,
            }),
        }
    }
}

/// The half-open range of times `[from, to)`.
#[derive(Deserialize)]
pub(crate) struct TimeRange {
    pub from: Option<String>,
    pub to: Option<String>,
}

impl TimeRange {
    /// Returns both ends in Unix seconds. An end that is not given is unlimited.
    pub(crate) fn read(&self) -> Result<(i64, i64), OperatorError> {
        let from = time("from", self.from.as_deref(), 0)?;
        Ok((from, time("to", self.to.as_deref(), i64::MAX)?))
    }
}

fn time(name: &str, text: Option<&str>, absent: i64) -> Result<i64, OperatorError> {
    let Some(text) = text else { return Ok(absent) };
    // A query decodes the plus sign of a time zone to a space.
    timestamp::read(&text.replace(' ', "+")).ok_or_else(|| {
        let message = format!("`{name}` must be an ISO 8601 time, e.g. 2027-01-31T00:00:00Z.");
        OperatorError::invalid(name, message)
    })
}
