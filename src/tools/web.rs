//! HTTP client for the data sources of the configuration, for JSON only.
//!
//! Redirects are not followed and responses are read up to a size limit. A [`Fault`] never names the host or URL.

use std::time::Duration;

use axum::http::{Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::net::connect;

const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Most concurrent requests; further ones wait, within the timeout of their tool call.
const MAX_CONCURRENT_REQUESTS: usize = 32;

pub(crate) struct Web {
    http: connect::Client,
    permits: Semaphore,
}

/// Why a request failed. The text is a predicate: the caller puts the name of the source before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("cannot be reached")]
    Unreachable,
    #[error("cut its response short")]
    Interrupted,
    #[error("{}", describe(*.0))]
    Status(StatusCode),
    #[error("sent more than 1 MiB")]
    TooLarge,
    #[error("sent an unexpected response")]
    Unexpected,
}

fn describe(status: StatusCode) -> String {
    let number = status.as_u16();
    match number {
        300..=399 => format!("redirects, which is not followed (status {number})"),
        401 | 403 => format!("refuses our key (status {number})"),
        429 => "received too many requests (status 429); try again later".into(),
        _ => format!("fails with status {number}"),
    }
}

impl Web {
    pub(crate) fn new(timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            http: connect::client(timeout)?,
            permits: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        })
    }

    /// A client with the same connection pool and a separate concurrency limit.
    pub(crate) fn with_own_limit(&self) -> Self {
        Self {
            http: self.http.clone(),
            permits: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        }
    }

    /// Starts a request with the common headers; the caller may add others.
    pub(crate) fn request(method: Method, uri: Uri) -> axum::http::request::Builder {
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            // Without compression there is no decompression bomb.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent)
    }

    /// Sends a request and parses the response as JSON.
    pub(crate) async fn fetch_json<T: DeserializeOwned>(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<T, Fault> {
        let _permit = self
            .permits
            .acquire()
            .await
            .map_err(|_| Fault::Unreachable)?;
        let response = self.http.request(request).await.map_err(|error| {
            if error.is_connect() {
                Fault::Unreachable
            } else {
                Fault::Interrupted
            }
        })?;
        if response.status() != StatusCode::OK {
            return Err(Fault::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
        let body = body.collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Fault::TooLarge
            } else {
                Fault::Interrupted
            }
        })?;
        serde_json::from_slice(&body.to_bytes()).map_err(|_| Fault::Unexpected)
    }
}
