//! Connections that the gateway opens itself: pooled, bounded in time, through no proxy.
//!
//! The client follows no redirect; whoever uses it sees the status and decides.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

pub type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that gives up connecting after `timeout`; fails where the system has no certificates.
pub fn client(timeout: Duration) -> Result<Client, String> {
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

/// An error with its causes: hyper's own words alone say little.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
