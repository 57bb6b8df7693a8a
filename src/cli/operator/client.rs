//! Client of the operator API.

use std::time::Duration;

use axum::http::{Method, Request, header};
use http_body_util::Full;
use serde_json::Value;

use crate::cli::http_client::{Certificates, Peer};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends one request and returns the JSON of the response. If the API returns an error, its message is the error.
pub(crate) async fn call(
    url: &str,
    token: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, String> {
    let peer = Peer {
        url,
        option: "--operator-url",
        timeout: TIMEOUT,
        certificates: Certificates::Trusted,
    };
    let request = Request::builder()
        .method(method)
        .uri(peer.at(path))
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
        .map_err(|error| format!("{url} is not a valid URL: {error}"))?;
    let (status, body) = peer.send(request).await?;
    let response: Value = serde_json::from_slice(&body)
        .map_err(|_| format!("{url} does not respond like an operator API (status {status})"))?;
    if status.is_success() {
        return Ok(response);
    }
    let message = response.pointer("/error/message").and_then(Value::as_str);
    Err(message
        .unwrap_or("the request failed, and the response has no error message")
        .to_owned())
}
