//! Compares the codec with hyper on generated messages, split at random.
//!
//! Where both accept a message, they must find the same in it and the same bytes after it. The codec accepts nothing
//! that hyper refuses. Where it refuses what hyper accepts, the reason must be on the list of the test.

mod requests;
mod responses;

use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::base::mutation::Random;

/// How many messages each test generates.
const MESSAGES: u64 = 10_000;

/// A peer that sends these pieces and reads everything.
struct Peer {
    pieces: VecDeque<Bytes>,
    /// Whether it may send: a server waits for a request.
    is_asked: bool,
    /// Whether the connection ends after the pieces; otherwise the peer falls silent.
    ends: bool,
}

impl Peer {
    fn client(pieces: &[&[u8]]) -> Self {
        Self {
            is_asked: true,
            ..Self::server(pieces, true)
        }
    }

    fn server(pieces: &[&[u8]], ends: bool) -> Self {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece));
        Self {
            pieces: pieces.collect(),
            is_asked: false,
            ends,
        }
    }
}

impl Read for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            return Poll::Pending;
        }
        let Some(piece) = self.pieces.front_mut() else {
            return if self.ends {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            };
        };
        let taken = piece.split_to(piece.len().min(buffer.remaining()));
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl Write for Peer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls work until it is done or can get no further: its peer needs no time, so a few polls without progress mean that
/// it waits for bytes that do not come.
fn run<T>(work: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match work.as_mut().poll(&mut context) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    })
}

/// Most polls that a message of so many pieces can need.
fn polls(pieces: &[&[u8]]) -> usize {
    20 + 2 * pieces.len()
}

/// Header lines, plain and odd, for both directions.
const HEADERS: &[&[u8]] = &[
    b"Accept: */*\r\n",
    b"X-Empty:\r\n",
    b"x-padded: \t  a b \t \r\n",
    b"X-Latin: caf\xe9\r\n",
    b"Content-Type: application/json\r\n",
    b"Retry-After: 7\r\n",
    b"X-Comma: a, b, c\r\n",
    b"!#$%&'*+-.^_`|~: token\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: close\r\n",
    b"Connection: x, Close\r\n",
    b"connection: keep-alive, te\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 05\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length: 5\xe9\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 0x5\r\n",
    b"Content-Length: 5 5\r\n",
    b"Content-Length:\r\n",
    b"Content-Length: 18446744073709551614\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: CHUNKED\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked, gzip\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: chunked\xe9\r\n",
    b"Transfer-Encoding:\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"X-Bare-Line-Feed: a\n",
    b"X-Carriage-Return: a\rb\r\n",
    b"X-Nul: a\0b\r\n",
    b"X-Escape: \x1b[0m\r\n",
    b"X-Delete: \x7f\r\n",
    b" folded: a\r\n",
    b"\tfolded: a\r\n",
    b"no colon\r\n",
    b": no name\r\n",
    b"Host: b\r\n",
];

/// Header lines that every implementation reads alike.
const PLAIN_HEADERS: &[&[u8]] = &[
    b"Accept: */*\r\n",
    b"X-Empty:\r\n",
    b"x-padded: \t  a b \t \r\n",
    b"X-Latin: caf\xe9\r\n",
    b"Content-Type: Text/Plain\r\n",
    b"Content-Encoding: identity\r\n",
    b"Retry-After: 7\r\n",
    b"x-repeated: 1\r\nX-Repeated: 2\r\n",
];

/// Appends header lines and a body. One message in `odd` has a line of [`HEADERS`], and one in six lacks the header that
/// frames its body.
fn put_headers_and_body(bytes: &mut Vec<u8>, random: &mut Random, odd: usize) {
    for _ in 0..random.below(4) {
        let line = *random.pick(PLAIN_HEADERS);
        bytes.extend_from_slice(line);
    }
    let (framing, body) = framed(random);
    if !random.once_in(6) {
        bytes.extend_from_slice(&framing);
    }
    if random.once_in(odd) {
        let line = *random.pick(HEADERS);
        bytes.extend_from_slice(line);
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
}

/// A body with its framing header, and the data.
fn framed(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let data: Vec<u8> = (0..random.below(40))
        .map(|_| *random.pick(b"abc\r\n0\xff"))
        .collect();
    if random.once_in(2) {
        let length = format!("Content-Length: {}\r\n", data.len());
        return (length.into_bytes(), data);
    }
    let mut body = Vec::new();
    let mut rest = data.as_slice();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(1 + random.below(rest.len()));
        let extension = if random.once_in(20) {
            *random.pick(&[";a", ";a=\"b\"", " ", " \t;a", ";\u{1}", "; \u{e9}"])
        } else {
            ""
        };
        let size = if random.once_in(2) {
            format!("{:x}{extension}\r\n", chunk.len())
        } else {
            format!("{:03X}{extension}\r\n", chunk.len())
        };
        body.extend_from_slice(size.as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
        rest = after;
    }
    let end = if random.once_in(5) {
        *random.pick(&[
            &b"000\r\n\r\n"[..],
            b"0;x\r\n\r\n",
            b"0\r\nTrailer: a\r\nb:\r\n\r\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\n bad: a\r\n\r\n",
            b"0\r\na: b\n\r\n",
        ])
    } else {
        b"0\r\n\r\n"
    };
    body.extend_from_slice(end);
    (b"Transfer-Encoding: chunked\r\n".to_vec(), body)
}

/// Whether a line feed has no CR before it.
fn has_bare_line_feed(bytes: &[u8]) -> bool {
    let mut previous = 0;
    bytes.iter().any(|byte| {
        let before = std::mem::replace(&mut previous, *byte);
        *byte == b'\n' && before != b'\r'
    })
}
