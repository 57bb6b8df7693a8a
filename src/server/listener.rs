//! Accepts connections, serves them, and closes them at shutdown.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::connections::{ConnectionLimit, Counted};
use crate::{
    api::{Source, TrustedProxies, public::Front},
    config::ClientTimeouts,
    net::{
        http1::{server as http1, server::Connection},
        http2,
        lanes::{ConnectionGuard, Lanes},
        prefixed_stream::PrefixedStream,
        shutdown::Shutdown,
        socket,
        stall::StallLimit,
    },
};

/// How long a connection may stay open without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// How long a connection beyond the bound stays open at most.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Origin of a connection.
struct Origin {
    source: Source,
    /// Whether it was accepted after shutdown was requested. It is served only to respond that the gateway stops.
    during_shutdown: bool,
    /// Whether it is beyond the bound of connections. It is served for a moment, and calls are refused.
    is_extra: bool,
    /// The bound, by which the requests of an HTTP/2 connection count too.
    limit: ConnectionLimit,
}

/// Accepts connections until shutdown is requested and all connections of before have ended.
///
/// While responses are still running, new connections are accepted as well, so that the health checks of a load
/// balancer get 503 instead of a timeout.
pub(crate) async fn serve(
    (listener, limit): (TcpListener, ConnectionLimit),
    lanes: Arc<Lanes>,
    front: Front,
    tls: Option<TlsAcceptor>,
    timeouts: ClientTimeouts,
    proxies: TrustedProxies,
    shutdown: Shutdown,
) {
    let connections = TaskTracker::new();
    loop {
        let drained = async {
            shutdown.requested().await;
            // Waits for the connections that were open when shutdown was requested; later ones do not prolong it.
            connections.close();
            connections.wait().await;
        };
        let socket = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drained => return,
            () = shutdown.deadline() => break,
        };
        match socket {
            Ok((socket, peer)) => {
                let Some(counted) = limit.count() else {
                    continue;
                };
                socket::prepare(&socket);
                let source = Source {
                    peer: peer.ip(),
                    proxies: proxies.clone(),
                };
                let origin = Origin {
                    source,
                    during_shutdown: shutdown.is_requested(),
                    is_extra: counted.is_extra,
                    limit: limit.clone(),
                };
                let is_awaited = !origin.during_shutdown && !origin.is_extra;
                let front = front.clone().refusing_calls(counted.is_extra);
                let lane = lanes.assign();
                let serving = connection(
                    (socket.into_std(), lane.guard, counted),
                    origin,
                    front,
                    tls.clone(),
                    timeouts,
                    shutdown.clone(),
                );
                if is_awaited {
                    connections.spawn_on(serving, &lane.runtime);
                } else {
                    lane.runtime.spawn(serving);
                }
            }
            Err(error) => {
                // Most likely there are no file descriptors left: wait until some are closed.
                tracing::warn!(%error, "accepting a connection failed; retrying in 50 ms");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    connections.wait().await;
}

/// Serves a connection on the lane that it was assigned to; the guards count it until it ends.
async fn connection(
    (socket, _guard, _counted): (io::Result<std::net::TcpStream>, ConnectionGuard, Counted),
    origin: Origin,
    front: Front,
    tls: Option<TlsAcceptor>,
    timeouts: ClientTimeouts,
    shutdown: Shutdown,
) {
    let socket = match socket.and_then(TcpStream::from_std) {
        Ok(socket) => StallLimit::new(socket, timeouts.stall),
        Err(error) => {
            return tracing::warn!(%error, "registering a connection with its lane failed; it is closed");
        }
    };
    let is_extra = origin.is_extra;
    let serving = async move {
        match tls {
            None => serve_http(socket, origin, front, timeouts, shutdown).await,
            // Boxed, so that connections without TLS do not reserve memory for it.
            Some(tls) => Box::pin(serve_tls(tls, socket, origin, front, timeouts, shutdown)).await,
        }
    };
    if is_extra {
        // Whatever its client does: others need its place.
        let _ = tokio::time::timeout(EXTRA_TIMEOUT, Box::pin(serving)).await;
    } else {
        serving.await;
    }
}

async fn serve_tls(
    tls: TlsAcceptor,
    socket: StallLimit,
    origin: Origin,
    front: Front,
    timeouts: ClientTimeouts,
    shutdown: Shutdown,
) {
    // Both are boxed, so that the memory of the handshake is freed when it is done.
    let handshake = Box::pin(tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(socket)));
    match handshake.await {
        Ok(Ok(socket)) => Box::pin(serve_http(socket, origin, front, timeouts, shutdown)).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake timed out"),
    }
}

/// Detects HTTP/1 or HTTP/2 and serves the connection.
async fn serve_http(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    origin: Origin,
    front: Front,
    timeouts: ClientTimeouts,
    shutdown: Shutdown,
) {
    let Origin {
        source,
        during_shutdown,
        is_extra,
        limit,
    } = origin;
    let http1_timeouts = http1::Timeouts {
        idle: IDLE_TIMEOUT,
        head: timeouts.head,
    };
    let mut connection = Connection::new(socket, http1_timeouts);
    let is_http2 = tokio::select! {
        is_http2 = poll_fn(|context| connection.poll_http2(context)) => is_http2,
        () = shutdown.requested(), if !during_shutdown => return,
    };
    if !is_http2 {
        let respond = |request| front.respond_to(request, Some(&source));
        return http1::serve(connection, respond, &shutdown, during_shutdown || is_extra).await;
    }
    let socket = PrefixedStream {
        prefix: connection.input,
        stream: connection.stream,
    };
    let respond = move |request| {
        let counted = limit.count();
        let is_extra = is_extra || counted.as_ref().is_none_or(|counted| counted.is_extra);
        let (front, source) = (front.clone().refusing_calls(is_extra), source.clone());
        async move {
            let response = front.respond_to(request, Some(&source)).await;
            match counted {
                Some(counted) => counted.until_sent(response),
                None => response,
            }
        }
    };
    let timeouts = http2::Timeouts {
        idle: IDLE_TIMEOUT,
        handshake: timeouts.head,
        stall: timeouts.stall,
    };
    let serving = http2::serve(socket, respond, timeouts, &shutdown, during_shutdown);
    // Boxed, so that HTTP/1 connections reserve no memory for it.
    Box::pin(serving).await;
}
