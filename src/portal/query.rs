//! What stands after the question mark of a page's address.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::error::PortalError;

/// The query as `T`, or a page that says that it cannot be read.
pub struct ReadQuery<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for ReadQuery<T> {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(_) => Err(PortalError::Invalid(
                "The address of this page cannot be read.".into(),
            )),
        }
    }
}

/// What was asked for; a field that was left empty asks for nothing.
pub fn given(field: Option<&String>) -> Option<&str> {
    field
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
}
