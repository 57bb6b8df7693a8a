//! Connections that the gateway opens itself: pooled, bounded in time, through no proxy.
//!
//! The client follows no redirect; whoever uses it sees the status and decides.

use std::{cell::Cell, sync::Arc, thread::available_parallelism, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

pub type Client = legacy::Client<Connector, Full<Bytes>>;
type Connector = HttpsConnector<HttpConnector>;

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

/// A client for each thread that serves requests, and one for all others: connections stay with the thread
/// that uses them.
pub struct Clients(Vec<Client>);

impl Clients {
    pub fn new(timeout: Duration) -> Result<Self, String> {
        let connector = connector(timeout)?;
        let all = (0..=lanes()).map(|_| over(connector.clone()));
        Ok(Self(all.collect()))
    }

    /// Of this thread.
    pub fn here(&self) -> &Client {
        &self.0[LANE.get() % self.0.len()]
    }
}

/// A client that gives up connecting after `timeout`; fails where the system has no certificates.
pub fn client(timeout: Duration) -> Result<Client, String> {
    Ok(over(connector(timeout)?))
}

fn connector(timeout: Duration) -> Result<Connector, String> {
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
    Ok(https)
}

fn over(connector: Connector) -> Client {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_mins(1))
        .pool_max_idle_per_host(256)
        .build(connector)
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
