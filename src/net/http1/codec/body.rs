//! Where a body ends, of a request or a response.
//!
//! Pure: bytes go in, data comes out. How the bytes are cut into pieces makes no difference.

use bytes::{Bytes, BytesMut};

use super::chunks::{Chunks, Dialect};

/// The rest of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// A body of a known length, of which this many bytes are left.
    Length(u64),
    Chunked(Chunks),
    /// A body that ends with the connection.
    UntilClosed,
}

/// The next piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Data(Bytes),
    /// More bytes are needed.
    More,
    End,
}

/// The bytes do not follow the framing: where the next message starts is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl BodyFraming {
    pub(crate) fn chunked(dialect: Dialect) -> Self {
        Self::Chunked(Chunks::new(dialect))
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::UntilClosed => false,
        }
    }

    /// Whether the body is complete if the connection ends here.
    pub(crate) fn may_end(&self) -> bool {
        matches!(self, Self::UntilClosed) || self.is_over()
    }

    /// The bytes that are left of a body of known length.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClosed => None,
        }
    }

    /// Takes the next data off the front of `bytes`.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<Next, Broken> {
        match self {
            Self::Length(0) => Ok(Next::End),
            Self::Chunked(chunks) => chunks.next(bytes),
            _ if bytes.is_empty() => Ok(Next::More),
            Self::Length(left) => {
                let length = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= length as u64;
                Ok(Next::Data(bytes.split_to(length).freeze()))
            }
            Self::UntilClosed => Ok(Next::Data(bytes.split().freeze())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All data of a body that comes in pieces of this size; what is left of the bytes after it.
    fn read(
        mut framing: BodyFraming,
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
            b"5\r\nhello\r\n1;name=\"a\"\r\n \r\nA \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nnext";
        for piece in 1..body.len() {
            let (data, rest) = read(BodyFraming::chunked(Dialect::Lenient), body, piece).unwrap();
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
            assert_eq!(
                read(BodyFraming::chunked(Dialect::Lenient), body, 3),
                Err(Broken),
                "{body:?}"
            );
        }
        assert_eq!(
            read(BodyFraming::chunked(Dialect::Lenient), &[b'0'; 8_192], 100),
            Err(Broken)
        );
        let endless = [&b"0\r\n"[..], &b"x: y\r\n".repeat(20_000)].concat();
        assert_eq!(
            read(BodyFraming::chunked(Dialect::Lenient), &endless, 1_000),
            Err(Broken)
        );
        assert_eq!(read(BodyFraming::Length(6), b"hello", 2), Err(Broken));
    }

    /// A proxy on the way may take a line feed for the end of a line, or not.
    #[test]
    fn lines_end_in_crlf_only() {
        for body in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5;a\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello\r\n0\n\r\n",
            b"5\r\nhello\r\n0\r\n\n",
            b"5\r\nhello\r\n0\r\na: b\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
        ] {
            for dialect in [Dialect::Lenient, Dialect::Strict] {
                assert_eq!(read(BodyFraming::chunked(dialect), body, 1), Err(Broken));
            }
        }
    }

    #[test]
    fn a_size_may_be_padded_in_responses_only() {
        let body = b"5 \t\r\nhello\r\n0  ;x\r\n\r\n";
        let (data, rest) = read(BodyFraming::chunked(Dialect::Lenient), body, 1).unwrap();
        assert_eq!((data.as_slice(), rest.len()), (&b"hello"[..], 0));
        let strict = read(BodyFraming::chunked(Dialect::Strict), body, 1);
        assert_eq!(strict, Err(Broken));
    }

    #[test]
    fn a_trailer_is_a_header() {
        for (trailer, is_read) in [
            ("a: b", true),
            ("a:", true),
            ("x-y: \t\u{fc}", true),
            ("a", false),
            (": b", false),
            ("a : b", false),
            (" a: b", false),
            ("a: b\0", false),
        ] {
            let body = format!("0\r\n{trailer}\r\n\r\n");
            for dialect in [Dialect::Lenient, Dialect::Strict] {
                let read = read(BodyFraming::chunked(dialect), body.as_bytes(), 3);
                assert_eq!(read.is_ok(), is_read, "{trailer:?}");
            }
        }
    }

    /// The limit of what is ignored is for one chunk of a response, not for all of a long stream.
    #[test]
    fn every_chunk_of_a_long_response_may_have_an_extension() {
        let chunks = b"1;name=value\r\nx\r\n".repeat(20_000);
        let body = [&chunks[..], b"0\r\n\r\n"].concat();
        let (data, _) = read(BodyFraming::chunked(Dialect::Lenient), &body, 1_000).unwrap();
        assert_eq!(data.len(), 20_000);
        let strict = read(BodyFraming::chunked(Dialect::Strict), &body, 1_000);
        assert_eq!(strict, Err(Broken));
    }

    #[test]
    fn lengths_and_ends_are_kept() {
        let (data, rest) = read(BodyFraming::Length(5), b"hellonext", 9).unwrap();
        assert_eq!(
            (data.as_slice(), rest.as_slice()),
            (&b"hello"[..], &b"next"[..])
        );
        assert!(BodyFraming::Length(0).is_over());
        let (data, rest) = read(BodyFraming::UntilClosed, b"hello", 2).unwrap();
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
            let (data, rest) = read(BodyFraming::chunked(Dialect::Lenient), &body, piece).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert!(rest.is_empty());
        }
    }
}
