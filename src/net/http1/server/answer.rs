//! An answer on its way out: its head, and its body as it comes.
//!
//! What is ready goes out together, in one write; what is not is never waited for.

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

/// A piece of a body that is this large is sent as it is; smaller ones are copied together.
const LARGE_BYTES: usize = 2 << 10;
/// How much is gathered for one write.
const GATHERED_BYTES: usize = 16 << 10;
const USUAL_HEAD_BYTES: usize = 512;
/// The longest line of a chunk's size.
const SIZE_LINE: usize = 2 * size_of::<usize>() + 2;

/// What of a request matters for the form of its answer.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Only the head is wanted.
    pub head_only: bool,
    /// HTTP/1.0, which knows no chunks.
    pub is_old: bool,
    pub keep_alive: bool,
}

impl Asked {
    /// By nobody who could be asked for more.
    pub const LAST: Self = Self {
        head_only: false,
        is_old: false,
        keep_alive: false,
    };

    pub fn keeping_alive(self, keep_alive: bool) -> Self {
        Self { keep_alive, ..self }
    }
}

pub struct Answer {
    body: Body,
    frame: Frame,
    /// What is to be written: first the one, then the other, then its end.
    gathered: BytesMut,
    large: Bytes,
    large_end: &'static [u8],
    /// The body has failed, which the client is to notice once it has what came before.
    failed: Option<io::Error>,
    /// Another request may follow.
    pub keep_alive: bool,
}

/// How the client knows where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// So many bytes are to come.
    Length(u64),
    Chunks,
    UntilClosed,
    /// It has ended, or there is none.
    Over,
}

impl Answer {
    pub fn new(response: Response<Body>, asked: Asked) -> Self {
        let (parts, body) = response.into_parts();
        let (status, headers) = (parts.status, &parts.headers);
        let has_none = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let length = announced(headers).or_else(|| body.size_hint().exact());
        let frame = match length {
            _ if has_none => Frame::Over,
            Some(length) => Frame::Length(length),
            None if asked.is_old => Frame::UntilClosed,
            None => Frame::Chunks,
        };
        let closes = headers.get(header::CONNECTION);
        let closes = closes.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
        let keep_alive = asked.keep_alive && !closes && frame != Frame::UntilClosed;
        let mut gathered = BytesMut::with_capacity(USUAL_HEAD_BYTES);
        write_head(&mut gathered, status, headers);
        match frame {
            // To a question for the head alone, nothing says that there would be nothing.
            Frame::Length(0) if asked.head_only => {}
            Frame::Length(length) => {
                gathered.put_slice(b"content-length: ");
                gathered.put_slice(itoa::Buffer::new().format(length).as_bytes());
                gathered.put_slice(b"\r\n");
            }
            Frame::Chunks => gathered.put_slice(b"transfer-encoding: chunked\r\n"),
            Frame::UntilClosed | Frame::Over => {}
        }
        if !keep_alive {
            gathered.put_slice(b"connection: close\r\n");
        } else if asked.is_old {
            gathered.put_slice(b"connection: keep-alive\r\n");
        }
        gathered.put_slice(b"\r\n");
        Self {
            body,
            frame: match frame {
                Frame::Length(0) => Frame::Over,
                _ if asked.head_only => Frame::Over,
                frame => frame,
            },
            gathered,
            large: Bytes::new(),
            large_end: b"",
            failed: None,
            keep_alive,
        }
    }

    /// Ready when all of it was written. Fails where the body does, and where nobody takes it.
    pub fn poll_write(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        loop {
            let gathered = self.poll_gather(context);
            if self.is_written() {
                // What a TLS connection still holds.
                ready!(stream.as_mut().poll_flush(context))?;
                if gathered.is_pending() {
                    self.gathered = BytesMut::new(); // a stream that is silent keeps no buffer
                }
                return gathered.map(|()| self.failed.take().map_or(Ok(()), Err));
            }
            let slices = [
                IoSlice::new(&self.gathered),
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
        self.gathered.is_empty() && self.large.is_empty() && self.large_end.is_empty()
    }

    fn advance(&mut self, count: usize) {
        let of_gathered = count.min(self.gathered.len());
        let of_large = (count - of_gathered).min(self.large.len());
        self.gathered.advance(of_gathered);
        self.large.advance(of_large);
        self.large_end = &self.large_end[count - of_gathered - of_large..];
    }

    /// Takes what the body has ready; ready itself when that is over.
    fn poll_gather(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.frame != Frame::Over {
            let is_full = self.gathered.len() >= GATHERED_BYTES;
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
                self.frame = Frame::Over;
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
            *left = after.ok_or_else(|| io::Error::other("more than was announced"))?;
        }
        self.gathered
            .reserve(SIZE_LINE + data.len().min(LARGE_BYTES) + 2);
        if is_chunk {
            put(&mut self.gathered, format_args!("{:x}\r\n", data.len()));
        }
        if data.len() >= LARGE_BYTES {
            self.large = data;
            self.large_end = if is_chunk { b"\r\n" } else { b"" };
        } else {
            self.gathered.put_slice(&data);
            if is_chunk {
                self.gathered.put_slice(b"\r\n");
            }
        }
        if self.frame == Frame::Length(0) {
            self.frame = Frame::Over;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        match self.frame {
            Frame::Length(_) => return Err(io::Error::other("less than was announced")),
            Frame::Chunks => self.gathered.put_slice(b"0\r\n\r\n"),
            Frame::UntilClosed | Frame::Over => {}
        }
        self.frame = Frame::Over;
        Ok(())
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// The first line and the headers, but for those about the connection.
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
    buffer.writer().write_fmt(text).expect("a buffer takes all");
}
