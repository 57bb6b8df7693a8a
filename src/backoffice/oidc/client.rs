//! Asking the issuer: bounded in time and bytes, and no redirect is followed.

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

const MAX_ANSWER_BYTES: usize = 1 << 20;

pub struct Web {
    http: connect::Client,
    timeout: Duration,
}

impl Web {
    pub fn new(timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            http: connect::client(timeout)?,
            timeout,
        })
    }

    /// A request to be given more headers.
    pub fn request(method: Method, url: &str) -> Builder {
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        Request::builder()
            .method(method)
            .uri(url)
            .header(header::ACCEPT, "application/json")
            // No encoding to unpack, no bomb in it.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent)
    }

    /// `what` is asked for, in words.
    pub async fn get<T: DeserializeOwned>(
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
        match self.ask(what, request, String::new()).await? {
            (StatusCode::OK, body) => read(what, &body),
            (status, _) => Err(unexpected(what, status)),
        }
    }

    pub async fn ask(
        &self,
        what: &str,
        request: Builder,
        body: String,
    ) -> Result<(StatusCode, Bytes), OidcError> {
        let failed = |why: &str| OidcError::Unavailable(format!("{what} cannot be had: {why}"));
        let request = request.body(Full::new(Bytes::from(body)));
        // Its own words would repeat what could not be sent.
        let request = request.map_err(|_| failed("it cannot be asked for"))?;
        let asking = async {
            let response = self.http.request(request).await;
            let response = response.map_err(|error| failed(&chain(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
            let body = body.await.map_err(|error| failed(&chain(&*error)))?;
            Ok((status, body.to_bytes()))
        };
        let asked = timeout(self.timeout, asking).await;
        asked.unwrap_or_else(|_| Err(failed("nothing was answered in time")))
    }
}

pub fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, OidcError> {
    // Which word was wrong is not told: it may be a token.
    let wrong = |_| OidcError::Unavailable(format!("{what} cannot be read"));
    serde_json::from_slice(body).map_err(wrong)
}

pub fn unexpected(what: &str, status: StatusCode) -> OidcError {
    let status = status.as_u16();
    OidcError::Unavailable(format!("{what} cannot be had: status {status}"))
}

/// The word for a refusal, e.g. `invalid_grant`, if it is one.
pub fn error_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let refusal = serde_json::from_slice::<Refusal>(body).ok()?;
    Some(refusal.error).filter(|code| is_error_code(code))
}

/// A word that may stand in the log.
pub fn is_error_code(code: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..=40).contains(&code.len()) && code.bytes().all(plain)
}
