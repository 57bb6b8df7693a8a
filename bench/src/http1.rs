//! As much of HTTP/1.1 as both ends of the benchmark need: heads, and bodies with a length or in chunks, parsed
//! incrementally.
//!
//! A library would do more than this for each request, and on a small machine its CPU time would be taken from the
//! contestant that is measured.

use memchr::memmem;

use crate::{Done, Failure};

/// The complete head of a request or response.
pub struct Head {
    /// Its bytes, including the empty line.
    pub length: usize,
    pub body: Body,
}

/// What remains of a body.
pub enum Body {
    Length(usize),
    Chunked(Chunk),
}

pub enum Chunk {
    Size(usize),
    /// After the digits, up to the end of the line.
    SizeEnds(usize),
    Data(usize),
    DataEnds,
    Trailer {
        line_is_empty: bool,
    },
    Done,
}

impl Head {
    /// Parses a head; `None` while it is incomplete.
    pub fn read(bytes: &[u8]) -> Done<Option<Self>> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let mut body = Body::Length(0);
        for line in bytes[..end].split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                body = Body::Length(str::from_utf8(value)?.parse()?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                body = Body::Chunked(Chunk::Size(0));
            }
        }
        let length = end + 4;
        Ok(Some(Self { length, body }))
    }
}

impl Body {
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Done))
    }

    /// Consumes the body's bytes, passes its contents to `hand_on`, and returns the number of bytes consumed.
    pub fn take(&mut self, bytes: &[u8], mut hand_on: impl FnMut(&[u8])) -> Done<usize> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_done() {
            let rest = &bytes[taken..];
            taken += match self {
                Self::Length(left) | Self::Chunked(Chunk::Data(left)) => {
                    let now = rest.len().min(*left);
                    *left -= now;
                    hand_on(&rest[..now]);
                    now
                }
                Self::Chunked(_) => 1,
            };
            if let Self::Chunked(chunk) = self {
                chunk.step(rest[0])?;
            }
        }
        Ok(taken)
    }
}

impl Chunk {
    /// Consumes one framing byte between chunks of data; chunk data is consumed by `take`.
    fn step(&mut self, byte: u8) -> Done {
        *self = match (&*self, byte) {
            (Self::Size(size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default() as usize;
                Self::Size(size * 16 + digit)
            }
            (Self::Size(size), b'\r' | b';' | b' ') => Self::SizeEnds(*size),
            (Self::SizeEnds(0), b'\n') => Self::Trailer {
                line_is_empty: true,
            },
            (Self::SizeEnds(size), b'\n') => Self::Data(*size),
            (Self::Data(0), _) => Self::DataEnds,
            (Self::DataEnds | Self::Trailer { .. }, b'\r')
            | (Self::SizeEnds(_) | Self::Data(_), _) => {
                return Ok(());
            }
            (Self::DataEnds, b'\n') => Self::Size(0),
            (Self::Trailer { line_is_empty }, b'\n') if *line_is_empty => Self::Done,
            (Self::Trailer { .. }, _) => Self::Trailer {
                line_is_empty: byte == b'\n',
            },
            _ => return Err(Failure::from("a chunked body that is none")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a message in pieces of every size.
    fn contents(message: &[u8]) -> Vec<String> {
        let pieces = 1..=message.len();
        let read = |size| {
            let head = Head::read(message).unwrap().unwrap();
            let (mut body, mut contents) = (head.body, Vec::new());
            for piece in message[head.length..].chunks(size) {
                let taken = body.take(piece, |bytes| contents.extend_from_slice(bytes));
                assert_eq!(taken.unwrap(), piece.len());
            }
            assert!(body.is_done());
            String::from_utf8(contents).unwrap()
        };
        pieces.map(read).collect()
    }

    #[test]
    fn a_body_is_the_same_however_it_is_split() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nHello world";
        assert!(contents(whole).iter().all(|body| body == "Hello world"));
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n6;a=b\r\n world\r\n0\r\nx: y\r\n\r\n";
        assert!(contents(chunked).iter().all(|body| body == "Hello world"));
    }

    #[test]
    fn what_follows_a_body_is_left() {
        let mut body = Body::Length(2);
        assert_eq!(body.take(b"abc", |_| {}).unwrap(), 2);
        assert!(Head::read(b"HTTP/1.1 200 OK\r\n").unwrap().is_none());
    }
}
