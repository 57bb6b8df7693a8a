//! A body in chunks, taken apart, and strictly so: no spaces in the line of a size, no bare line ends anywhere.

use bytes::{Buf as _, Bytes, BytesMut};

use super::framing::Broken;

#[derive(Debug)]
pub struct Chunks {
    at: At,
    /// Of the current chunk: what its line says, then what is left of it.
    size: u64,
    digits: u32,
    extra: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a line after the last chunk: a trailer, or the end.
    LastLine,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

/// Sixteen hexadecimal digits are all that a size can need.
const MAX_DIGITS: u32 = 16;

/// How much a body may have of what is no data: extensions and trailers, which nobody reads.
const MAX_EXTRA_BYTES: u32 = 16 << 10;

/// What comes next of a body.
pub enum Next {
    Data(Bytes),
    More,
    End,
}

impl Chunks {
    pub fn new() -> Self {
        Self {
            at: At::Size,
            size: 0,
            digits: 0,
            extra: 0,
        }
    }

    /// Takes the next data off the front of `bytes`; of what is no data, all that there is.
    pub fn next(&mut self, bytes: &mut BytesMut) -> Result<Next, Broken> {
        let mut count = 0;
        while count < bytes.len() && self.at != At::Data {
            let Some(at) = self.step(bytes[count]) else {
                bytes.advance(count);
                return Err(Broken::Body);
            };
            count += 1;
            self.at = at;
            if at == At::End {
                bytes.advance(count);
                return Ok(Next::End);
            }
        }
        bytes.advance(count);
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

    /// Where one byte that is not data leads to.
    fn step(&mut self, byte: u8) -> Option<At> {
        let is_text = (byte >= b' ' && byte != 0x7f) || byte == b'\t';
        match (self.at, byte) {
            (At::Size, b';') if self.digits > 0 => Some(At::Extension),
            (At::Size | At::Extension, b'\r') if self.digits > 0 => Some(At::SizeLf),
            (At::Size, digit) => {
                let digit = char::from(digit).to_digit(16)?;
                self.digits += 1;
                self.size = self.size.checked_mul(16)?.checked_add(digit.into())?;
                (self.digits <= MAX_DIGITS).then_some(At::Size)
            }
            (At::Extension, _) if is_text => self.extra(At::Extension),
            (At::SizeLf, b'\n') if self.size == 0 => Some(At::LastLine),
            (At::SizeLf, b'\n') => Some(At::Data),
            (At::DataCr, b'\r') => Some(At::DataLf),
            (At::DataLf, b'\n') => {
                self.digits = 0;
                Some(At::Size)
            }
            (At::LastLine, b'\r') => Some(At::EndLf),
            (At::Trailer, b'\r') => Some(At::TrailerLf),
            (At::LastLine | At::Trailer, _) if is_text => self.extra(At::Trailer),
            (At::TrailerLf, b'\n') => Some(At::LastLine),
            (At::EndLf, b'\n') => Some(At::End),
            _ => None,
        }
    }

    fn extra(&mut self, at: At) -> Option<At> {
        self.extra += 1;
        (self.extra <= MAX_EXTRA_BYTES).then_some(at)
    }
}
