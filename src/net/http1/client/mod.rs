//! HTTP/1.1 client: one connection to a provider.
//!
//! The task that waits for a response reads it from the socket itself. There is no connection task in between, which
//! would have to be woken for each piece of a stream and to buffer it. A malformed response or one that was cut off is
//! an [`UpstreamError`], and its connection is not reused.

use std::{
    future::poll_fn,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, ReadBuf},
    task::unconstrained,
};

mod head;
mod pool;

pub(crate) use head::Head;
pub(crate) use pool::Pool;

use crate::{
    net::{
        connect::Stream,
        http1::body::{BodyFraming, Next},
        read_buffer::{self, SHARED_BYTES},
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
            lane,
        }
    }

    /// Whether the connection is open and has no unsolicited bytes.
    pub(crate) fn is_alive(&mut self) -> bool {
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        let read = poll_fn(|context| Pin::new(&mut self.stream).poll_read(context, &mut byte));
        // Unconstrained, because a task without cooperative budget would get `Pending`, as from an open connection.
        unconstrained(read).now_or_never().is_none()
    }

    /// Whether another request may be sent: the last response was read to its end.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive && self.framing.is_over() && self.buffer.is_empty()
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
    pub(crate) async fn send(&mut self, head: &[u8], body: &[u8]) -> Result<Head, UpstreamError> {
        self.keep_alive = false; // until there is a response
        self.read_size = SHARED_BYTES;
        let mut unsent = Unsent {
            head,
            body,
            is_flushed: false,
        };
        let mut response = poll_fn(|context| self.poll_exchange(&mut unsent, context)).await?;
        // If the response came before the request was sent, the rest would be read as the next request.
        self.keep_alive = response.keep_alive && unsent.is_flushed;
        self.framing = std::mem::replace(&mut response.framing, BodyFraming::Length(0));
        Ok(response)
    }

    /// Writes the request and reads meanwhile: a provider that refuses a large request may respond before its end.
    fn poll_exchange(
        &mut self,
        unsent: &mut Unsent<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Head, UpstreamError>> {
        let sent = self.poll_send(unsent, context);
        loop {
            if let Some((head, length)) = Head::parse(&self.buffer)? {
                self.buffer.advance(length);
                match head.status {
                    101 => {
                        return Poll::Ready(Err(broken(
                            "the provider switched protocols (status 101)",
                        )));
                    }
                    100..200 => continue,
                    _ => return Poll::Ready(Ok(head)),
                }
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
    is_flushed: bool,
}

impl Unsent<'_> {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn advance(&mut self, count: usize) {
        let from_head = count.min(self.head.len());
        self.head = &self.head[from_head..];
        self.body = &self.body[count - from_head..];
    }
}

fn broken(what: &str) -> UpstreamError {
    UpstreamError::Broken(what.to_owned())
}

#[cfg(test)]
mod tests;
