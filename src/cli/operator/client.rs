//! Minimal HTTP client for the operator API.

use std::{sync::Arc, time::Duration};

use axum::http::{Method, Request, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy, rt::TokioExecutor};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends one request and returns the JSON of the response. If the API returns an error, its message is the error.
pub(crate) async fn call(
    url: &str,
    token: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(provider)
        .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
        .https_or_http()
        .enable_http1()
        .build();
    let client: legacy::Client<_, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", url.trim_end_matches('/')))
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
        .map_err(|error| format!("{url} is not a valid URL: {error}"))?;
    let exchange = tokio::time::timeout(TIMEOUT, async {
        let response = client.request(request).await.map_err(|_| {
            format!("no gateway answers at {url}. Start one, or set --operator-url.")
        })?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body
            .map_err(|error| format!("the response was cut off: {error}"))?
            .to_bytes();
        Ok::<_, String>((status, body))
    });
    let (status, body) = exchange
        .await
        .map_err(|_| format!("{url} did not answer within {TIMEOUT:?}"))??;
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
