//! One HTTP/1 connection: reads requests with timeouts, detects a client that hangs up, and closes cleanly.
//!
//! A failed read or a timeout ends the connection; a head that has begun and is late is refused with an error response.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::http::Request;
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::request_body::{BodySender, Demand};
use crate::net::{
    http1::{
        MAX_HEAD_BYTES, Refused,
        codec::{Broken, Next, RequestHead, RequestReader},
    },
    read_buffer,
};

/// First bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Most bytes of a large body that are read at once.
const MAX_READ_BYTES: usize = 64 << 10;
const LINGER_BYTES: usize = 4 << 10;
/// How long bytes of a refused client are read and discarded before the connection is closed.
const LINGER: Duration = Duration::from_secs(5);

/// Timeouts of reads from the client.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until the first byte of a request.
    pub idle: Duration,
    /// From the first byte of a head to its end.
    pub head: Duration,
}

/// The state of a connection between and during its requests.
pub(crate) struct Connection<S> {
    pub stream: S,
    /// Bytes that were read and not parsed yet.
    pub input: BytesMut,
    requests: RequestReader,
    /// The unsent rest of `100 Continue`: the client sends the body after it. Empty if none is expected.
    unsent_continue: &'static [u8],
    timeouts: Timeouts,
    /// What the timer runs for.
    waiting: Waiting,
    timer: Pin<Box<Sleep>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    ForFirstByte,
    ForRestOfHead,
}

/// Result of waiting for a request.
pub(crate) enum NextRequest {
    Request(Box<RequestHead>),
    /// The request that stands in for a refused head.
    Refused(Box<Request<()>>),
    /// The client has closed the connection, or a timeout has passed.
    Closed,
}

/// How far the body of the current request has been read.
pub(crate) enum BodyState {
    /// To its end.
    Complete,
    /// It is read as the handler asks for it.
    Reading(BodySender),
    /// It will not be read to its end, so the start of the next request is unknown.
    Abandoned,
}

