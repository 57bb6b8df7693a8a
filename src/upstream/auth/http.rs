//! Requests for tokens, bounded in time and bytes. Redirects are not followed.

use std::time::Duration;

use axum::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::timeout;

use super::token::TokenRequest;
use crate::net::connect::{self, chain};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a whole request.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: usize = 256 << 10;

pub(crate) struct TokenClient {
    http: connect::Client,
}

impl TokenClient {
    pub(crate) fn new() -> Result<Self, String> {
        let http = connect::client(CONNECT_TIMEOUT)?;
        Ok(Self { http })
    }

    /// The body of the response. The reason of a failure names the URL, and nothing else of what was sent.
    pub(crate) async fn send(&self, request: &TokenRequest) -> Result<Bytes, String> {
        let method = match &request.form {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        self.send_as(method, request).await
    }

    /// Like [`send`](Self::send), with another method than the usual one.
    pub(crate) async fn send_as(
        &self,
        method: Method,
        request: &TokenRequest,
    ) -> Result<Bytes, String> {
        let failed = |why: &str| format!("{}: {why}", request.url);
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        let mut built = Request::builder()
            .method(method)
            .uri(&request.url)
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent);
        if request.form.is_some() {
            built = built.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        for (name, value) in &request.headers {
            built = built.header(*name, value);
        }
        let form = request.form.as_deref().unwrap_or_default();
        let built = built.body(Full::new(Bytes::from(encoded(form))));
        // Leaves out the error's text, which may repeat a secret.
        let built = built.map_err(|_| failed("the request is invalid"))?;
        let sending = async {
            let response = self.http.request(built).await;
            let response = response.map_err(|error| failed(&chain(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
            let body = body.await.map_err(|error| failed(&chain(&*error)))?;
            match (status, body.to_bytes()) {
                (StatusCode::OK, body) => Ok(body),
                (status, body) => Err(failed(&refusal(status, &body))),
            }
        };
        let sent = timeout(TIMEOUT, sending).await;
        sent.unwrap_or_else(|_| Err(failed("the request timed out")))
    }
}

/// The status of a refusal with its error code (RFC 6749) and, from Entra ID, the number of its message. The rest of
/// the body could repeat what was sent.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: Option<String>,
        error_description: Option<String>,
    }
    let mut text = format!("status {}", status.as_u16());
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        return text;
    };
    let is_code = |code: &String| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        (1..=40).contains(&code.len()) && code.bytes().all(plain)
    };
    if let Some(code) = refusal.error.filter(is_code) {
        text = format!("{text}, {code}");
    }
    let description = refusal.error_description.unwrap_or_default();
    let number = description.strip_prefix("AADSTS").unwrap_or_default();
    let number: String = number
        .chars()
        .take_while(char::is_ascii_digit)
        .take(10)
        .collect();
    if !number.is_empty() {
        text = format!("{text}, AADSTS{number}");
    }
    text
}

/// A form as it is posted, and as the query of a URL.
pub(crate) fn encoded(form: &[(&str, String)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = form.iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_its_codes_and_nothing_else() {
        for (body, expected) in [
            (
                r#"{"error":"invalid_grant","error_description":"Invalid JWT: eyJhbGciOi"}"#,
                "status 400, invalid_grant",
            ),
            (
                r#"{"error":"invalid_client","error_description":"AADSTS7000215: no to secret"}"#,
                "status 400, invalid_client, AADSTS7000215",
            ),
            (r#"{"error":"My secret"}"#, "status 400"),
            (r#"{"error":{"code":400}}"#, "status 400"),
            ("secret", "status 400"),
        ] {
            let text = refusal(StatusCode::BAD_REQUEST, body.as_bytes());
            assert_eq!(text, expected, "{body}");
        }
    }
}
