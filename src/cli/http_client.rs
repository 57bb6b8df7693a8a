//! Minimal HTTP client for commands: one request, one whole response.

use std::{sync::Arc, time::Duration};

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::ClientConfig;

use crate::net::{connect, no_verification::NoVerification};

/// The gateway that a command talks to.
pub(crate) struct Peer<'a> {
    pub url: &'a str,
    /// The option that names another one, for the message that none answers.
    pub option: &'static str,
    pub timeout: Duration,
    pub certificates: Certificates,
}

/// Which certificates of a peer are accepted.
#[derive(Clone, Copy)]
pub(crate) enum Certificates {
    /// Those that the system trusts and that have the name in the URL.
    Trusted,
    /// Every one. Only for requests without a secret.
    Any,
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
            certificates,
        } = self;
        // The system's certificates are read for `https` alone: a machine without any can still use plain HTTP.
        let certificates = match request.uri().scheme_str() {
            Some("https") => *certificates,
            _ => Certificates::Any,
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(certificates)?)
            .https_or_http()
            .enable_http1()
            .build();
        let client: legacy::Client<_, Full<Bytes>> =
            legacy::Client::builder(TokioExecutor::new()).build(connector);
        let exchange = tokio::time::timeout(*timeout, async {
            let response = client.request(request).await.map_err(|error| {
                let cause = connect::chain(&error);
                format!("no gateway answers at {url} ({cause}). Start one, or set {option}.")
            })?;
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

fn tls(certificates: Certificates) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?;
    Ok(match certificates {
        Certificates::Trusted => builder
            .with_native_roots()
            .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
            .with_no_client_auth(),
        Certificates::Any => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
            .with_no_client_auth(),
    })
}
