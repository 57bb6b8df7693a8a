//! Where one HTTP/1 request ends and the next begins.
//!
//! Pure: bytes go in, heads and bodies come out. How the bytes are cut into pieces makes no difference.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;

use super::{
    body::{self, BodyFraming},
    chunks::Dialect,
    limits::MAX_HEAD_BYTES,
    request_head::{self, Body, RequestHead},
};
use crate::net::http1::Refused;

/// Reads the requests of one connection.
#[derive(Debug)]
pub(crate) struct RequestReader(At);

#[derive(Debug)]
enum At {
    /// Before or within a head, whose end is not in the first `searched` bytes.
    Head {
        searched: usize,
    },
    Body(BodyFraming),
}

/// The next piece of a connection.
#[derive(Debug)]
pub(crate) enum Next {
    Head(Box<RequestHead>),
    Data(Bytes),
    /// The request is over.
    End,
    /// More bytes are needed.
    More,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Head(Refused),
    /// A body that does not follow its framing: where the next request starts is unknown.
    Body,
}

impl RequestReader {
    pub(crate) fn new() -> Self {
        Self(At::Head { searched: 0 })
    }

    /// The bytes that are left of a body with a `Content-Length`.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.0 {
            At::Body(body) => body.left(),
            At::Head { .. } => None,
        }
    }

    /// Takes the next piece off the front of `bytes`. A head stays there until it is complete.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<Next, Broken> {
        match &mut self.0 {
            At::Head { searched } => {
                while *searched == 0 && bytes.starts_with(b"\r\n") {
                    bytes.advance(2);
                }
                let Some(end) = whole_head(bytes, searched).map_err(Broken::Head)? else {
                    return Ok(Next::More);
                };
                let head = bytes.split_to(end).freeze();
                match RequestHead::read(&head) {
                    Ok(head) => {
                        self.0 = match head.body {
                            Body::Length(left) => At::Body(BodyFraming::Length(left)),
                            Body::Chunked => At::Body(BodyFraming::chunked(Dialect::Strict)),
                        };
                        Ok(Next::Head(Box::new(head)))
                    }
                    Err(refused) => {
                        // Put back, so that request ID and path can still be found in it.
                        let rest = std::mem::replace(bytes, BytesMut::from(head));
                        bytes.unsplit(rest);
                        Err(Broken::Head(refused))
                    }
                }
            }
            At::Body(body) => match body.next(bytes) {
                Ok(body::Next::Data(data)) => Ok(Next::Data(data)),
                Ok(body::Next::More) => Ok(Next::More),
                Ok(body::Next::End) => {
                    *self = Self::new();
                    Ok(Next::End)
                }
                Err(body::Broken) => Err(Broken::Body),
            },
        }
    }
}

/// The length of the head at the start of `bytes`; `None` while it is incomplete.
fn whole_head(bytes: &[u8], searched: &mut usize) -> Result<Option<usize>, Refused> {
    match bytes {
        [] | [b'\r'] => return Ok(None),
        // Not HTTP: refused without waiting for more.
        [first, ..] if !request_head::is_token(*first) => return Err(Refused::RequestLine),
        _ => {}
    }
    let end = end_of_head(bytes, searched);
    if end.unwrap_or(bytes.len()) > MAX_HEAD_BYTES {
        return Err(Refused::TooLarge);
    }
    Ok(end)
}

/// The end of the first empty line, whether or not its line ends have a CR.
fn end_of_head(bytes: &[u8], searched: &mut usize) -> Option<usize> {
    while let Some(found) = memchr(b'\n', &bytes[*searched..]) {
        let line_end = *searched + found;
        match &bytes[line_end + 1..] {
            [b'\n', ..] => return Some(line_end + 2),
            [b'\r', b'\n', ..] => return Some(line_end + 3),
            [] | [b'\r'] => {
                *searched = line_end;
                return None;
            }
            _ => *searched = line_end + 1,
        }
    }
    *searched = bytes.len();
    None
}

#[cfg(test)]
mod tests;
