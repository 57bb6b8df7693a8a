//! Where a body ends, and what of the bytes belongs to it.
//!
//! Pure: bytes go in, data comes out, and how they are cut makes no difference.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;

/// The longest line of a chunk's size or of a trailer, and how much all trailers may be.
const MAX_LINE_BYTES: usize = 4 << 10;
const MAX_TRAILER_BYTES: usize = 64 << 10;

/// What is still to come of a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Framing(At);

#[derive(Debug, PartialEq, Eq)]
enum At {
    /// So many bytes, then it is over.
    Rest(u64),
    /// Everything up to the connection's end.
    Everything,
    Size,
    Chunk(u64),
    ChunkEnd,
    /// So many bytes of trailers were passed over.
    Trailers(usize),
    Over,
}

/// What some bytes were.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Data(Bytes),
    /// More bytes are needed.
    More,
    End,
}

/// It is not a body any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

impl Framing {
    pub fn length(length: u64) -> Self {
        Self(if length == 0 {
            At::Over
        } else {
            At::Rest(length)
        })
    }

    pub fn chunked() -> Self {
        Self(At::Size)
    }

    pub fn until_closed() -> Self {
        Self(At::Everything)
    }

    pub fn is_over(&self) -> bool {
        self.0 == At::Over
    }

    /// Whether it is complete where the connection ends.
    pub fn may_end(&self) -> bool {
        matches!(self.0, At::Everything | At::Over)
    }

    /// Takes the next data off the front of `bytes`.
    pub fn next(&mut self, bytes: &mut BytesMut) -> Result<Next, Broken> {
        loop {
            match self.0 {
                At::Over => return Ok(Next::End),
                _ if bytes.is_empty() => return Ok(Next::More),
                At::Everything => return Ok(Next::Data(bytes.split().freeze())),
                At::Rest(left) => {
                    let (data, left) = take(bytes, left);
                    self.0 = if left == 0 { At::Over } else { At::Rest(left) };
                    return Ok(Next::Data(data));
                }
                At::Chunk(left) => {
                    let (data, left) = take(bytes, left);
                    self.0 = if left == 0 {
                        At::ChunkEnd
                    } else {
                        At::Chunk(left)
                    };
                    return Ok(Next::Data(data));
                }
                At::Size | At::ChunkEnd | At::Trailers(_) => {
                    let Some(line) = line(bytes)? else {
                        return Ok(Next::More);
                    };
                    self.0 = self.after(&line)?;
                }
            }
        }
    }

    /// Where a line leads to.
    fn after(&self, line: &[u8]) -> Result<At, Broken> {
        match self.0 {
            At::Size => match size(line)? {
                0 => Ok(At::Trailers(0)),
                size => Ok(At::Chunk(size)),
            },
            At::ChunkEnd if line.is_empty() => Ok(At::Size),
            At::Trailers(_) if line.is_empty() => Ok(At::Over),
            At::Trailers(before) if before + line.len() <= MAX_TRAILER_BYTES => {
                Ok(At::Trailers(before + line.len()))
            }
            _ => Err(Broken),
        }
    }
}

/// As much as there is of what is left, and what is left after that.
fn take(bytes: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    let data = bytes.split_to(length).freeze();
    (data, left - length as u64)
}

/// The first line, without its end; `None` until it is whole.
fn line(bytes: &mut BytesMut) -> Result<Option<BytesMut>, Broken> {
    let Some(end) = memchr(b'\n', bytes) else {
        return if bytes.len() > MAX_LINE_BYTES {
            Err(Broken)
        } else {
            Ok(None)
        };
    };
    let mut line = bytes.split_to(end);
    bytes.advance(1);
    if line.last() == Some(&b'\r') {
        line.truncate(end - 1);
    }
    Ok(Some(line))
}

/// What a chunk's line says; what follows a semicolon means nothing.
fn size(line: &[u8]) -> Result<u64, Broken> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = str::from_utf8(digits.trim_ascii()).map_err(|_| Broken)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex {
        return Err(Broken);
    }
    u64::from_str_radix(digits, 16).map_err(|_| Broken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All data of a body that comes in pieces of this size; what is left of the bytes after it.
    fn read(
        mut framing: Framing,
        bytes: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), Broken> {
        let (mut buffer, mut data) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            while let Next::Data(more) = framing.next(&mut buffer)? {
                data.extend_from_slice(&more);
            }
        }
        if framing.may_end() {
            Ok((data, buffer.to_vec()))
        } else {
            Err(Broken)
        }
    }

    #[test]
    fn a_chunked_body_is_what_its_chunks_hold() {
        let body =
            b"5\r\nhello\r\n1;name=\"a\"\r\n \r\n  A \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nnext";
        for piece in 1..body.len() {
            let (data, rest) = read(Framing::chunked(), body, piece).unwrap();
            assert_eq!(data, b"hello 0123456789");
            let rest_of_piece = rest.len() <= 4 && b"next".starts_with(&rest);
            assert!(rest_of_piece || piece > 4, "{rest:?}");
        }
    }

    #[test]
    fn what_breaks_its_frame_is_no_body() {
        for body in [
            &b"x\r\n"[..],
            b"\r\nhello",
            b"-1\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"5\r\nhelloworld\r\n0\r\n\r\n",
            b"11111111111111111\r\n",
            b"5\r\nhel",
            b"5\r\nhello\r\n",
            b"0\r\n",
        ] {
            assert_eq!(read(Framing::chunked(), body, 3), Err(Broken), "{body:?}");
        }
        assert_eq!(
            read(Framing::chunked(), &[b'0'; 2 * MAX_LINE_BYTES], 100),
            Err(Broken)
        );
        let endless = [&b"0\r\n"[..], &b"x: y\r\n".repeat(MAX_TRAILER_BYTES)].concat();
        assert_eq!(read(Framing::chunked(), &endless, 1_000), Err(Broken));
        assert_eq!(read(Framing::length(6), b"hello", 2), Err(Broken));
    }

    #[test]
    fn lengths_and_ends_are_kept() {
        let (data, rest) = read(Framing::length(5), b"hellonext", 9).unwrap();
        assert_eq!(
            (data.as_slice(), rest.as_slice()),
            (&b"hello"[..], &b"next"[..])
        );
        assert!(Framing::length(0).is_over());
        let (data, rest) = read(Framing::until_closed(), b"hello", 2).unwrap();
        assert_eq!((data.as_slice(), rest.len()), (&b"hello"[..], 0));
    }

    proptest! {
        #[test]
        fn whatever_is_sent_in_chunks_arrives(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..8),
            piece in 1_usize..300,
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            let (data, rest) = read(Framing::chunked(), &body, piece).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert!(rest.is_empty());
        }
    }
}
