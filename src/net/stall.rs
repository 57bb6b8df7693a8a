//! Fails connections whose client has stopped reading, so that they do not keep their response in memory for ever.
//!
//! A write then returns an error, as if the client had hung up, and the response is dropped. The call is settled by
//! `metered`, like any abandoned one.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

/// A socket whose writes fail with `TimedOut` when the peer has accepted no bytes for `limit`.
///
/// The time runs only while bytes wait to be written: a client that waits for a slow response has not stalled.
pub(crate) struct StallLimit {
    socket: TcpStream,
    limit: Duration,
    /// Created when the first write has to wait, which for most connections is never.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether a write waits and the timer runs.
    waiting: bool,
}

impl StallLimit {
    pub(crate) fn new(socket: TcpStream, limit: Duration) -> Self {
        Self {
            socket,
            limit,
            timer: None,
            waiting: false,
        }
    }

    /// Returns the result of a write, or `TimedOut` if it has waited for the limit. Before that, `retry` tries to write
    /// once more.
    fn within_limit(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        retry: impl FnOnce(SockRef<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep(self.limit)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(timer.as_mut().poll(context));
        self.waiting = false;
        // The kernel reports a socket as writable only when a large part of its buffer is free. A slow reader may need
        // longer than the limit for that; it has not stalled if there is room for at least one byte.
        let retried = retry(SockRef::from(&self.socket));
        Poll::Ready(retried.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "the client has stopped reading")
            }
            _ => error,
        }))
    }
}

impl AsyncRead for StallLimit {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallLimit {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.within_limit(context, written, |socket| socket.send(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(context, slices);
        this.within_limit(context, written, |socket| socket.send_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpSocket},
    };

    use super::*;

    /// A socket with the limit, and its client, whose receive buffer is small.
    async fn pair(limit: Duration) -> (StallLimit, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(16 << 10).unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(client.connect(address), listener.accept());
        let socket = StallLimit::new(accepted.unwrap().0, limit);
        (socket, client.unwrap())
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_times_out() {
        let (mut socket, client) = pair(Duration::from_millis(300)).await;
        let more_than_fits = vec![b'x'; 64 << 20];
        let written =
            tokio::time::timeout(Duration::from_mins(1), socket.write_all(&more_than_fits));
        let error = written.await.expect("a timeout of the socket").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    /// It reads so little that the kernel never reports the socket as writable.
    #[tokio::test]
    async fn a_client_that_reads_slowly_does_not_time_out() {
        const LIMIT: Duration = Duration::from_secs(3);
        let (mut socket, mut client) = pair(LIMIT).await;
        let writing = tokio::spawn(async move {
            let bytes = vec![b'x'; 64 << 20];
            let mut written = 0;
            loop {
                match socket.write(&bytes).await {
                    Ok(more) => written += more,
                    Err(error) => return (written, error.kind()),
                }
            }
        });
        let started = Instant::now();
        let mut read = 0;
        let mut buffer = vec![0; 8 << 10];
        while started.elapsed() < LIMIT * 3 {
            read += client.read(&mut buffer).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(!writing.is_finished(), "cut off after {read} bytes");
        drop(client);
        let (written, error) = writing.await.unwrap();
        assert!(written >= read);
        assert_ne!(error, io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_a_response_has_not_stalled() {
        let (mut socket, mut client) = pair(Duration::from_secs(1)).await;
        for _ in 0..3 {
            socket.write_all(b"a part").await.unwrap();
            let mut part = [0; 6];
            client.read_exact(&mut part).await.unwrap();
            tokio::time::sleep(Duration::from_hours(1)).await;
        }
    }
}
