//! HTTP/1 server for one connection: reads a request, sends its response, then reads the next.
//!
//! All of it runs in the task of the connection. When a client hangs up, the future of its handler is dropped. The body
//! of a request is read when its handler reads it. After a malformed request the connection is closed, because the
//! start of the next one is unknown.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    http::{Method, Request, Response, Version},
};
use tokio::io::{AsyncRead, AsyncWrite};

mod connection;
pub(crate) mod date;
mod request_body;
mod response_writer;

pub(crate) use connection::{Connection, Timeouts};

use self::{
    connection::{BodyState, ConnectionEvent, NextRequest},
    request_body::request_body,
    response_writer::{ResponseOptions, ResponseWriter},
};
use crate::net::{http1::codec::RequestHead, shutdown::Shutdown};

/// Serves a connection until it ends. When shutdown is requested, it ends after the running request.
///
/// `only_one_request` is true for a connection that was accepted after shutdown was requested, or beyond the bound of
/// connections: its first request still gets a response, mostly a refusal, and it is closed then.
pub(crate) async fn serve<S, F>(
    mut connection: Connection<S>,
    handler: impl Fn(Request<Body>) -> F,
    shutdown: &Shutdown,
    only_one_request: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Body>>,
{
    let mut stopping = pin!(shutdown.requested());
    loop {
        let next = poll_fn(|context| {
            if let Poll::Ready(next) = connection.poll_request(context) {
                return Poll::Ready(next);
            }
            // A request whose first bytes have arrived is still served.
            let stops = !only_one_request
                && connection.is_idle()
                && stopping.as_mut().poll(context).is_ready();
            if stops {
                Poll::Ready(NextRequest::Closed)
            } else {
                Poll::Pending
            }
        });
        let (request, body, options) = match next.await {
            NextRequest::Request(head) => with_body(*head, &mut connection),
            NextRequest::Refused(request) => (
                request.map(|()| Body::empty()),
                BodyState::Abandoned,
                ResponseOptions::CLOSING,
            ),
            NextRequest::Closed => break,
        };
        let mut exchange = Exchange {
            connection: &mut connection,
            body,
        };
        let Some(response) = exchange.run(handler(request)).await else {
            return;
        };
        let keep_alive = options.keep_alive
            && !only_one_request
            && !shutdown.is_requested()
            && exchange
                .connection
                .can_find_next_request(&mut exchange.body);
        let writer = ResponseWriter::new(response, options.with_keep_alive(keep_alive));
        match exchange.send(writer).await {
            Ok(true) => {}
            Ok(false) => {
                let has_more =
                    !matches!(exchange.body, BodyState::Complete) || !exchange.connection.is_idle();
                if connection.close().await && has_more {
                    connection.linger().await;
                }
                return;
            }
            Err(error) => {
                return tracing::debug!(%error, "sending a response failed; its connection is closed");
            }
        }
    }
    connection.close().await;
}

/// The request with its body, which is complete or read as it arrives.
fn with_body<S>(
    head: RequestHead,
    connection: &mut Connection<S>,
) -> (Request<Body>, BodyState, ResponseOptions)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let options = ResponseOptions {
        head_only: head.request.method() == Method::HEAD,
        is_http10: head.request.version() == Version::HTTP_10,
        keep_alive: head.keeps_alive(),
    };
    let expects_continue = head.expects_continue();
    let request = head.request;
    if let Some(body) = connection.take_complete_body() {
        let body = if body.is_empty() {
            Body::empty()
        } else {
            Body::from(body)
        };
        return (request.map(|()| body), BodyState::Complete, options);
    }
    if expects_continue {
        connection.expect_continue();
    }
    let (sender, body) = request_body(connection.remaining_length());
    let request = request.map(|()| Body::new(body));
    (request, BodyState::Reading(sender), options)
}

/// A request and its response.
struct Exchange<'a, S> {
    connection: &'a mut Connection<S>,
    body: BodyState,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Exchange<'_, S> {
    /// Runs the handler and passes it the body. Returns `None` if the client hung up before the handler was done.
    async fn run<T>(&mut self, handler: impl Future<Output = T>) -> Option<T> {
        let mut handler = pin!(handler);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(response) = handler.as_mut().poll(context) {
                    return Poll::Ready(Some(response));
                }
                match self.connection.poll_event(&mut self.body, context) {
                    Poll::Ready(ConnectionEvent::BodyAdvanced) => {}
                    Poll::Ready(ConnectionEvent::ClientLeft) => return Poll::Ready(None),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Sends the response. Returns whether another request can follow: the connection is kept alive and the body of
    /// this request was read to its end.
    async fn send(&mut self, mut response: ResponseWriter) -> io::Result<bool> {
        poll_fn(|context| {
            loop {
                if let Poll::Ready(sent) = self.poll_send(&mut response, context) {
                    return Poll::Ready(sent);
                }
                match self.connection.poll_event(&mut self.body, context) {
                    Poll::Ready(ConnectionEvent::BodyAdvanced) => {}
                    Poll::Ready(ConnectionEvent::ClientLeft) => {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await?;
        let keep_alive = response.keep_alive;
        drop(response); // which writes the access log line
        // Waits until the task that reads or drains the body is done.
        poll_fn(|context| {
            while let BodyState::Reading(_) = self.body {
                let event = self.connection.poll_event(&mut self.body, context);
                if event.is_pending() && matches!(self.body, BodyState::Reading(_)) {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
        .await;
        Ok(keep_alive && matches!(self.body, BodyState::Complete))
    }

    fn poll_send(
        &mut self,
        response: &mut ResponseWriter,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.connection.poll_finish_continue(context))?;
        response.poll_write(&mut self.connection.stream, context)
    }
}

#[cfg(test)]
mod tests;
