//! The connection to a provider: pooled, bounded in time, never redirected.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::{
    config::{OpenAiProvider, Timeouts},
    error::UpstreamError,
};

pub struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base_url: String,
    authorization: Option<HeaderValue>,
    timeouts: Timeouts,
}

/// The head of an answer, and its body still to come.
pub struct Reply {
    pub status: StatusCode,
    pub content_type: String,
    body: Incoming,
    idle: Duration,
}

impl Client {
    pub fn new(config: &OpenAiProvider) -> Result<Self, String> {
        let authorization = match &config.api_key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", key.reveal()))
                    .map_err(|_| "its key has characters that a header cannot carry")?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            http: connect_with(config.timeouts.connect)?,
            base_url: config.base_url.clone(),
            authorization,
            timeouts: config.timeouts,
        })
    }

    pub async fn post(&self, path: &str, body: Bytes) -> Result<Reply, UpstreamError> {
        self.send(Method::POST, path, body).await
    }

    pub async fn get(&self, path: &str) -> Result<Reply, UpstreamError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Reply, UpstreamError> {
        let uri: Uri = format!("{}{path}", self.base_url)
            .parse()
            .map_err(|_| UpstreamError::Connect("its base_url makes no URL".into()))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json")
            // An answer that we meter must come as it is: no encoding to unpack, no bomb in it.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(
                header::USER_AGENT,
                concat!("tollgate/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(body))
            .expect("a request made of checked parts");
        let first_byte = self.timeouts.first_byte;
        let response = tokio::time::timeout(first_byte, self.http.request(request))
            .await
            .map_err(|_| UpstreamError::FirstByte(first_byte))?
            .map_err(|error| failure(&error))?;
        let (head, body) = response.into_parts();
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(UpstreamError::Malformed(
                "an encoded body nobody asked for".into(),
            ));
        }
        let content_type = head.headers.get(header::CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        Ok(Reply {
            status: head.status,
            content_type,
            body,
            idle: self.timeouts.idle,
        })
    }
}

impl Reply {
    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        self.next_within(self.idle).await
    }

    pub async fn next_within(
        &mut self,
        patience: Duration,
    ) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            let frame = tokio::time::timeout(patience, self.body.frame())
                .await
                .map_err(|_| UpstreamError::Idle(patience))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(UpstreamError::Broken(chain(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    pub async fn body_up_to(mut self, limit: usize) -> Result<Vec<u8>, UpstreamError> {
        let mut body = Vec::new();
        while let Some(data) = self.next().await? {
            if body.len() + data.len() > limit {
                return Err(UpstreamError::TooLarge(limit));
            }
            body.extend_from_slice(&data);
        }
        Ok(body)
    }
}

fn connect_with(
    timeout: Duration,
) -> Result<legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>, String> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let https = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(provider)
        .map_err(|error| format!("the system's certificates cannot be read: {error}"))?
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_mins(1))
        .pool_max_idle_per_host(256)
        .build(https))
}

fn failure(error: &legacy::Error) -> UpstreamError {
    if error.is_connect() {
        UpstreamError::Connect(chain(error))
    } else {
        UpstreamError::Broken(chain(error))
    }
}

/// An error with its causes: hyper's own words alone say little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
