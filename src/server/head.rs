//! The head of one HTTP/1 request, read as strictly as RFC 9112 is written.
//!
//! The HTTP library lets some heads through that another server on the way may read differently, and
//! so find the next request at another place: both a length and an encoding, line ends without CR.
//! What passes here has one reading. It also passes there, so that no answer but ours is ever given.

use axum::http::Uri;
use memchr::memchr;

use crate::http::{MAX_HEADERS, Refused};

/// How the end of a request's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Length(u64),
    Chunked,
}

/// The largest length the HTTP library counts to.
const MAX_LENGTH: u64 = u64::MAX - 2;

/// Checks a whole head, its empty line included.
pub fn check(head: &[u8]) -> Result<Body, Refused> {
    let mut rest = head;
    let mut next_line = || {
        let end = memchr(b'\n', rest).ok_or(Refused::LineEnds)?;
        let (line, after) = rest.split_at(end + 1);
        rest = after;
        line.strip_suffix(b"\r\n").ok_or(Refused::LineEnds)
    };
    let version = request_line(next_line()?)?;
    let mut fields = Fields::default();
    loop {
        let line = next_line()?;
        if line.is_empty() {
            return fields.body(version);
        }
        fields.add(line)?;
    }
}

/// The caller's ID for a request that is refused, where it can be made out.
pub fn request_id(head: &[u8]) -> Option<&[u8]> {
    let lines = head.split(|byte| *byte == b'\n');
    lines
        .map(<[u8]>::trim_ascii_end)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| field(line).ok())
        .find(|(name, value)| name.eq_ignore_ascii_case(b"x-request-id") && !value.is_empty())
        .map(|(_, id)| id)
}

/// Which bytes make up names and methods: every head is mostly these, so they are looked up.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

pub fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

fn request_line(line: &[u8]) -> Result<Version, Refused> {
    let mut words = line.split(|byte| *byte == b' ');
    let words = (words.next(), words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = words else {
        return Err(Refused::RequestLine);
    };
    let is_method = !method.is_empty() && method.iter().all(|byte| is_token(*byte));
    if !is_method || !is_target(target) {
        return Err(Refused::RequestLine);
    }
    match version {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        _ => Err(Refused::RequestLine),
    }
}

/// Plain paths are recognised here; for the rest there is the library's own judgement, which costs
/// an allocation.
fn is_target(target: &[u8]) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'/' | b'-' | b'_' | b'.' | b'~' | b'%' | b'?' | b'=' | b'&'
            )
    };
    target.first() == Some(&b'/') && target.iter().all(|byte| is_plain(*byte))
        || (target.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
            && Uri::try_from(target).is_ok())
}

/// A header's name and value.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Refused> {
    // A line that goes on in the next one (obs-fold) begins with a space, which is no name.
    let colon = memchr(b':', line).ok_or(Refused::Header)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_name = !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    let is_text = |byte: &u8| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t';
    if !is_name || !value.iter().all(is_text) {
        return Err(Refused::Header);
    }
    Ok((name, value.trim_ascii()))
}

/// What the headers so far say about the request's frame.
#[derive(Default)]
struct Fields {
    count: usize,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Fields {
    fn add(&mut self, line: &[u8]) -> Result<(), Refused> {
        self.count += 1;
        if self.count > MAX_HEADERS {
            return Err(Refused::TooMany);
        }
        let (name, value) = field(line)?;
        // The length tells most names apart before a letter is compared.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.must_be_first()?;
                self.length = Some(number(value).ok_or(Refused::Length)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.must_be_first()?;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refused::Length);
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Nothing has said yet how long the body is. Even two equal words are one too many: another
    /// server may have added up or dropped one of them.
    fn must_be_first(&self) -> Result<(), Refused> {
        if self.length.is_some() || self.chunked {
            return Err(Refused::Length);
        }
        Ok(())
    }

    fn body(self, version: Version) -> Result<Body, Refused> {
        if self.hosts > 1 || (version == Version::Http11 && self.hosts == 0) {
            return Err(Refused::Host);
        }
        match self.chunked {
            true if version == Version::Http10 => Err(Refused::Length),
            true => Ok(Body::Chunked),
            false => Ok(Body::Length(self.length.unwrap_or(0))),
        }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    number.filter(|number| *number <= MAX_LENGTH)
}
