//! Where one HTTP/1 request ends and the next begins.
//!
//! Pure: bytes go in, heads and bodies come out. How they are cut makes no difference, which is tested.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;

use super::{
    chunks::{self, Chunks},
    head::{self, Body, Head},
};
use crate::net::http1::{MAX_HEAD_BYTES, Refused};

#[derive(Debug)]
pub struct Framing(At);

#[derive(Debug)]
enum At {
    /// A head, or the place before one. The first `searched` bytes of it do not hold its end.
    Head {
        searched: usize,
    },
    Body {
        left: u64,
    },
    Chunks(Chunks),
}

/// What comes next of a connection.
#[derive(Debug)]
pub enum Next {
    Head(Box<Head>),
    Data(Bytes),
    /// The request is over.
    End,
    /// More bytes are needed.
    More,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Head(Refused),
    /// A body that breaks its own frame: nobody knows what comes after it.
    Body,
}

impl Framing {
    pub fn new() -> Self {
        Self(At::Head { searched: 0 })
    }

    /// How much is still to come of a body whose length was announced.
    pub fn left(&self) -> Option<u64> {
        match self.0 {
            At::Body { left } => Some(left),
            At::Head { .. } | At::Chunks(_) => None,
        }
    }

    /// Takes what comes next off the front of `bytes`. A head is left there until it is whole.
    pub fn next(&mut self, bytes: &mut BytesMut) -> Result<Next, Broken> {
        match &mut self.0 {
            At::Head { searched } => {
                while *searched == 0 && bytes.starts_with(b"\r\n") {
                    bytes.advance(2);
                }
                let Some(end) = whole_head(bytes, searched).map_err(Broken::Head)? else {
                    return Ok(Next::More);
                };
                let head = bytes.split_to(end).freeze();
                match Head::read(&head) {
                    Ok(head) => {
                        self.0 = match head.body {
                            Body::Length(left) => At::Body { left },
                            Body::Chunked => At::Chunks(Chunks::new()),
                        };
                        Ok(Next::Head(Box::new(head)))
                    }
                    Err(refused) => {
                        // Left where it was, for who wants to know whose it is.
                        let rest = std::mem::replace(bytes, BytesMut::from(head));
                        bytes.unsplit(rest);
                        Err(Broken::Head(refused))
                    }
                }
            }
            At::Body { left: 0 } => {
                *self = Self::new();
                Ok(Next::End)
            }
            At::Body { .. } if bytes.is_empty() => Ok(Next::More),
            At::Body { left } => {
                let length = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= length as u64;
                Ok(Next::Data(bytes.split_to(length).freeze()))
            }
            At::Chunks(chunks) => Ok(match chunks.next(bytes)? {
                chunks::Next::Data(data) => Next::Data(data),
                chunks::Next::More => Next::More,
                chunks::Next::End => {
                    *self = Self::new();
                    Next::End
                }
            }),
        }
    }
}

/// The length of the head that `bytes` begin with; `None` while its end is still to come.
fn whole_head(bytes: &[u8], searched: &mut usize) -> Result<Option<usize>, Refused> {
    match bytes {
        [] | [b'\r'] => return Ok(None),
        // Something else than HTTP is not waited for.
        [first, ..] if !head::is_token(*first) => return Err(Refused::RequestLine),
        _ => {}
    }
    let end = end_of_head(bytes, searched);
    if end.unwrap_or(bytes.len()) > MAX_HEAD_BYTES {
        return Err(Refused::TooLarge);
    }
    Ok(end)
}

/// The end of the first empty line, whether its line ends are right or not.
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
