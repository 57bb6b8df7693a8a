//! HTTP requests to the issuer, bounded in time and bytes. Redirects are not followed.

use std::time::Duration;

use axum::http::{Method, Request, StatusCode, header, request::Builder};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::OidcError;
use crate::{
    base::keys::Secret,
    net::connect::{self, chain},
};

const MAX_RESPONSE_BYTES: usize = 1 << 20;

pub(crate) struct HttpClient {
    http: connect::Client,
    timeout: Duration,
}

impl HttpClient {
    pub(crate) fn new(timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            http: connect::client(timeout)?,
            timeout,
        })
    }

    /// A request with the headers that all requests have.
    pub(crate) fn request(method: Method, url: &str) -> Builder {
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Request::builder()
            .method(method)
            .uri(url)
            .header(header::ACCEPT, "application/json")
            // Without compression there are no decompression bombs.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent)
    }

    /// Fetches a JSON document; `what` names it in error messages.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        what: &str,
        url: &str,
        bearer: Option<&Secret>,
    ) -> Result<T, OidcError> {
        let mut request = Self::request(Method::GET, url);
        if let Some(bearer) = bearer {
            let bearer = format!("Bearer {}", bearer.reveal());
            request = request.header(header::AUTHORIZATION, bearer);
        }
        match self.send(what, request, String::new()).await? {
            (StatusCode::OK, body) => read(what, &body),
            (status, _) => Err(unexpected(what, status)),
        }
    }

    /// Sends a request and returns status and body of the response; `what` names the resource in error messages.
    pub(crate) async fn send(
        &self,
        what: &str,
        request: Builder,
        body: String,
    ) -> Result<(StatusCode, Bytes), OidcError> {
        let failed = |why: &str| OidcError::Unavailable(format!("{what} cannot be used: {why}"));
        let request = request.body(Full::new(Bytes::from(body)));
        // Leaves out the error's text, which may repeat a secret.
        let request = request.map_err(|_| failed("the request is invalid"))?;
        let sending = async {
            let response = self.http.request(request).await;
            let response = response.map_err(|error| failed(&chain(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
            let body = body.await.map_err(|error| failed(&chain(&*error)))?;
            Ok((status, body.to_bytes()))
        };
        let sent = timeout(self.timeout, sending).await;
        sent.unwrap_or_else(|_| Err(failed("the request timed out")))
    }
}

pub(crate) fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, OidcError> {
    // Leaves out the error's text, which may contain a part of a token.
    let invalid = |_| OidcError::Unavailable(format!("{what} cannot be used: invalid JSON"));
    serde_json::from_slice(body).map_err(invalid)
}

pub(crate) fn unexpected(what: &str, status: StatusCode) -> OidcError {
    let status = status.as_u16();
    OidcError::Unavailable(format!("{what} cannot be used: status {status}"))
}

/// The error code of a refusal (RFC 6749), e.g. `invalid_grant`.
pub(crate) fn error_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let refusal = serde_json::from_slice::<Refusal>(body).ok()?;
    Some(refusal.error).filter(|code| is_error_code(code))
}

/// Whether the text has the form of an error code and can be logged.
pub(crate) fn is_error_code(code: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..=40).contains(&code.len()) && code.bytes().all(plain)
}
