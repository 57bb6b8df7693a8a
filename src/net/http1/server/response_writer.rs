//! Writes a response: its head, and its body as the handler produces it.
//!
//! Everything that is ready is sent with one write; a write never waits for more of the body. If the body fails or does
//! not have its announced length, the bytes before that are sent and an error is returned, so that the connection is
//! closed and the client detects the missing end.

use std::{
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody as _},
    http::{HeaderMap, Response, StatusCode, header},
};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use super::date;

/// Pieces of a body from this size on are sent without a copy; smaller ones are copied into one buffer.
const LARGE_BYTES: usize = 2 << 10;
/// From this size on, the buffer is written before more is copied into it.
const BUFFER_BYTES: usize = 16 << 10;
const USUAL_HEAD_BYTES: usize = 512;
/// Longest chunk-size line.
const MAX_SIZE_LINE_BYTES: usize = 2 * size_of::<usize>() + 2;

/// Properties of a request that determine the framing of its response.
#[derive(Clone, Copy)]
pub(crate) struct ResponseOptions {
    /// It is a `HEAD` request.
    pub head_only: bool,
    /// HTTP/1.0, which has no chunked encoding.
    pub is_http10: bool,
    pub keep_alive: bool,
}

impl ResponseOptions {
    /// Response to a refused request; the connection closes after it.
    pub(crate) const CLOSING: Self = Self {
        head_only: false,
        is_http10: false,
        keep_alive: false,
    };

    pub(crate) fn with_keep_alive(self, keep_alive: bool) -> Self {
        Self { keep_alive, ..self }
    }
}

/// A response that is being sent.
pub(crate) struct ResponseWriter {
    body: Body,
    frame: Frame,
    /// Head and small pieces of the body; the first bytes to be written.
    buffer: BytesMut,
    /// A large piece of the body, written after `buffer`.
    large: Bytes,
    /// End of the chunk that `large` is, written after it.
    large_end: &'static [u8],
    /// The error with which the body failed. It is returned after the bytes before it were written.
    failed: Option<io::Error>,
    /// Whether another request may follow.
    pub keep_alive: bool,
}

/// How the end of the body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// By `content-length`; this many bytes are left to send.
    Length(u64),
    Chunks,
    UntilClosed,
    /// The body has ended, or there is none.
    Done,
}

impl ResponseWriter {
    pub(crate) fn new(response: Response<Body>, options: ResponseOptions) -> Self {
        let (parts, body) = response.into_parts();
        let (status, headers) = (parts.status, &parts.headers);
        let has_no_body = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let length = content_length(headers).or_else(|| body.size_hint().exact());
        let frame = match length {
            _ if has_no_body => Frame::Done,
            Some(length) => Frame::Length(length),
            None if options.is_http10 => Frame::UntilClosed,
            None => Frame::Chunks,
        };
        let closes = headers.get(header::CONNECTION);
        let closes = closes.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
        let keep_alive = options.keep_alive && !closes && frame != Frame::UntilClosed;
        let mut buffer = BytesMut::with_capacity(USUAL_HEAD_BYTES);
        write_head(&mut buffer, status, headers);
        match frame {
            // A `HEAD` response with an empty body carries no `content-length`: the length for `GET` is unknown.
            Frame::Length(0) if options.head_only => {}
            Frame::Length(length) => {
                buffer.put_slice(b"content-length: ");
                buffer.put_slice(itoa::Buffer::new().format(length).as_bytes());
                buffer.put_slice(b"\r\n");
            }
            Frame::Chunks => buffer.put_slice(b"transfer-encoding: chunked\r\n"),
            Frame::UntilClosed | Frame::Done => {}
        }
        if !keep_alive {
            buffer.put_slice(b"connection: close\r\n");
        } else if options.is_http10 {
            buffer.put_slice(b"connection: keep-alive\r\n");
        }
        buffer.put_slice(b"\r\n");
        Self {
            body,
            frame: match frame {
                Frame::Length(0) => Frame::Done,
                _ if options.head_only => Frame::Done,
                frame => frame,
            },
            buffer,
            large: Bytes::new(),
            large_end: b"",
            failed: None,
            keep_alive,
        }
    }

