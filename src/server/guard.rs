//! What stands between a connection and the HTTP library: heads that are whole, clear and in time.
//!
//! A head is held back until it is complete and has been checked, so nothing of a bad one reaches a
//! handler. In its place goes a request that the router answers with the reason, and after it the
//! connection is over. A body that breaks its own frame ends where it does, which fails its request.
//!
//! What arrives in one piece is checked where it lies, in the library's own buffer, and not copied.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::io::poll_read_buf;

use super::{
    framing::{Broken, Framing, Scanned},
    head,
};
use crate::http::{MAX_HEAD_BYTES, Refused};

/// The least room in the reader's buffer for which it is worth reading into it.
const DIRECT_BYTES: usize = 1 << 10;
const READ_BYTES: usize = 4 << 10;
/// How long a client that was refused may go on sending before it is hung up on.
const LINGER: Duration = Duration::from_secs(5);

pub struct Guard<S> {
    stream: S,
    framing: Framing,
    /// Bytes that were read and not handed on. The first `cleared` of them may be.
    held: BytesMut,
    cleared: usize,
    head_patience: Duration,
    waiting: Waiting,
    timer: Pin<Box<Sleep>>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    ForTheFirstByte,
    ForTheRestOfAHead,
    /// The HTTP library has the word: it knows whether an answer is under way.
    No,
}

/// Whether anything more is handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Over,
    /// The last request is one of ours. To say now that this is the end would cancel it; its answer
    /// closes the connection.
    Replaced,
    /// We have hung up, and listen until the client has.
    Lingering,
}

impl<S: AsyncRead + Unpin> Guard<S> {
    /// `idle` is how long the first byte may take, `head` how long a head may once it has begun.
    pub fn new(stream: S, idle: Duration, head: Duration) -> Self {
        Self {
            stream,
            framing: Framing::new(),
            held: BytesMut::new(),
            cleared: 0,
            head_patience: head,
            waiting: Waiting::ForTheFirstByte,
            timer: Box::pin(sleep(idle)),
            end: End::Open,
        }
    }

