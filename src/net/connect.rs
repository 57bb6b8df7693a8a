//! Outgoing connections: an HTTP client with a pool, and a connector for HTTP/1.1 connections.
//!
//! Connecting has a timeout. No proxy is used and redirects are not followed: the caller gets their status. Errors are
//! texts with all their causes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::http::Uri;
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{
    ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream,
    builderstates::WantsProtocols1,
};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{ClientConfig, client::Resumption};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tower::Service as _;

/// How long root certificates that were read serve further clients.
const ROOTS_LAST: Duration = Duration::from_secs(5);

/// An HTTP client with pooled connections.
pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Opens HTTP/1.1 connections.
#[derive(Clone)]
pub(crate) struct Connector(HttpsConnector<HttpConnector>);

/// A connection with or without TLS. TLS is boxed, because its state takes a kilobyte more.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>),
}

/// Builds a client whose connection attempts time out after `timeout`. Fails if the system has no root certificates.
pub(crate) fn client(timeout: Duration) -> Result<Client, String> {
    let https = builder()?
        .enable_all_versions()
        .wrap_connector(tcp(timeout));
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_mins(1))
        .pool_max_idle_per_host(256)
        .build(https))
}

/// Builds a connector for HTTP/1.1 whose attempts time out after `timeout`. Fails if the system has no root
/// certificates.
pub(crate) fn connector(timeout: Duration) -> Result<Connector, String> {
    let https = builder()?.enable_http1().wrap_connector(tcp(timeout));
    Ok(Connector(https))
}

impl Connector {
    /// Connects to the scheme, host and port of `address`.
    pub(crate) async fn connect(&self, address: Uri) -> Result<Stream, String> {
        let opened = self.0.clone().call(address).await;
        let stream = opened.map_err(|error| chain(error.as_ref()))?;
        Ok(match stream {
            MaybeHttpsStream::Http(stream) => Stream::Plain(stream.into_inner()),
            https @ MaybeHttpsStream::Https(_) => Stream::Tls(Box::new(TokioIo::new(https))),
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
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
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(tls()?)
        .https_or_http())
}

/// TLS with the system's root certificates. A gateway builds dozens of clients when it starts, and parsing a hundred
/// certificates for each would take longer than all the rest; a reload some time later reads them again.
fn tls() -> Result<ClientConfig, String> {
    static LATEST: Mutex<Option<(Instant, ClientConfig)>> = Mutex::new(None);
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut config = match latest.take() {
        Some((read_at, config)) if read_at.elapsed() < ROOTS_LAST => {
            latest.insert((read_at, config)).1.clone()
        }
        _ => {
            let config = read_roots()?;
            latest.insert((Instant::now(), config)).1.clone()
        }
    };
    // Each client resumes its own sessions.
    config.resumption = Resumption::default();
    Ok(config)
}

fn read_roots() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .with_native_roots()
        .map_err(|error| format!("the system's certificates cannot be read: {error}"))?;
    Ok(roots.with_no_client_auth())
}

/// The error's text followed by those of its causes, because hyper's own text alone says little.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
