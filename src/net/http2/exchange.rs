//! One request and its response, in a task of their own.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    http::{HeaderValue, Response, StatusCode, header, response::Parts},
};
use h2::{Reason, server::SendResponse};

use super::{
    send::{BodySender, Piece, SendError},
    state::StreamGuard,
};
use crate::net::http1::server::date;

/// Headers about an HTTP/1 connection, which HTTP/2 forbids.
const CONNECTION_HEADERS: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// Runs the handler of a request and sends its response.
pub(super) async fn run(
    handler: Pin<Box<impl Future<Output = Response<Body>>>>,
    mut respond: SendResponse<Piece>,
    head_only: bool,
    guard: StreamGuard,
    stall: Duration,
) {
    let Some(response) = unless_reset(handler, &mut respond).await else {
        return guard.cancelled();
    };
    let (parts, body) = response.into_parts();
    let has_no_body = head_only
        || body.is_end_stream()
        || matches!(
            parts.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    let head = response_head(parts, body.size_hint().exact());
    let stream = match respond.send_response(head, has_no_body) {
        Ok(_) if has_no_body => return guard.completed(),
        Ok(stream) => stream,
        Err(error) => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            tracing::debug!(%error, "a response was not sent; its stream is reset");
            return guard.cancelled();
        }
    };
    match BodySender::new(stream, guard.connection(), stall)
        .send(body)
        .await
    {
        Ok(()) => guard.completed(),
        Err(SendError::Reset) => guard.cancelled(),
        Err(SendError::Stalled) => {
            tracing::debug!("a client has opened no window for a response; its stream is reset");
        }
        Err(SendError::Body(error)) => {
            tracing::debug!(%error, "a response broke off; its stream is reset");
        }
    }
}

/// The result of the handler; `None` if the client resets the stream before it is there.
async fn unless_reset<T>(
    mut handler: Pin<Box<impl Future<Output = T>>>,
    respond: &mut SendResponse<Piece>,
) -> Option<T> {
    poll_fn(|context| {
        if let Poll::Ready(response) = handler.as_mut().poll(context) {
            return Poll::Ready(Some(response));
        }
        respond.poll_reset(context).map(|_| None)
    })
    .await
}

/// The head of a response with a body of this length.
fn response_head(mut parts: Parts, length: Option<u64>) -> Response<()> {
    let headers = &mut parts.headers;
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
    headers
        .entry(header::DATE)
        .or_insert_with(date::header_value);
    // An empty body can also be that of a `HEAD` response, whose length for `GET` is unknown.
    if let Some(length @ 1..) = length {
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(length));
    }
    Response::from_parts(parts, ())
}
