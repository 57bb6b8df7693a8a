//! The chunked transfer encoding, for requests and responses.

use bytes::{Buf as _, BytesMut};

use super::{
    body::{Broken, Next},
    limits::{MAX_EXTRA_BYTES, MAX_EXTRA_BYTES_LENIENT, MAX_SIZE_DIGITS},
    request_head::is_token,
};

/// How exactly the encoding must be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// For requests: no spaces after a size, no control characters in an extension, a limit for all that is ignored.
    /// Another server on the way could read such a body differently, and find the next request at another place.
    Strict,
    /// For responses of providers: accepts spaces after a size, which some servers send, and any extension.
    Lenient,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    at: At,
    dialect: Dialect,
    /// The size of the current chunk as far as its line is read, then the bytes that are left of it.
    size: u64,
    digits: u32,
    extra: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    /// Spaces after a size.
    Padding,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a line after the last chunk: a trailer, or the end.
    LastLine,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

impl Chunks {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            at: At::Size,
            dialect,
            size: 0,
            digits: 0,
            extra: 0,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.at == At::End
    }

    /// Takes the next data off the front of `bytes`, and all framing before it.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<Next, Broken> {
        let mut count = 0;
        while count < bytes.len() && self.at != At::Data && self.at != At::End {
            let Some(at) = self.step(bytes[count]) else {
                bytes.advance(count);
                return Err(Broken);
            };
            count += 1;
            self.at = at;
        }
        bytes.advance(count);
        if self.at == At::End {
            return Ok(Next::End);
        }
        if bytes.is_empty() {
            return Ok(Next::More);
        }
        let data = bytes.split_to(
            usize::try_from(self.size)
                .unwrap_or(usize::MAX)
                .min(bytes.len()),
        );
        self.size -= data.len() as u64;
        if self.size == 0 {
            self.at = At::DataCr;
        }
        Ok(Next::Data(data.freeze()))
    }

    /// The state after one byte of framing; `None` if the byte is not allowed. A line ends in CRLF and in nothing else.
    fn step(&mut self, byte: u8) -> Option<At> {
        let lenient = self.dialect == Dialect::Lenient;
        let is_text = (byte >= b' ' && byte != 0x7f) || byte == b'\t';
        match (self.at, byte) {
            (At::Size | At::Padding, b';') if self.digits > 0 => Some(At::Extension),
            (At::Size | At::Padding | At::Extension, b'\r') if self.digits > 0 => Some(At::SizeLf),
            (At::Size | At::Padding, b' ' | b'\t') if lenient && self.digits > 0 => {
                self.extra(At::Padding)
            }
            // Leading zeros have no limit of their own in a response.
            (At::Size, b'0') if lenient && self.size == 0 && self.digits > 0 => {
                self.extra(At::Size)
            }
            (At::Size, digit) => {
                let digit = char::from(digit).to_digit(16)?;
                self.digits += 1;
                self.size = self.size.checked_mul(16)?.checked_add(digit.into())?;
                (self.digits <= MAX_SIZE_DIGITS).then_some(At::Size)
            }
            (At::Extension, _) if is_text || (lenient && byte != b'\n') => {
                self.extra(At::Extension)
            }
            (At::SizeLf, b'\n') => Some(self.after_size()),
            (At::DataCr, b'\r') => Some(At::DataLf),
            (At::DataLf, b'\n') => Some(self.before_size()),
            (At::LastLine, b'\r') => Some(At::EndLf),
            (At::LastLine | At::TrailerName, _) if is_token(byte) => self.extra(At::TrailerName),
            (At::TrailerName, b':') => self.extra(At::TrailerValue),
            (At::TrailerValue, b'\r') => Some(At::TrailerLf),
            (At::TrailerValue, _) if is_text => self.extra(At::TrailerValue),
            (At::TrailerLf, b'\n') => Some(At::LastLine),
            (At::EndLf, b'\n') => Some(At::End),
            _ => None,
        }
    }

    fn after_size(&self) -> At {
        if self.size == 0 {
            At::LastLine
        } else {
            At::Data
        }
    }

    fn before_size(&mut self) -> At {
        self.digits = 0;
        // A provider may pad or extend every chunk of a long stream.
        if self.dialect == Dialect::Lenient {
            self.extra = 0;
        }
        At::Size
    }

    fn extra(&mut self, at: At) -> Option<At> {
        self.extra += 1;
        let most = match self.dialect {
            Dialect::Strict => MAX_EXTRA_BYTES,
            Dialect::Lenient => MAX_EXTRA_BYTES_LENIENT,
        };
        (self.extra <= most).then_some(at)
    }
}
