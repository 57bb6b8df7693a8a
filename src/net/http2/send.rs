//! Sends the body of a response within the client's window, and detects that the window stays closed.
//!
//! `h2` gets no more bytes than the windows of the stream and the connection allow, so that what it has can be sent as
//! soon as the socket accepts it. The rest stays in the body, which is dropped with the stream.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, HttpBody as _};
use bytes::{Buf, Bytes};
use h2::{Reason, SendStream};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};

use super::state::ConnectionState;

/// Bytes of a stream that `h2` may have at once.
pub(super) const SEND_BUFFER: usize = 64 << 10;

/// A piece of a body that is passed to `h2`.
pub(super) struct Piece {
    bytes: Bytes,
    /// Closed when `h2` drops the piece, because it was written or its stream was reset.
    _written: Option<oneshot::Sender<()>>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// Why the end of a body was not sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// The client reset the stream, or the connection has ended.
    Reset,
    /// The client took no data for too long.
    Stalled,
    /// The body itself failed.
    Body(axum::Error),
}

/// Sends one body.
pub(super) struct BodySender<'a> {
    stream: SendStream<Piece>,
    stall: StallTimer<'a>,
}

impl<'a> BodySender<'a> {
    pub(super) fn new(
        stream: SendStream<Piece>,
        connection: &'a ConnectionState,
        limit: Duration,
    ) -> Self {
        let stall = StallTimer {
            connection,
            limit,
            timer: None,
            is_running: false,
        };
        Self { stream, stall }
    }

    /// Sends the body to its end, or resets the stream.
    pub(super) async fn send(mut self, mut body: Body) -> Result<(), SendError> {
        let sent = self.send_frames(&mut body).await;
        match sent {
            Ok(()) | Err(SendError::Reset) => {}
            Err(SendError::Stalled) => self.stream.send_reset(Reason::CANCEL),
            Err(SendError::Body(_)) => self.stream.send_reset(Reason::INTERNAL_ERROR),
        }
        sent
    }

    async fn send_frames(&mut self, body: &mut Body) -> Result<(), SendError> {
        while let Some(mut data) = self.next_data(body).await? {
            while !data.is_empty() {
                let room = self.capacity(data.len()).await?;
                let piece = data.split_to(room.min(data.len()));
                if data.is_empty() && body.is_end_stream() {
                    return self.finish(piece).await;
                }
                self.pass_on(piece, None, false)?;
            }
        }
        self.finish(Bytes::new()).await
    }

    /// The next data of the body; `None` at its end.
    async fn next_data(&mut self, body: &mut Body) -> Result<Option<Bytes>, SendError> {
        poll_fn(|context| {
            loop {
                match Pin::new(&mut *body).poll_frame(context) {
                    Poll::Ready(None) => return Poll::Ready(Ok(None)),
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Err(SendError::Body(error)));
                    }
                    // Responses of the gateway have no trailers.
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Ok(Some(data)));
                        }
                    }
                    Poll::Pending => {
                        let reset = self.stream.poll_reset(context);
                        return reset.map(|_| Err(SendError::Reset));
                    }
                }
            }
        })
        .await
    }

    /// Waits until at least one byte can be sent; returns how many can.
    async fn capacity(&mut self, wanted: usize) -> Result<usize, SendError> {
        self.stream.reserve_capacity(wanted.min(SEND_BUFFER));
        poll_fn(|context| {
            let capacity = match self.stream.capacity() {
                0 => match self.stream.poll_capacity(context) {
                    Poll::Ready(Some(Ok(capacity))) => capacity,
                    Poll::Ready(_) => return Poll::Ready(Err(SendError::Reset)),
                    Poll::Pending => {
                        return self.stall.poll(context).map(|()| Err(SendError::Stalled));
                    }
                },
                capacity => capacity,
            };
            self.stall.stop();
            Poll::Ready(Ok(capacity))
        })
        .await
    }

    /// Passes the last piece on and waits until it is written. A client that has reduced its window meanwhile could
    /// otherwise keep it in the buffer of `h2`.
    async fn finish(&mut self, piece: Bytes) -> Result<(), SendError> {
        let (written, mut is_written) = oneshot::channel();
        self.pass_on(piece, Some(written), true)?;
        // Lets the task of the connection write it, which mostly succeeds at once and needs no timer.
        tokio::task::yield_now().await;
        poll_fn(|context| {
            if Pin::new(&mut is_written).poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.stall.poll(context).map(|()| Err(SendError::Stalled))
        })
        .await
    }

    fn pass_on(
        &mut self,
        bytes: Bytes,
        written: Option<oneshot::Sender<()>>,
        is_end: bool,
    ) -> Result<(), SendError> {
        let piece = Piece {
            bytes,
            _written: written,
        };
        let sent = self.stream.send_data(piece, is_end);
        sent.map_err(|_| SendError::Reset)
    }
}

/// Measures how long a stream with data has been waiting for its client.
struct StallTimer<'a> {
    connection: &'a ConnectionState,
    limit: Duration,
    /// Created when the stream first has to wait, which for most is never.
    timer: Option<Pin<Box<Sleep>>>,
    is_running: bool,
}

impl StallTimer<'_> {
    fn stop(&mut self) {
        self.is_running = false;
    }

    /// Ready when the stream has waited for the limit.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        loop {
            if !self.is_running {
                self.is_running = true;
                timer.as_mut().reset(Instant::now() + limit);
            }
            ready!(timer.as_mut().poll(context));
            self.is_running = false;
            // While the socket accepts nothing, no stream can advance. Whether its client still reads is then decided
            // by `net::stall`, for which a slow reader has not stalled.
            if !self.connection.is_write_blocked() {
                return Poll::Ready(());
            }
        }
    }
}
