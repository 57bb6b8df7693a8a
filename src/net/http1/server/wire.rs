//! The bytes of a connection: read, in time, and let go in good order.

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

use super::{
    framing::{Broken, Framing, Next},
    head::{self, Head},
    incoming::{Feed, Wish},
};
use crate::net::{
    http1::{MAX_HEAD_BYTES, Refused},
    read_buffer,
};

/// What an HTTP/2 connection begins with.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const MOST_READ: usize = 64 << 10;
const LINGER_BYTES: usize = 4 << 10;
/// How long a client that was refused may go on sending before it is hung up on.
const LINGER: Duration = Duration::from_secs(5);

/// How long a client may take.
#[derive(Clone, Copy)]
pub struct Timeouts {
    /// For the first byte of a request.
    pub idle: Duration,
    /// For its head, once it has begun.
    pub head: Duration,
}

pub struct Wire<S> {
    pub stream: S,
    /// What was read and has not been looked at.
    pub input: BytesMut,
    framing: Framing,
    /// What is to be said before the body of a request comes.
    go_on: &'static [u8],
    timeouts: Timeouts,
    waiting: Waiting,
    timer: Pin<Box<Sleep>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    ForTheFirstByte,
    ForTheRestOfAHead,
}

/// What comes where a request should.
pub enum Arrival {
    Request(Box<Head>),
    /// The request that stands in for one that was refused.
    Refused(Box<Request<()>>),
    Over,
}

/// What is known of the body of the request that is being answered.
pub enum Asking {
    /// It has been read.
    Over,
    Feeding(Feed),
    /// It will not be read to its end, so nobody knows where the next request begins.
    Abandoned,
}

