//! Connections that the gateway opens itself: pooled, bounded in time, through no proxy.
//!
//! The client follows no redirect; whoever uses it sees the status and decides.

use std::{cell::Cell, sync::Arc, thread::available_parallelism, time::Duration};

use axum::http::Uri;
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{
    HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream, builderstates::WantsProtocols1,
};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower::Service as _;

pub type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

#[derive(Clone)]
pub struct Connector(HttpsConnector<HttpConnector>);

/// A connection, with TLS or without.
pub type Stream = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// How many threads serve requests.
pub fn lanes() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Numbers a thread that serves requests, from 1 on.
pub fn this_thread_is(lane: usize) {
    LANE.set(lane);
}

/// Which of them this is; 0 for any other.
pub fn this_lane() -> usize {
    LANE.get()
}

/// A client that gives up connecting after `timeout`; fails where the system has no certificates.
pub fn client(timeout: Duration) -> Result<Client, String> {
    let https = builder()?
        .enable_all_versions()
        .wrap_connector(tcp(timeout));
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_mins(1))
        .pool_max_idle_per_host(256)
        .build(https))
}

/// Opens connections that speak HTTP/1.1; gives up after `timeout`.
pub fn connector(timeout: Duration) -> Result<Connector, String> {
    let https = builder()?.enable_http1().wrap_connector(tcp(timeout));
    Ok(Connector(https))
}

impl Connector {
    pub async fn connect(&self, address: Uri) -> Result<Stream, String> {
        let opened = self.0.clone().call(address).await;
        let stream = opened.map_err(|error| chain(error.as_ref()))?;
        Ok(TokioIo::new(stream))
    }
}

fn tcp(timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}

fn builder() -> Result<HttpsConnectorBuilder<WantsProtocols1>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
    let builder =
        builder.map_err(|error| format!("the system's certificates cannot be read: {error}"))?;
    Ok(builder.https_or_http())
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
