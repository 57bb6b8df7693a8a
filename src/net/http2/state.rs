//! State that the tasks of a connection share: its running streams, how they ended, and its socket.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Requests that a client may cancel in one period of [`super::upkeep`], in addition to as many as it completes. Each
/// one costs the gateway a request, while a limit on concurrent streams does not count it any more.
const MAX_CANCELLED: u32 = 500;

/// The tasks of a connection run on one thread; atomics only because tasks must be `Send`.
#[derive(Default)]
pub(super) struct ConnectionState {
    running: AtomicU32,
    /// Streams of this period of which the whole response was sent.
    completed: AtomicU32,
    /// Streams of this period that the client reset before that.
    cancelled: AtomicU32,
    /// Whether the last write to the socket has to wait.
    write_blocked: AtomicBool,
    /// Whether bytes have arrived in this period.
    heard: AtomicBool,
}

impl ConnectionState {
    /// Whether a stream is running, or has ended in this period.
    pub(super) fn had_streams(&self) -> bool {
        [&self.running, &self.completed, &self.cancelled]
            .iter()
            .any(|count| count.load(Relaxed) > 0)
    }

    /// Whether data waits for the socket. A client that does not read from it is disconnected by `net::stall`.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Relaxed)
    }

    pub(super) fn is_flooded_with_cancellations(&self) -> bool {
        let allowed = self.completed.load(Relaxed).saturating_add(MAX_CANCELLED);
        self.cancelled.load(Relaxed) > allowed
    }

    /// Starts a new period; returns whether bytes have arrived in the last one.
    pub(super) fn next_period(&self) -> bool {
        self.completed.store(0, Relaxed);
        self.cancelled.store(0, Relaxed);
        self.heard.swap(false, Relaxed)
    }
}

/// Counts a running stream until it is dropped.
pub(super) struct StreamGuard(Arc<ConnectionState>);

impl StreamGuard {
    pub(super) fn new(state: &Arc<ConnectionState>) -> Self {
        state.running.fetch_add(1, Relaxed);
        Self(state.clone())
    }

    pub(super) fn completed(&self) {
        self.0.completed.fetch_add(1, Relaxed);
    }

    pub(super) fn cancelled(&self) {
        self.0.cancelled.fetch_add(1, Relaxed);
    }

    pub(super) fn connection(&self) -> &ConnectionState {
        &self.0
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// The socket of a connection; records whether it accepts and delivers bytes.
pub(super) struct WatchedStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>) -> Self {
        Self { stream, state }
    }

    fn written<T>(&self, written: Poll<T>) -> Poll<T> {
        self.state
            .write_blocked
            .store(written.is_pending(), Relaxed);
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.state.heard.store(true, Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A TLS stream accepts bytes before it can pass them on, so that only its flush shows that they wait.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
