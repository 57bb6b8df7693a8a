//! HTTP/1.1 client: one connection to a provider.
//!
//! The task that waits for a response reads it from the socket itself. There is no connection task in between, which
//! would have to be woken for each piece of a stream and to buffer it. A malformed response or one that was cut off is
//! an [`UpstreamError`], and its connection is not reused.
//!
//! HTTP/1 has no request IDs: the next bytes on a connection are the next response. So that no caller gets the response
//! of another, a connection is reused only if its last response has certainly ended, its request was sent completely,
//! and nothing has arrived since (`pool.rs`).

use std::{
    future::poll_fn,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use tokio::{io::AsyncWrite as _, task::unconstrained};

mod distrust;
mod pool;

pub(crate) use pool::Pool;
pub use pool::Reuse;

use crate::{
    net::{
        connect::Stream,
        http1::codec::{
            BadResponse, BodyFraming, NextOfBody as Next, ResponseHead, ResponseReader,
        },
        read_buffer::{self, SHARED_BYTES},
        unread::Unread,
    },
    wire::error::UpstreamError,
};

/// Most bytes that are read at once, for responses that keep filling the buffer.
const MAX_READ_BYTES: usize = 64 << 10;

/// A connection to a provider, with the state of its current response.
pub(crate) struct Connection {
    stream: Stream,
    buffer: BytesMut,
    /// How many bytes the next read takes at most; it grows while reads fill it.
    read_size: usize,
    framing: BodyFraming,
    keep_alive: bool,
    /// Whether no request was sent yet.
    is_new: bool,
    /// Number of the lane whose thread owns the connection.
    pub lane: usize,
}

impl Connection {
    pub(crate) fn new(stream: Stream, lane: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            read_size: SHARED_BYTES,
            framing: BodyFraming::Length(0),
            keep_alive: true,
            is_new: true,
            lane,
        }
    }

    /// What has arrived and was not read. Only for a connection without a response that is being read.
    fn unread(&mut self) -> Unread {
        self.stream.unread()
    }

    /// The first bytes that arrive on a connection without a request; none if it ends.
    async fn first_bytes(&mut self) -> Result<Bytes, UpstreamError> {
        poll_fn(|context| self.poll_read(context)).await?;
        Ok(self.buffer.split().freeze())
    }

    /// Whether another request may be sent: the last response was read to its end.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive && self.framing.is_over() && self.buffer.is_empty()
    }

    /// Whether the last response was read to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.framing.is_over()
    }

    /// Whether bytes followed a response after which the connection would have been reusable.
    fn has_surplus(&self) -> bool {
        self.keep_alive && self.framing.is_over() && !self.buffer.is_empty()
    }

    /// Whether the connection may become reusable when the end of the response arrives: no bytes are unread.
    pub(crate) fn may_become_reusable(&self) -> bool {
        self.keep_alive && self.buffer.is_empty()
    }

    /// Frees the buffer of an idle connection.
    pub(crate) fn free_buffer(&mut self) {
        self.buffer = BytesMut::new();
    }

    /// Sends a request and returns the head of its response.
    ///
    /// A connection from the pool must be used without waiting in between: [`Pool::take`] has just checked it.
    pub(crate) async fn send(
        &mut self,
        head: &[u8],
        body: &[u8],
    ) -> Result<ResponseHead, UpstreamError> {
        self.keep_alive = false; // until there is a response
        if std::mem::take(&mut self.is_new) && matches!(self.unread(), Unread::Bytes(_)) {
            return Err(broken("the provider sent bytes before the request"));
        }
        self.read_size = SHARED_BYTES;
        let mut unsent = Unsent {
            head,
            body,
            is_begun: false,
            is_flushed: false,
        };
        let mut reader = ResponseReader::default();
        let exchange = poll_fn(|context| self.poll_exchange(&mut unsent, &mut reader, context));
        // Unconstrained: a task without cooperative budget would send later than the connection was checked.
        let mut response = unconstrained(exchange).await?;
        // If the response came before the request was sent, the rest would be read as the next request.
        self.keep_alive = response.keep_alive && unsent.is_flushed;
        self.framing = std::mem::replace(&mut response.framing, BodyFraming::Length(0));
        Ok(response)
    }

    /// Writes the request and reads meanwhile: a provider that refuses a large request may respond before its end.
    fn poll_exchange(
        &mut self,
        unsent: &mut Unsent<'_>,
        reader: &mut ResponseReader,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, UpstreamError>> {
        let sent = self.poll_send(unsent, context);
        if !unsent.is_begun {
            // Bytes that can be read now are no response to this request.
            return match sent {
                Poll::Ready(Err(error)) => Poll::Ready(Err(broken(&error.to_string()))),
                _ => Poll::Pending,
            };
        }
        loop {
            let head = reader.next(&mut self.buffer);
            let malformed = |error: BadResponse| UpstreamError::Malformed(error.to_string());
            if let Some(head) = head.map_err(malformed)? {
                return Poll::Ready(Ok(head));
            }
            match self.poll_read(context) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(broken("the connection ended before a response")));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        // A failed write is reported last: the provider may have sent a response with the reason, or closed the
        // connection, which the read above returns.
        match sent {
            Poll::Ready(Err(error)) if error.kind() == std::io::ErrorKind::WriteZero => {
                Poll::Ready(Err(broken(&error.to_string())))
            }
            _ => Poll::Pending,
        }
    }

    fn poll_send(
        &mut self,
        unsent: &mut Unsent<'_>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        while !unsent.is_empty() {
            let slices = [IoSlice::new(unsent.head), IoSlice::new(unsent.body)];
            match ready!(stream.as_mut().poll_write_vectored(context, &slices))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                count => unsent.advance(count),
            }
        }
        if !unsent.is_flushed {
            ready!(stream.poll_flush(context))?;
            unsent.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// The next bytes of the response body; `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, UpstreamError>> {
        loop {
            match self.framing.next(&mut self.buffer) {
                Ok(Next::Data(data)) => return Poll::Ready(Ok(Some(data))),
                Ok(Next::End) => return Poll::Ready(Ok(None)),
                Ok(Next::More) => {}
                Err(_) => {
                    self.keep_alive = false; // the start of the next response is unknown
                    return Poll::Ready(Err(broken("the framing of the body is malformed")));
                }
            }
            if ready!(self.poll_read(context))? > 0 {
                continue;
            }
            self.keep_alive = false;
            if !self.framing.may_end() {
                return Poll::Ready(Err(broken("the connection ended in the middle of a body")));
            }
            self.framing = BodyFraming::Length(0);
        }
    }

    /// Reads the end of a body if it has arrived. If there is more data, the connection is not reused.
    pub(crate) fn skip_end(&mut self) {
        while let Some(Ok(Some(data))) = self.next().now_or_never() {
            if !data.is_empty() {
                self.keep_alive = false; // data, not only the end
                return;
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, UpstreamError>> {
        let stream = Pin::new(&mut self.stream);
        let read = read_buffer::poll_read(stream, context, &mut self.buffer, self.read_size);
        let Poll::Ready(read) = read else {
            if self.buffer.is_empty() {
                self.buffer = BytesMut::new(); // a waiting connection keeps no buffer
            }
            return Poll::Pending;
        };
        let count = read.map_err(|error| broken(&error.to_string()))?;
        if count >= self.read_size {
            self.read_size = (2 * self.read_size).min(MAX_READ_BYTES);
        }
        Poll::Ready(Ok(count))
    }
}

/// The part of a request that is not sent yet.
struct Unsent<'a> {
    head: &'a [u8],
    body: &'a [u8],
    /// Whether a part of it was written.
    is_begun: bool,
    is_flushed: bool,
}

impl Unsent<'_> {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn advance(&mut self, count: usize) {
        self.is_begun = true;
        let from_head = count.min(self.head.len());
        self.head = &self.head[from_head..];
        self.body = &self.body[count - from_head..];
    }
}

fn broken(what: &str) -> UpstreamError {
    UpstreamError::Broken(what.to_owned())
}

#[cfg(test)]
mod mixed_up_tests;
#[cfg(test)]
mod tests;
