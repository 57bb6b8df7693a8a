//! Connections: accepted, served, and let go in good order.

use std::{
    convert::Infallible, future::poll_fn, io, net::IpAddr, pin::pin, sync::Arc, time::Duration,
};

use axum::{body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::{
    api::{Peer, TrustedProxies, public::Front},
    config::ClientTimeouts,
    net::{
        begun::Begun,
        http1::{server as http1, server::Wire},
        lanes::{Counted, Lanes},
        shutdown::Shutdown,
        socket,
        stall::StallLimit,
    },
};

/// How long a connection may stay without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// More than the limit on heads, so that it is our own answer that refuses them.
const MAX_HEADER_LIST: u32 = 1 << 20;

/// Who has opened a connection, and whom we would believe that it was somebody else.
struct Arrival {
    peer: IpAddr,
    proxies: TrustedProxies,
    /// After the gateway was asked to stop: it is there to be told so.
    came_late: bool,
}

/// Accepts until every connection is over after a request to stop.
///
/// While answers are still running, new connections are accepted and told so: a load balancer
/// that asks for our health hears 503 instead of silence.
pub async fn serve(
    listener: TcpListener,
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
            // Those that were open when the stop came; later ones do not prolong it.
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
                socket::prepare(&socket);
                let from = Arrival {
                    peer: peer.ip(),
                    proxies: proxies.clone(),
                    came_late: shutdown.is_requested(),
                };
                let came_late = from.came_late;
                let lane = lanes.take();
                let serving = connection(
                    (socket.into_std(), lane.counted),
                    from,
                    front.clone(),
                    tls.clone(),
                    timeouts,
                    shutdown.clone(),
                );
                if came_late {
                    lane.runtime.spawn(serving);
                } else {
                    connections.spawn_on(serving, &lane.runtime);
                }
            }
            Err(error) => {
                // Out of file descriptors, most likely: wait for some to come back.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    connections.wait().await;
}

/// Runs on the lane that the socket was given to, and is counted there until it is over.
async fn connection(
    (socket, _counted): (io::Result<std::net::TcpStream>, Counted),
    from: Arrival,
    front: Front,
    tls: Option<TlsAcceptor>,
    timeouts: ClientTimeouts,
    shutdown: Shutdown,
) {
    let socket = match socket.and_then(TcpStream::from_std) {
        Ok(socket) => StallLimit::new(socket, timeouts.stall),
        Err(error) => return tracing::warn!(%error, "a connection could not be taken over"),
    };
    match tls {
        None => converse(socket, from, front, timeouts, shutdown).await,
        // Boxed, so that connections without it do not keep room for it.
        Some(tls) => Box::pin(over_tls(tls, socket, from, front, timeouts, shutdown)).await,
    }
}

async fn over_tls(
    tls: TlsAcceptor,
    socket: StallLimit,
    from: Arrival,
    front: Front,
    timeouts: ClientTimeouts,
    shutdown: Shutdown,
) {
    // Both boxed, for what is over soon.
    let handshake = Box::pin(tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(socket)));
    match handshake.await {
        Ok(Ok(socket)) => Box::pin(converse(socket, from, front, timeouts, shutdown)).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn converse(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    from: Arrival,
    front: Front,
    timeouts: ClientTimeouts,
    shutdown: Shutdown,
) {
    let came_late = from.came_late;
    let timeouts = http1::Timeouts {
        idle: IDLE_TIMEOUT,
        head: timeouts.head,
    };
    let mut wire = Wire::new(socket, timeouts);
    let http2 = tokio::select! {
        http2 = poll_fn(|context| wire.poll_http2(context)) => http2,
        () = shutdown.requested(), if !came_late => return,
    };
    let located = move |mut request: Request<Body>| {
        // Nobody else asks where a request comes from.
        if request.uri().path().starts_with("/portal") {
            let client = from.proxies.client(from.peer, request.headers());
            request.extensions_mut().insert(Peer(client));
        }
        request
    };
    if !http2 {
        let answering = |request| front.answer(located(request));
        return http1::serve(wire, answering, &shutdown, came_late).await;
    }
    let socket = TokioIo::new(Begun {
        read: wire.input,
        stream: wire.stream,
    });
    let service = service_fn(move |request: Request<Incoming>| {
        let (front, request) = (front.clone(), located(request.map(Body::new)));
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let mut connection = http2::Builder::new(TokioExecutor::new());
    connection
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_LIST)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = connection.serve_connection(socket, service);
    if let Err(error) = Box::pin(served(connection, &shutdown, came_late)).await {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// Until it is over, which is soon once the gateway stops.
async fn served<C: GracefulConnection>(
    connection: C,
    shutdown: &Shutdown,
    came_late: bool,
) -> Result<(), C::Error> {
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        // A late connection is there to be told so: hyper would close it before its first request.
        () = shutdown.requested(), if !came_late => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}
