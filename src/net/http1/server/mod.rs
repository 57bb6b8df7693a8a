//! HTTP/1 on one connection: a request is read, answered, and then the next.
//!
//! All in the task of the connection. A client that hangs up takes its handler's future with it, as soon as that is
//! noticed; the body of a request is read when its handler asks for it.

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

mod answer;
mod date;
mod framing;
mod head;
mod incoming;
mod wire;

pub use wire::{Timeouts, Wire};

use self::{
    answer::{Answer, Asked},
    head::Head,
    incoming::incoming,
    wire::{Arrival, Asking, Noticed},
};
use crate::net::shutdown::Shutdown;

/// Serves a connection until it is over, which is soon once the gateway stops. One that `came_late`, after that was
/// asked for, is there to be told so.
pub async fn serve<S, F>(
    mut wire: Wire<S>,
    answering: impl Fn(Request<Body>) -> F,
    shutdown: &Shutdown,
    came_late: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Body>>,
{
    let mut stopping = pin!(shutdown.requested());
    loop {
        let arrival = poll_fn(|context| {
            if let Poll::Ready(arrival) = wire.poll_request(context) {
                return Poll::Ready(arrival);
            }
            // A request that has begun to come is still heard.
            let stops = !came_late && wire.is_idle() && stopping.as_mut().poll(context).is_ready();
            if stops {
                Poll::Ready(Arrival::Over)
            } else {
                Poll::Pending
            }
        });
        let (request, asking, asked) = match arrival.await {
            Arrival::Request(head) => take_over(*head, &mut wire),
            Arrival::Refused(request) => (
                request.map(|()| Body::empty()),
                Asking::Abandoned,
                Asked::LAST,
            ),
            Arrival::Over => break,
        };
        let mut exchange = Exchange {
            wire: &mut wire,
            asking,
        };
        let Some(response) = exchange.answered(answering(request)).await else {
            return;
        };
        let goes_on = asked.keep_alive
            && !came_late
            && !shutdown.is_requested()
            && exchange.wire.finds_the_next(&mut exchange.asking);
        let answer = Answer::new(response, asked.keeping_alive(goes_on));
        match exchange.send(answer).await {
            Ok(true) => {}
            Ok(false) => {
                let has_more = !matches!(exchange.asking, Asking::Over) || !exchange.wire.is_idle();
                if wire.close().await && has_more {
                    wire.linger().await;
                }
                return;
            }
            Err(error) => return tracing::debug!(%error, "a connection ended badly"),
        }
    }
    wire.close().await;
}

/// The request with its body, whole or as it comes.
fn take_over<S>(head: Head, wire: &mut Wire<S>) -> (Request<Body>, Asking, Asked)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = Asked {
        head_only: head.request.method() == Method::HEAD,
        is_old: head.request.version() == Version::HTTP_10,
        keep_alive: head.keeps_alive(),
    };
    let expects_continue = head.expects_continue();
    let request = head.request;
    if let Some(body) = wire.whole_body() {
        let body = if body.is_empty() {
            Body::empty()
        } else {
            Body::from(body)
        };
        return (request.map(|()| body), Asking::Over, asked);
    }
    if expects_continue {
        wire.says_continue();
    }
    let (feed, body) = incoming(wire.announced());
    let request = request.map(|()| Body::new(body));
    (request, Asking::Feeding(feed), asked)
}

/// A request and its answer.
struct Exchange<'a, S> {
    wire: &'a mut Wire<S>,
    asking: Asking,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Exchange<'_, S> {
    /// What the handler answers; `None` when the client has not waited for it.
    async fn answered<T>(&mut self, handler: impl Future<Output = T>) -> Option<T> {
        let mut handler = pin!(handler);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(answer) = handler.as_mut().poll(context) {
                    return Poll::Ready(Some(answer));
                }
                match self.wire.poll_notice(&mut self.asking, context) {
                    Poll::Ready(Noticed::Fed) => {}
                    Poll::Ready(Noticed::Left) => return Poll::Ready(None),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Sends the answer. Then, whether another request can follow: this one was read to its end by who began to.
    async fn send(&mut self, mut answer: Answer) -> io::Result<bool> {
        poll_fn(|context| {
            loop {
                if let Poll::Ready(sent) = self.poll_send(&mut answer, context) {
                    return Poll::Ready(sent);
                }
                match self.wire.poll_notice(&mut self.asking, context) {
                    Poll::Ready(Noticed::Fed) => {}
                    Poll::Ready(Noticed::Left) => {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await?;
        let keep_alive = answer.keep_alive;
        drop(answer); // with its line in the log
        poll_fn(|context| {
            while let Asking::Feeding(_) = self.asking {
                let noticed = self.wire.poll_notice(&mut self.asking, context);
                if noticed.is_pending() && matches!(self.asking, Asking::Feeding(_)) {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
        .await;
        Ok(keep_alive && matches!(self.asking, Asking::Over))
    }

    fn poll_send(
        &mut self,
        answer: &mut Answer,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.wire.poll_begun_continue(context))?;
        answer.poll_write(&mut self.wire.stream, context)
    }
}

#[cfg(test)]
mod tests;
