//! Minimal HTTP client for commands: one request, one whole response.

use std::{sync::Arc, time::Duration};

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy, rt::TokioExecutor};

/// The gateway that a command talks to.
pub(crate) struct Peer<'a> {
    pub url: &'a str,
    /// The option that names another one, for the message that none answers.
    pub option: &'static str,
    pub timeout: Duration,
}

impl Peer<'_> {
    /// The URL of a path of this gateway.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    /// Sends one request and returns the status and the body of the response.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), String> {
        let Self {
            url,
            option,
            timeout,
        } = self;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)
            .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
            .https_or_http()
            .enable_http1()
            .build();
        let client: legacy::Client<_, Full<Bytes>> =
            legacy::Client::builder(TokioExecutor::new()).build(connector);
        let exchange = tokio::time::timeout(*timeout, async {
            let response = client
                .request(request)
                .await
                .map_err(|_| format!("no gateway answers at {url}. Start one, or set {option}."))?;
            let status = response.status();
            let body = response.into_body().collect().await;
            let body = body.map_err(|error| format!("the response was cut off: {error}"))?;
            Ok((status, body.to_bytes()))
        });
        exchange
            .await
            .map_err(|_| format!("{url} did not answer within {timeout:?}"))?
    }
}
