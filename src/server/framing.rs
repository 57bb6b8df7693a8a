//! Where one HTTP/1 request ends and the next begins.
//!
//! Pure: bytes go in, and what may be handed on comes out. How they are cut makes no difference, which
//! is tested.

use memchr::memchr;

use super::{
    chunks::{Chunks, Followed},
    head::{self, Body},
};
use crate::http::{MAX_HEAD_BYTES, Refused};

/// What an HTTP/2 connection begins with. Its frames have lengths of their own.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub struct Framing(At);

#[derive(Debug)]
enum At {
    /// The first bytes: it is not known yet what is spoken.
    Beginning,
    Http2,
    /// A head, or the place before one. The first `searched` bytes of it do not hold its end.
    Head {
        searched: usize,
    },
    Body {
        left: u64,
    },
    Chunks(Chunks),
}

/// What became of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Scanned {
    /// So many of them may be handed on. The others are the beginning of a head: they are to come
    /// again, with what follows them.
    pub passed: usize,
    pub broken: Option<Broken>,
}

/// Why nothing after the bytes that passed is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Head(Refused),
    Body,
}

impl Framing {
    pub fn new() -> Self {
        Self(At::Beginning)
    }

    pub fn is_http2(&self) -> bool {
        matches!(self.0, At::Http2)
    }

    pub fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut passed = 0;
        let broken = loop {
            let rest = &bytes[passed..];
            match &mut self.0 {
                At::Beginning if rest.starts_with(HTTP2_PREFACE) => self.0 = At::Http2,
                At::Beginning if HTTP2_PREFACE.starts_with(rest) => break None,
                At::Beginning | At::Body { left: 0 } => self.0 = At::Head { searched: 0 },
                At::Http2 => {
                    passed = bytes.len();
                    break None;
                }
                // An empty line before a request is nothing (RFC 9112, section 2.2).
                At::Head { .. } if rest.starts_with(b"\r\n") => passed += 2,
                At::Head { searched } => match whole_head(rest, searched) {
                    Ok(None) => break None,
                    Ok(Some((length, body))) => {
                        passed += length;
                        self.0 = match body {
                            Body::Length(left) => At::Body { left },
                            Body::Chunked => At::Chunks(Chunks::new()),
                        };
                    }
                    Err(refused) => break Some(Broken::Head(refused)),
                },
                At::Body { .. } if rest.is_empty() => break None,
                At::Body { left } => {
                    let taken = (rest.len() as u64).min(*left);
                    *left -= taken;
                    passed += usize::try_from(taken).unwrap_or(usize::MAX); // no more than `rest`
                }
                At::Chunks(chunks) => match chunks.follow(rest) {
                    Followed::GoesOn => {
                        passed = bytes.len();
                        break None;
                    }
                    Followed::Ends(count) => {
                        passed += count;
                        self.0 = At::Head { searched: 0 };
                    }
                    Followed::Breaks(count) => {
                        passed += count;
                        break Some(Broken::Body);
                    }
                },
            }
        };
        Scanned { passed, broken }
    }
}

/// The length of the head that `bytes` begin with, and its request's body; `None` while its end is
/// still to come.
fn whole_head(bytes: &[u8], searched: &mut usize) -> Result<Option<(usize, Body)>, Refused> {
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
    let Some(end) = end else { return Ok(None) };
    let body = head::check(&bytes[..end])?;
    Ok(Some((end, body)))
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
