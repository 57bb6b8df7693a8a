//! One connection to a provider, which speaks HTTP/1.1.
//!
//! A request goes out in one piece, and its answer is read by whoever waits for it, in a task of their own. So
//! nobody stands in between who would have to be woken for every piece of a stream, or have room for one.

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

pub use head::Head;
pub use pool::Pool;

use crate::{
    net::{
        connect::Stream,
        http1::body::{BodyFraming, Next},
        read_buffer::{self, SHARED_BYTES},
    },
    wire::error::UpstreamError,
};

/// How much is read at once where there is always more.
const MOST_READ: usize = 64 << 10;

pub struct Connection {
    stream: Stream,
    buffer: BytesMut,
    room: usize,
    framing: BodyFraming,
    keep_alive: bool,
    /// The thread that it belongs to.
    pub lane: usize,
}

impl Connection {
    pub fn new(stream: Stream, lane: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            room: SHARED_BYTES,
            framing: BodyFraming::Length(0),
            keep_alive: true,
            lane,
        }
    }

    /// Whether it is still open, and nothing came that nobody asked for.
    pub fn is_alive(&mut self) -> bool {
        let mut unasked = [0];
        let mut unasked = ReadBuf::new(&mut unasked);
        let read = poll_fn(|context| Pin::new(&mut self.stream).poll_read(context, &mut unasked));
        // Whatever this task has done before: to be told to wait for that would look alive.
        unconstrained(read).now_or_never().is_none()
    }

    /// Whether another request may be sent: the last answer was read to its end.
    pub fn is_free(&self) -> bool {
        self.keep_alive && self.framing.is_over() && self.buffer.is_empty()
    }

    /// Whether that may still become so: nothing has come that was not read.
    pub fn may_be_free(&self) -> bool {
        self.keep_alive && self.buffer.is_empty()
    }

    pub fn keeps_no_buffer(&mut self) {
        self.buffer = BytesMut::new();
    }

    /// Sends a request; gives the head of its answer.
    pub async fn ask(&mut self, head: &[u8], body: &[u8]) -> Result<Head, UpstreamError> {
        self.keep_alive = false; // until there is an answer
        self.room = SHARED_BYTES;
        let mut unsent = Unsent {
            head,
            body,
            is_flushed: false,
        };
        let mut answer = poll_fn(|context| self.poll_exchange(&mut unsent, context)).await?;
        // Answered before all was said: what is left of it would be read as the next request.
        self.keep_alive = answer.keep_alive && unsent.is_flushed;
        self.framing = std::mem::replace(&mut answer.framing, BodyFraming::Length(0));
        Ok(answer)
    }

    /// Writes what can be written, and reads all the while: who refuses a large request does not wait for its
    /// end.
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
                    101 => return Poll::Ready(Err(broken("it speaks something else now"))),
                    100..200 => continue,
                    _ => return Poll::Ready(Ok(head)),
                }
            }
            match self.poll_read(context) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(broken("the connection ended before an answer")));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        // One that takes no more may have said why: that is read first, or the connection's end.
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

    /// The next bytes of the answer's body; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
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
                    self.keep_alive = false; // nobody knows what would come next
                    return Poll::Ready(Err(broken("a body that breaks its own frame")));
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

    /// Passes over the end of a body that has come and that nobody has read.
    pub fn skip_end(&mut self) {
        while let Some(Ok(Some(data))) = self.next().now_or_never() {
            if !data.is_empty() {
                self.keep_alive = false; // more than an end
                return;
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, UpstreamError>> {
        let stream = Pin::new(&mut self.stream);
        let read = read_buffer::poll_read(stream, context, &mut self.buffer, self.room);
        let Poll::Ready(read) = read else {
            if self.buffer.is_empty() {
                self.buffer = BytesMut::new(); // one that waits keeps no buffer
            }
            return Poll::Pending;
        };
        let count = read.map_err(|error| broken(&error.to_string()))?;
        if count >= self.room {
            self.room = (2 * self.room).min(MOST_READ);
        }
        Poll::Ready(Ok(count))
    }
}

/// What is still to be sent of a request.
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
        let of_head = count.min(self.head.len());
        self.head = &self.head[of_head..];
        self.body = &self.body[count - of_head..];
    }
}

fn broken(what: &str) -> UpstreamError {
    UpstreamError::Broken(what.to_owned())
}

#[cfg(test)]
mod tests;
