//! HTTP/2 server for one connection, on the frames and flow control of the `h2` crate.
//!
//! Every request has a task. The gateway does not use hyper's server here, because that one does not tell when a
//! response waits for its client's window: a client that opens no window and sends PINGs could keep any number of
//! responses in memory. What a client can hold is bounded:
//!
//! - A stream of which the client takes no data for `Timeouts::stall` is reset, and its response dropped (`send.rs`).
//! - A connection has at most [`MAX_STREAMS`] streams. One that cancels many more requests than it completes is closed.
//! - A connection without a request is closed after `Timeouts::idle`, whatever PINGs it sends, and one whose client
//!   does not respond to PINGs is closed as well.
//! - `h2` itself closes connections that flood it with reset streams, CONTINUATION, small DATA or control frames.
//!
//! When a client hangs up or resets a stream, the future of its handler is dropped.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Method, Request, Response},
};
use h2::{
    Reason,
    server::{Builder, Connection},
};
use tokio::io::{AsyncRead, AsyncWrite};

mod exchange;
mod request_body;
mod send;
mod state;
mod upkeep;

use self::{
    request_body::with_body,
    send::{Piece, SEND_BUFFER},
    state::{ConnectionState, StreamGuard, WatchedStream},
    upkeep::{Close, Upkeep},
};
use crate::net::{http1::MAX_HEAD_BYTES, shutdown::Shutdown};

/// Streams that a connection may have at once: what clients assume until they are told another number.
const MAX_STREAMS: u32 = 100;
/// Above the gateway's own limit on heads, so that its error response refuses those that are somewhat too large. `h2`
/// responds to larger ones with a bare 431, and closes the connection if they have more than a few frames in addition.
#[expect(clippy::cast_possible_truncation, reason = "128 KiB")]
const MAX_HEADER_LIST: u32 = 2 * MAX_HEAD_BYTES as u32;
/// Window for request bodies, of a stream and of all streams together: no more than this is received unread. Large
/// enough for megabytes per second over any distance, and small because clients can fill it before they are known.
const RECEIVE_WINDOW: u32 = 256 << 10;
/// How long the last frames of a connection may take to be sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeouts of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// How long a connection may stay open without a request.
    pub idle: Duration,
    /// How long the first frames of a connection may take.
    pub handshake: Duration,
    /// How long a client may take no data of a response that is ready to be sent.
    pub stall: Duration,
}

/// Serves a connection until it ends. When shutdown is requested, it ends after the running requests.
///
/// `during_shutdown` is true for a connection that was accepted after shutdown was requested: its requests still get
/// responses, which say that the gateway stops.
pub(crate) async fn serve<S, F>(
    socket: S,
    handler: impl Fn(Request<Body>) -> F,
    timeouts: Timeouts,
    shutdown: &Shutdown,
    during_shutdown: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let state = Arc::new(ConnectionState::default());
    let socket = WatchedStream::new(socket, state.clone());
    let handshake = tokio::time::timeout(timeouts.handshake, builder().handshake(socket));
    let mut connection = match handshake.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(%error, "an HTTP/2 handshake failed"),
        Err(_) => return tracing::debug!("an HTTP/2 handshake timed out"),
    };
    let mut upkeep = Upkeep::new(connection.ping_pong(), timeouts.idle);
    let mut stopping = pin!(shutdown.requested());
    let mut ignores_shutdown = during_shutdown;
    loop {
        tokio::select! {
            biased;
            accepted = poll_fn(|context| connection.poll_accept(context)) => match accepted {
                Some(Ok((request, respond))) => {
                    let is_head = request.method() == Method::HEAD;
                    let stream = StreamGuard::new(&state);
                    // Boxed, so that its memory is freed while the response waits for the client.
                    let response = Box::pin(handler(with_body(request)));
                    tokio::spawn(exchange::run(response, respond, is_head, stream, timeouts.stall));
                    if state.is_flooded_with_cancellations() {
                        tracing::debug!("closing a connection that cancels most of its requests");
                        return close(connection, Reason::ENHANCE_YOUR_CALM).await;
                    }
                }
                Some(Err(error)) => return tracing::debug!(%error, "an HTTP/2 connection failed"),
                None => return,
            },
            () = &mut stopping, if !ignores_shutdown => {
                ignores_shutdown = true;
                connection.graceful_shutdown();
            }
            closing = poll_fn(|context| upkeep.poll(&state, context)) => match closing {
                Close::Gracefully => connection.graceful_shutdown(),
                Close::Now => return close(connection, Reason::NO_ERROR).await,
            },
        }
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

/// Closes a connection with its streams.
async fn close<S>(mut connection: Connection<S, Piece>, reason: Reason)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    connection.abrupt_shutdown(reason);
    let closed = poll_fn(|context| connection.poll_closed(context));
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
}

#[cfg(test)]
mod tests;
