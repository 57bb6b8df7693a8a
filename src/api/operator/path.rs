//! Extractor of path parameters.

use axum::{
    extract::{FromRequestParts, Path as AnyPath},
    http::request::Parts,
};

use serde::de::DeserializeOwned;

use super::error::OperatorError;

/// Like axum's own, but a parameter that cannot be read gets the error envelope of this API.
pub(crate) struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = OperatorError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        match AnyPath::from_request_parts(parts, state).await {
            Ok(AnyPath(id)) => Ok(Self(id)),
            Err(_) => Err(OperatorError::RouteNotFound {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
            }),
        }
    }
}
