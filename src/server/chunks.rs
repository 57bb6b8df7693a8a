//! A body in chunks, followed to its end.
//!
//! The HTTP library decodes it; this only has to know where it is over, and to agree. It is the stricter
//! of the two: no spaces in the line of a size, no bare line ends anywhere.

#[derive(Debug)]
pub struct Chunks {
    at: At,
    /// Of the current chunk: what its line says, then what is left of it.
    size: u64,
    digits: u32,
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

/// What some bytes were to the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Followed {
    /// All of them belong to it, and it goes on.
    GoesOn,
    /// It ends after so many.
    Ends(usize),
    /// After so many it is no chunked body any more.
    Breaks(usize),
}

impl Chunks {
    pub fn new() -> Self {
        Self {
            at: At::Size,
            size: 0,
            digits: 0,
        }
    }

    pub fn follow(&mut self, bytes: &[u8]) -> Followed {
        let mut count = 0;
        while count < bytes.len() {
            if self.at == At::Data {
                let rest = (bytes.len() - count) as u64;
                let data = rest.min(self.size);
                self.size -= data;
                count += usize::try_from(data).unwrap_or(usize::MAX); // no more than `rest`
                if self.size == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            match self.step(bytes[count]) {
                Some(At::End) => return Followed::Ends(count + 1),
                Some(at) => self.at = at,
                None => return Followed::Breaks(count),
            }
            count += 1;
        }
        Followed::GoesOn
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
            (At::Extension, _) if is_text => Some(At::Extension),
            (At::SizeLf, b'\n') if self.size == 0 => Some(At::LastLine),
            (At::SizeLf, b'\n') => Some(At::Data),
            (At::DataCr, b'\r') => Some(At::DataLf),
            (At::DataLf, b'\n') => {
                self.digits = 0;
                Some(At::Size)
            }
            (At::LastLine, b'\r') => Some(At::EndLf),
            (At::Trailer, b'\r') => Some(At::TrailerLf),
            (At::LastLine | At::Trailer, _) if is_text => Some(At::Trailer),
            (At::TrailerLf, b'\n') => Some(At::LastLine),
            (At::EndLf, b'\n') => Some(At::End),
            _ => None,
        }
    }
}
