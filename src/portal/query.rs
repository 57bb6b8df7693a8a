//! Query strings of pages.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::{error::PortalError, layout};

/// The query string as `T`. If it cannot be parsed, the response is an error page.
pub(crate) struct ReadQuery<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for ReadQuery<T> {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(_) => Err(PortalError::Invalid("Invalid page address.".into())),
        }
    }
}

/// The trimmed value of a field; `None` if it is missing or blank.
pub(crate) fn non_empty(field: Option<&String>) -> Option<&str> {
    field
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
}

/// The URL of a page with these fields in its query string, as far as they have values.
pub(crate) fn url<'a>(
    page: &str,
    fields: impl Iterator<Item = (&'a str, Option<String>)>,
) -> String {
    let pairs: Vec<_> = fields
        .filter_map(|(name, value)| Some(format!("{name}={}", layout::encoded(&value?))))
        .collect();
    if pairs.is_empty() {
        return page.to_owned();
    }
    format!("{page}?{}", pairs.join("&"))
}