/// What happened to the connection while a request is answered.
pub enum Noticed {
    /// The reader of its body has something new to look at.
    Fed,
    /// The client has hung up.
    Left,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub fn new(stream: S, timeouts: Timeouts) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            framing: Framing::new(),
            go_on: b"",
            timeouts,
            waiting: Waiting::No,
            timer: Box::pin(sleep(timeouts.idle)),
        }
    }

    /// Whether HTTP/2 is spoken. Waits for the first bytes, as long as they may take.
    pub fn poll_http2(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.input.starts_with(HTTP2_PREFACE) {
                return Poll::Ready(true);
            }
            if !HTTP2_PREFACE.starts_with(&self.input) {
                return Poll::Ready(false);
            }
            match self.poll_read_in_time(context) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether nothing has come of the next request.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    pub fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            match self.framing.next(&mut self.input) {
                Ok(Next::Head(head)) => {
                    self.waiting = Waiting::No;
                    return Poll::Ready(Arrival::Request(head));
                }
                Ok(_) => {}
                Err(Broken::Head(refused)) => return Poll::Ready(self.refuse(refused)),
                Err(Broken::Body) => return Poll::Ready(Arrival::Over),
            }
            if ready!(self.poll_read_in_time(context)) {
                continue;
            }
            // One that has begun is told why it is not heard.
            let is_late = self.waiting == Waiting::ForTheRestOfAHead && self.timer.is_elapsed();
            return Poll::Ready(if is_late {
                self.refuse(Refused::TooSlow)
            } else {
                Arrival::Over
            });
        }
    }

    fn refuse(&mut self, refused: Refused) -> Arrival {
        let head = &self.input[..self.input.len().min(MAX_HEAD_BYTES)];
        Arrival::Refused(Box::new(refused.request(head::request_id(head))))
    }

    /// Reads for a request; `false` where the connection or the client's time is over.
    fn poll_read_in_time(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let read = self.poll_read(context);
        if let Poll::Ready(read) = read {
            return Poll::Ready(read.is_ok_and(|count| count > 0));
        }
        let (waiting, timeouts) = if self.input.is_empty() {
            self.input = BytesMut::new(); // an idle connection keeps no buffer
            (Waiting::ForTheFirstByte, self.timeouts.idle)
        } else {
            (Waiting::ForTheRestOfAHead, self.timeouts.head)
        };
        if self.waiting != waiting {
            self.waiting = waiting;
            self.timer.as_mut().reset(Instant::now() + timeouts);
        }
        self.timer.as_mut().poll(context).map(|()| false)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Large bodies in large pieces.
        let left = usize::try_from(self.framing.left().unwrap_or(0)).unwrap_or(usize::MAX);
        let stream = Pin::new(&mut self.stream);
        read_buffer::poll_read(stream, context, &mut self.input, left.min(MOST_READ))
    }

    /// All of the request's body, if it has come already.
    pub fn whole_body(&mut self) -> Option<Bytes> {
        let left = self.framing.left()?;
        if left > self.input.len() as u64 {
            return None;
        }
        let mut body = Bytes::new();
        while let Ok(Next::Data(data)) = self.framing.next(&mut self.input) {
            body = data; // one piece, where the length is known
        }
        Some(body)
    }

    /// How long the rest of the body is, where that was announced.
    pub fn announced(&self) -> Option<u64> {
        self.framing.left()
    }

    /// The client sends the body when it is told to, which is when somebody reads it.
    pub fn says_continue(&mut self) {
        self.go_on = CONTINUE;
    }

    fn poll_continue(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        while !self.go_on.is_empty() {
            let count = ready!(stream.as_mut().poll_write(context, self.go_on))?;
            self.go_on = &self.go_on[count..];
        }
        stream.poll_flush(context)
    }

    /// The rest of it, if it was begun: an answer comes after it, or in its place.
    pub fn poll_begun_continue(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.go_on.len() == CONTINUE.len() {
            self.go_on = b"";
        }
        if self.go_on.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.poll_continue(context)
    }

    /// Brings the body to who reads it, and notices when the client hangs up.
    pub fn poll_notice(&mut self, asking: &mut Asking, context: &mut Context<'_>) -> Poll<Noticed> {
        let feed = match asking {
            Asking::Over => return self.poll_left(context),
            Asking::Abandoned => return Poll::Pending,
            Asking::Feeding(feed) => feed,
        };
        match feed.wish(context) {
            Wish::More => {}
            Wish::Nothing => return Poll::Pending,
            Wish::Gone => {
                self.abandon(asking);
                return match asking {
                    Asking::Over => self.poll_left(context),
                    Asking::Feeding(_) | Asking::Abandoned => Poll::Pending,
                };
            }
        }
        loop {
            match self.framing.next(&mut self.input) {
                Ok(Next::Data(data)) => {
                    feed.give(data, context);
                    if self.framing.left() != Some(0) {
                        break;
                    }
                }
                Ok(Next::More) => {
                    let said = ready!(self.poll_continue(context));
                    let read = said.and(ready!(self.poll_read(context)));
                    if !read.is_ok_and(|count| count > 0) {
                        *asking = Asking::Abandoned;
                        break;
                    }
                }
                Ok(Next::End) => {
                    feed.end(context);
                    *asking = Asking::Over;
                    break;
                }
                Ok(Next::Head(_)) | Err(_) => {
                    *asking = Asking::Abandoned;
                    break;
                }
            }
        }
        Poll::Ready(Noticed::Fed)
    }

    /// Nobody reads the body any more; if it is over, that does not matter.
    fn abandon(&mut self, asking: &mut Asking) {
        *asking = match self.framing.next(&mut self.input) {
            Ok(Next::End) => Asking::Over,
            _ => Asking::Abandoned,
        };
    }

    /// Whether the next request can be found: this one has been read, or somebody still does that. A body that
    /// the client was not told to send may come, or may not.
    pub fn finds_the_next(&mut self, asking: &mut Asking) -> bool {
        let was_not_told = self.go_on.len() == CONTINUE.len();
        if let Asking::Feeding(feed) = asking {
            if was_not_told {
                *asking = Asking::Abandoned;
            } else if feed.reader_is_gone() {
                self.abandon(asking);
            }
        }
        !matches!(asking, Asking::Abandoned)
    }

    /// A request is over, and its answer is not: what comes now is the next one, or the client's end.
    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<Noticed> {
        if !self.input.is_empty() {
            return Poll::Pending;
        }
        // Little room: while an answer is long, nothing comes here.
        let mut few = [0; 64];
        let mut few = ReadBuf::new(&mut few);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut few)) {
            Ok(()) if !few.filled().is_empty() => {
                self.input.extend_from_slice(few.filled());
                Poll::Pending
            }
            _ => Poll::Ready(Noticed::Left),
        }
    }

    /// Says that nothing more will be sent.
    pub async fn close(&mut self) -> bool {
        let closed = poll_fn(|context| Pin::new(&mut self.stream).poll_shutdown(context));
        closed.await.is_ok()
    }

    /// Takes what a client still sends off the wire for a while. A connection closed on unread bytes is reset, and the
    /// reset can overtake the answer that says why.
    pub async fn linger(&mut self) {
        self.timer.as_mut().reset(Instant::now() + LINGER);
        poll_fn(|context| self.poll_linger(context)).await;
    }

    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut unread = [0; LINGER_BYTES];
        // The time first: whoever sends without a pause would never let it be looked at.
        while self.timer.as_mut().poll(context).is_pending() {
            let mut unread = ReadBuf::new(&mut unread);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut unread));
            if read.is_err() || unread.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}
