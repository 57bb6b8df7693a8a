//! Finds the head of a response behind its interim responses (1xx), of which there may be only so many.

use bytes::{Buf as _, BytesMut};

use super::{
    limits::{MAX_HEAD_BYTES, MAX_INTERIM_RESPONSES},
    response_head::{BadResponse, ResponseHead},
};

/// Reads the head of the response to one request.
#[derive(Debug, Default)]
pub(crate) struct ResponseReader {
    interim_responses: u32,
    interim_bytes: usize,
}

impl ResponseReader {
    /// Takes the head, and interim responses before it, off the front of `bytes`. Returns `None` if more bytes are
    /// needed; an incomplete head stays there.
    pub(crate) fn next(
        &mut self,
        bytes: &mut BytesMut,
    ) -> Result<Option<ResponseHead>, BadResponse> {
        while let Some((head, length)) = ResponseHead::parse(bytes)? {
            bytes.advance(length);
            match head.status {
                101 => return Err(BadResponse::SwitchedProtocol),
                100..200 => {
                    self.interim_responses += 1;
                    self.interim_bytes += length;
                    if self.interim_responses > MAX_INTERIM_RESPONSES
                        || self.interim_bytes > MAX_HEAD_BYTES
                    {
                        return Err(BadResponse::TooManyInterim);
                    }
                }
                _ => return Ok(Some(head)),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

    /// The status of the response in these bytes, which arrive in pieces of this size.
    fn status(bytes: &str, piece: usize) -> Result<Option<u16>, BadResponse> {
        let (mut reader, mut buffer) = (ResponseReader::default(), BytesMut::new());
        for piece in bytes.as_bytes().chunks(piece) {
            buffer.extend_from_slice(piece);
            if let Some(head) = reader.next(&mut buffer)? {
                return Ok(Some(head.status));
            }
        }
        Ok(None)
    }

    #[test]
    fn interim_responses_are_skipped_up_to_a_number() {
        let interim = "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n";
        for piece in [1, 7, 10_000] {
            for (count, read) in [
                (0, Ok(Some(200))),
                (1, Ok(Some(200))),
                (16, Ok(Some(200))),
                (17, Err(BadResponse::TooManyInterim)),
            ] {
                let response = format!("{}{OK}", interim.repeat(count));
                assert_eq!(status(&response, piece), read, "{count}");
            }
        }
        let large = format!("HTTP/1.1 103 X\r\nlink: {}\r\n\r\n", "x".repeat(40 << 10));
        assert_eq!(status(&format!("{large}{OK}"), 1 << 20), Ok(Some(200)));
        let twice = format!("{large}{large}{OK}");
        assert_eq!(status(&twice, 1 << 20), Err(BadResponse::TooManyInterim));
    }

    #[test]
    fn another_protocol_is_an_error() {
        let switched = format!("HTTP/1.1 101 Switching Protocols\r\n\r\n{OK}");
        assert_eq!(status(&switched, 5), Err(BadResponse::SwitchedProtocol));
    }
}