    /// Ready when the response has been written. Fails if the body or a write fails.
    pub(crate) fn poll_write(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        loop {
            let filled = self.poll_fill(context);
            if self.is_written() {
                // Sends the bytes that a TLS connection has buffered.
                ready!(stream.as_mut().poll_flush(context))?;
                if filled.is_pending() {
                    self.buffer = BytesMut::new(); // a stream without data keeps no buffer
                }
                return filled.map(|()| self.failed.take().map_or(Ok(()), Err));
            }
            let slices = [
                IoSlice::new(&self.buffer),
                IoSlice::new(&self.large),
                IoSlice::new(self.large_end),
            ];
            match ready!(stream.as_mut().poll_write_vectored(context, &slices))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.advance(count),
            }
        }
    }

    fn is_written(&self) -> bool {
        self.buffer.is_empty() && self.large.is_empty() && self.large_end.is_empty()
    }

    fn advance(&mut self, count: usize) {
        let from_buffer = count.min(self.buffer.len());
        let from_large = (count - from_buffer).min(self.large.len());
        self.buffer.advance(from_buffer);
        self.large.advance(from_large);
        self.large_end = &self.large_end[count - from_buffer - from_large..];
    }

    /// Takes the pieces of the body that are ready. Ready at the end of the body; pending while it has no data or the
    /// buffers are full.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.frame != Frame::Done {
            let is_full = self.buffer.len() >= BUFFER_BYTES;
            if is_full || !self.large.is_empty() || !self.large_end.is_empty() {
                return Poll::Pending;
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            let taken = match frame {
                Some(Ok(frame)) => frame.into_data().map_or(Ok(()), |data| self.add(data)),
                Some(Err(error)) => Err(io::Error::other(error)),
                None => self.end(),
            };
            if let Err(error) = taken {
                self.failed = Some(error);
                self.frame = Frame::Done;
            }
        }
        Poll::Ready(())
    }

    fn add(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let is_chunk = self.frame == Frame::Chunks;
        if let Frame::Length(left) = &mut self.frame {
            let after = left.checked_sub(data.len() as u64);
            *left = after
                .ok_or_else(|| io::Error::other("the body is longer than its content-length"))?;
        }
        self.buffer
            .reserve(MAX_SIZE_LINE_BYTES + data.len().min(LARGE_BYTES) + 2);
        if is_chunk {
            put(&mut self.buffer, format_args!("{:x}\r\n", data.len()));
        }
        if data.len() >= LARGE_BYTES {
            self.large = data;
            self.large_end = if is_chunk { b"\r\n" } else { b"" };
        } else {
            self.buffer.put_slice(&data);
            if is_chunk {
                self.buffer.put_slice(b"\r\n");
            }
        }
        if self.frame == Frame::Length(0) {
            self.frame = Frame::Done;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        match self.frame {
            Frame::Length(_) => {
                return Err(io::Error::other(
                    "the body is shorter than its content-length",
                ));
            }
            Frame::Chunks => self.buffer.put_slice(b"0\r\n\r\n"),
            Frame::UntilClosed | Frame::Done => {}
        }
        self.frame = Frame::Done;
        Ok(())
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Writes the status line and the headers, except those about framing and the connection.
fn write_head(buffer: &mut BytesMut, status: StatusCode, headers: &HeaderMap) {
    buffer.put_slice(b"HTTP/1.1 ");
    buffer.put_slice(status.as_str().as_bytes());
    buffer.put_u8(b' ');
    buffer.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    buffer.put_slice(b"\r\n");
    for (name, value) in headers {
        let is_ours = [
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::CONNECTION,
        ]
        .contains(name);
        if !is_ours {
            buffer.put_slice(name.as_str().as_bytes());
            buffer.put_slice(b": ");
            buffer.put_slice(value.as_bytes());
            buffer.put_slice(b"\r\n");
        }
    }
    if !headers.contains_key(header::DATE) {
        buffer.put_slice(b"date: ");
        date::put(buffer);
        buffer.put_slice(b"\r\n");
    }
}

fn put(buffer: &mut BytesMut, text: std::fmt::Arguments<'_>) {
    buffer
        .writer()
        .write_fmt(text)
        .expect("a buffer never fails");
}