/// An event on the connection while a request is handled.
pub(crate) enum ConnectionEvent {
    /// The reader of the body can make progress: there is data, the end or an error.
    BodyAdvanced,
    /// The client has hung up.
    ClientLeft,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S, timeouts: Timeouts) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            requests: RequestReader::new(),
            unsent_continue: b"",
            timeouts,
            waiting: Waiting::No,
            timer: Box::pin(sleep(timeouts.idle)),
        }
    }

    /// Whether the client uses HTTP/2. Waits for the first bytes within the timeouts.
    pub(crate) fn poll_http2(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.input.starts_with(HTTP2_PREFACE) {
                return Poll::Ready(true);
            }
            if !HTTP2_PREFACE.starts_with(&self.input) {
                return Poll::Ready(false);
            }
            match self.poll_read_with_timeout(context) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether no byte of the next request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    /// Reads the next request up to the end of its head.
    pub(crate) fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<NextRequest> {
        loop {
            match self.requests.next(&mut self.input) {
                Ok(Next::Head(head)) => {
                    self.waiting = Waiting::No;
                    return Poll::Ready(NextRequest::Request(head));
                }
                Ok(_) => {}
                Err(Broken::Head(refused)) => return Poll::Ready(self.refuse(refused)),
                Err(Broken::Body) => return Poll::Ready(NextRequest::Closed),
            }
            if ready!(self.poll_read_with_timeout(context)) {
                continue;
            }
            // A client that has begun a head gets an error response.
            let is_late = self.waiting == Waiting::ForRestOfHead && self.timer.is_elapsed();
            return Poll::Ready(if is_late {
                self.refuse(Refused::TooSlow)
            } else {
                NextRequest::Closed
            });
        }
    }

    fn refuse(&mut self, refused: Refused) -> NextRequest {
        let head = &self.input[..self.input.len().min(MAX_HEAD_BYTES)];
        NextRequest::Refused(Box::new(refused.request(head)))
    }

    /// Reads bytes of a request; `false` if the connection has ended or the timeout has passed.
    fn poll_read_with_timeout(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let read = self.poll_read(context);
        if let Poll::Ready(read) = read {
            return Poll::Ready(read.is_ok_and(|count| count > 0));
        }
        let (waiting, timeout) = if self.input.is_empty() {
            self.input = BytesMut::new(); // an idle connection keeps no buffer
            (Waiting::ForFirstByte, self.timeouts.idle)
        } else {
            (Waiting::ForRestOfHead, self.timeouts.head)
        };
        if self.waiting != waiting {
            self.waiting = waiting;
            self.timer.as_mut().reset(Instant::now() + timeout);
        }
        self.timer.as_mut().poll(context).map(|()| false)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Large bodies are read in large pieces.
        let left = usize::try_from(self.requests.left().unwrap_or(0)).unwrap_or(usize::MAX);
        let stream = Pin::new(&mut self.stream);
        read_buffer::poll_read(stream, context, &mut self.input, left.min(MAX_READ_BYTES))
    }

    /// Takes the body of the request if all of it has been read already.
    pub(crate) fn take_complete_body(&mut self) -> Option<Bytes> {
        let left = self.requests.left()?;
        if left > self.input.len() as u64 {
            return None;
        }
        let mut body = Bytes::new();
        while let Ok(Next::Data(data)) = self.requests.next(&mut self.input) {
            body = data; // one piece, because the length is known
        }
        Some(body)
    }

    /// Length of the rest of the body; `None` if it is chunked.
    pub(crate) fn remaining_length(&self) -> Option<u64> {
        self.requests.left()
    }

    /// Sends `100 Continue` before the body is first read, because the client waits for it.
    pub(crate) fn expect_continue(&mut self) {
        self.unsent_continue = CONTINUE;
    }

    fn poll_continue(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        while !self.unsent_continue.is_empty() {
            let count = ready!(stream.as_mut().poll_write(context, self.unsent_continue))?;
            self.unsent_continue = &self.unsent_continue[count..];
        }
        stream.poll_flush(context)
    }

    /// Sends the rest of a `100 Continue` that was partly sent, before the response. One that was not begun is omitted:
    /// the response takes its place.
    pub(crate) fn poll_finish_continue(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unsent_continue.len() == CONTINUE.len() {
            self.unsent_continue = b"";
        }
        if self.unsent_continue.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.poll_continue(context)
    }

    /// Passes the body to its reader, and detects that the client hangs up.
    pub(crate) fn poll_event(
        &mut self,
        body: &mut BodyState,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionEvent> {
        let sender = match body {
            BodyState::Complete => return self.poll_client_left(context),
            BodyState::Abandoned => return Poll::Pending,
            BodyState::Reading(sender) => sender,
        };
        match sender.demand(context) {
            Demand::More => {}
            Demand::Nothing => return Poll::Pending,
            Demand::ReaderGone => {
                self.abandon(body);
                return match body {
                    BodyState::Complete => self.poll_client_left(context),
                    BodyState::Reading(_) | BodyState::Abandoned => Poll::Pending,
                };
            }
        }
        loop {
            match self.requests.next(&mut self.input) {
                Ok(Next::Data(data)) => {
                    sender.send(data, context);
                    if self.requests.left() != Some(0) {
                        break;
                    }
                }
                Ok(Next::More) => {
                    let sent = ready!(self.poll_continue(context));
                    let read = sent.and(ready!(self.poll_read(context)));
                    if !read.is_ok_and(|count| count > 0) {
                        *body = BodyState::Abandoned;
                        break;
                    }
                }
                Ok(Next::End) => {
                    sender.end(context);
                    *body = BodyState::Complete;
                    break;
                }
                Ok(Next::Head(_)) | Err(_) => {
                    *body = BodyState::Abandoned;
                    break;
                }
            }
        }
        Poll::Ready(ConnectionEvent::BodyAdvanced)
    }

    /// Sets the state of a body that has no reader any more. It is complete if only its end was left to read.
    fn abandon(&mut self, body: &mut BodyState) {
        *body = match self.requests.next(&mut self.input) {
            Ok(Next::End) => BodyState::Complete,
            _ => BodyState::Abandoned,
        };
    }

    /// Whether the start of the next request will be known: the body has been read to its end, or still has a reader.
    ///
    /// It is unknown if the client waits for a `100 Continue` that was not sent: the client may send the body or not.
    pub(crate) fn can_find_next_request(&mut self, body: &mut BodyState) -> bool {
        let continue_is_unsent = self.unsent_continue.len() == CONTINUE.len();
        if let BodyState::Reading(sender) = body {
            if continue_is_unsent {
                *body = BodyState::Abandoned;
            } else if sender.reader_is_gone() {
                self.abandon(body);
            }
        }
        !matches!(body, BodyState::Abandoned)
    }

    /// Detects that the client hangs up while the response to a completely read request is pending. Bytes that arrive
    /// belong to the next request and are kept.
    fn poll_client_left(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEvent> {
        if !self.input.is_empty() {
            return Poll::Pending;
        }
        // A small buffer: clients seldom send anything while they wait for a response.
        let mut bytes = [0; 64];
        let mut bytes = ReadBuf::new(&mut bytes);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut bytes)) {
            Ok(()) if !bytes.filled().is_empty() => {
                self.input.extend_from_slice(bytes.filled());
                Poll::Pending
            }
            _ => Poll::Ready(ConnectionEvent::ClientLeft),
        }
    }

    /// Shuts down the sending side; `false` if that failed.
    pub(crate) async fn close(&mut self) -> bool {
        let closed = poll_fn(|context| Pin::new(&mut self.stream).poll_shutdown(context));
        closed.await.is_ok()
    }

    /// Reads and discards for a while what the client still sends. If a connection is closed with unread bytes, the
    /// kernel resets it, and the reset can arrive before the response with the error.
    pub(crate) async fn linger(&mut self) {
        self.timer.as_mut().reset(Instant::now() + LINGER);
        poll_fn(|context| self.poll_linger(context)).await;
    }

    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut discarded = [0; LINGER_BYTES];
        // The timer is polled first: while a client sends without a pause, the read is always ready.
        while self.timer.as_mut().poll(context).is_pending() {
            let mut discarded = ReadBuf::new(&mut discarded);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut discarded));
            if read.is_err() || discarded.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}