    /// Reads once, into `buffer` where that can be done. Ready with what there is to hand on, or with
    /// the end; else with nothing new in `buffer`.
    fn read_more(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let direct = buffer.remaining() >= DIRECT_BYTES || self.framing.is_http2();
        let scanned = if direct && self.held.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let fresh = &buffer.filled()[before..];
            if fresh.is_empty() {
                self.end = End::Over;
            }
            let scanned = self.framing.scan(fresh);
            self.held.extend_from_slice(&fresh[scanned.passed..]);
            buffer.set_filled(before + scanned.passed);
            scanned
        } else {
            self.held.reserve(READ_BYTES);
            let stream = Pin::new(&mut self.stream);
            if ready!(poll_read_buf(stream, context, &mut self.held))? == 0 {
                self.end = End::Over;
            }
            let scanned = self.framing.scan(&self.held);
            self.cleared = scanned.passed;
            scanned
        };
        self.after(&scanned);
        Poll::Ready(Ok(()))
    }

    fn after(&mut self, scanned: &Scanned) {
        if let Some(broken) = scanned.broken {
            return self.refuse(broken);
        }
        let begun = self.held.len() > self.cleared;
        if !begun {
            self.waiting = Waiting::No;
        } else if scanned.passed > 0 || self.waiting != Waiting::ForTheRestOfAHead {
            self.waiting = Waiting::ForTheRestOfAHead;
            let deadline = Instant::now() + self.head_patience;
            self.timer.as_mut().reset(deadline);
        }
    }

    fn refuse(&mut self, broken: Broken) {
        let head = self.held.split_off(self.cleared);
        if let Broken::Head(refused) = broken {
            let head = &head[..head.len().min(MAX_HEAD_BYTES)];
            let instead = refused.request(head::request_id(head));
            self.held.extend_from_slice(&instead);
            self.cleared = self.held.len();
            self.end = End::Replaced;
        } else {
            self.end = End::Over; // in the middle of a body, which fails by it
        }
        self.waiting = Waiting::No;
    }

    /// The client has run out of time for what is waited for.
    fn give_up(&mut self) {
        match self.waiting {
            Waiting::ForTheFirstByte => self.end = End::Over,
            Waiting::ForTheRestOfAHead => self.refuse(Broken::Head(Refused::TooSlow)),
            Waiting::No => {}
        }
    }

    /// Takes what a refused client still sends off the wire. A connection closed on unread bytes is
    /// reset, and the reset can overtake the answer that says why.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut unread = [0; READ_BYTES];
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

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        loop {
            if this.cleared > 0 {
                let count = this.cleared.min(buffer.remaining());
                buffer.put_slice(&this.held[..count]);
                this.held.advance(count);
                this.cleared -= count;
                if this.held.is_empty() {
                    this.held = BytesMut::new(); // an idle connection keeps no buffer
                }
            }
            if buffer.filled().len() > before || this.end == End::Over {
                return Poll::Ready(Ok(()));
            }
            if this.end != End::Open {
                return Poll::Pending;
            }
            if this.read_more(context, buffer)?.is_pending() {
                if this.waiting == Waiting::No {
                    return Poll::Pending;
                }
                ready!(this.timer.as_mut().poll(context));
                this.give_up();
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.end != End::Lingering {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            if this.end == End::Open {
                return Poll::Ready(Ok(()));
            }
            this.end = End::Lingering;
            this.timer.as_mut().reset(Instant::now() + LINGER);
        }
        this.poll_linger(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const IDLE: Duration = Duration::from_secs(75);
    const HEAD: Duration = Duration::from_secs(10);
    const GOOD: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    fn guarded() -> (Guard<DuplexStream>, DuplexStream) {
        let (client, server) = duplex(1 << 20);
        (Guard::new(server, IDLE, HEAD), client)
    }

    /// All that is handed on, into buffers of this size, and when the last of it was.
    async fn handed_on(mut guard: Guard<DuplexStream>, room: usize) -> (String, Duration) {
        let (started, mut took, mut all) = (Instant::now(), Duration::ZERO, Vec::new());
        let mut buffer = vec![0; room];
        // After a request of ours there is silence instead of an end.
        let patience = Duration::from_hours(1);
        while let Ok(read) = tokio::time::timeout(patience, guard.read(&mut buffer)).await {
            took = started.elapsed();
            match read.unwrap() {
                0 => break,
                read => all.extend_from_slice(&buffer[..read]),
            }
        }
        (String::from_utf8(all).unwrap(), took)
    }

    #[tokio::test(start_paused = true)]
    async fn a_bad_head_is_replaced_whatever_the_buffer() {
        let good = String::from_utf8(GOOD.to_vec()).unwrap();
        let large = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
            "x".repeat(50_000)
        );
        for room in [1, 24, 1_023, 1_024, 100_000] {
            let (guard, mut client) = guarded();
            let bad = "GET / HTTP/1.1\nX-Request-Id:  mine \n\nx-request-id: another\n";
            let sent = format!("{good}{large}{bad}{good}");
            client.write_all(sent.as_bytes()).await.unwrap();
            let instead =
                "REFUSED /line-ends HTTP/1.1\r\nx-request-id: mine\r\nconnection: close\r\n\r\n";
            let (read, _) = handed_on(guard, room).await;
            assert_eq!(read, format!("{good}{large}{instead}"), "{room}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_is_refused_in_time() {
        let (guard, mut client) = guarded();
        client.write_all(GOOD).await.unwrap();
        let dripping = tokio::spawn(async move {
            let head = b"GET / HTTP/1.1\r\nx-request-id: slow\r\nx: ";
            for byte in head.iter().chain(std::iter::repeat(&b'x')) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if client.write_all(&[*byte]).await.is_err() {
                    return;
                }
            }
        });
        let (read, took) = handed_on(guard, 8 << 10).await;
        let good = String::from_utf8(GOOD.to_vec()).unwrap();
        let instead =
            "REFUSED /too-slow HTTP/1.1\r\nx-request-id: slow\r\nconnection: close\r\n\r\n";
        assert_eq!(read, format!("{good}{instead}"));
        // The time of the paused clock, so it is exact but for its grain.
        let begun = Duration::from_millis(100);
        assert!(took >= HEAD + begun && took < HEAD + begun * 2, "{took:?}");
        dripping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_head_has_its_time_and_the_next_one_has_it_again() {
        let (mut guard, mut client) = guarded();
        tokio::spawn(async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_mins(1)).await; // idle, which is no hurry of ours
                let (start, end) = GOOD.split_at(8);
                client.write_all(start).await.unwrap();
                tokio::time::sleep(HEAD * 99 / 100).await;
                client.write_all(end).await.unwrap();
            }
        });
        let mut read = vec![0; GOOD.len()];
        for _ in 0..3 {
            guard.read_exact(&mut read).await.unwrap();
            assert_eq!(read, GOOD);
        }
        assert_eq!(guard.read(&mut read).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_byte_is_over_after_its_time() {
        let (guard, _client) = guarded();
        let (read, took) = handed_on(guard, 24).await;
        assert_eq!(read, "");
        assert!(took >= IDLE && took < IDLE + Duration::from_secs(1));
    }

    /// Waiting for the next request is the HTTP library's business: here an answer may be under way.
    #[tokio::test(start_paused = true)]
    async fn between_requests_there_is_no_limit() {
        let (mut guard, mut client) = guarded();
        client.write_all(GOOD).await.unwrap();
        guard.read_exact(&mut vec![0; GOOD.len()]).await.unwrap();
        let mut byte = [0];
        let waiting = tokio::time::timeout(Duration::from_hours(1), guard.read(&mut byte));
        assert!(waiting.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_refused_client_still_sends_is_taken_for_a_while() {
        let (mut guard, mut client) = guarded();
        client.write_all(b"nonsense\n\n").await.unwrap();
        assert_ne!(guard.read(&mut [0; 1_024]).await.unwrap(), 0);
        let flooding = tokio::spawn(async move {
            while client.write_all(&[b'x'; 1 << 10]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Instant::now()
        });
        let started = Instant::now();
        guard.shutdown().await.unwrap();
        drop(guard);
        let lasted = flooding.await.unwrap() - started;
        assert!(lasted >= LINGER && lasted < LINGER * 2, "{lasted:?}");
    }
}
