//! Parses the head of an HTTP/1 request, strictly by RFC 9112.
//!
//! If a proxy and a server read a head differently, they find the next request at different positions (request
//! smuggling): for example a head with both a length and an encoding, or with line ends without CR. A head that passes
//! here can be read in one way only; every other is refused with the reason.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use bytes::Bytes;
use memchr::memchr;

use super::limits::{MAX_HEADERS, MAX_LENGTH};
use crate::net::http1::Refused;

/// Initial capacity, enough for the headers of the official clients.
const USUAL_HEADERS: usize = 24;

/// Framing of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
}

/// A request without its body.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub request: Request<()>,
    pub(super) body: Body,
}

impl RequestHead {
    /// Parses a complete head, including its empty line.
    pub(super) fn read(head: &Bytes) -> Result<Self, Refused> {
        let mut at = 0;
        let mut next_line = || {
            let end = at + memchr(b'\n', &head[at..]).ok_or(Refused::LineEnds)?;
            let line = head[at..end].strip_suffix(b"\r").ok_or(Refused::LineEnds)?;
            at = end + 1;
            Ok(line)
        };
        let mut request = request_line(head, next_line()?)?;
        let mut fields = Fields::new();
        loop {
            let line = next_line()?;
            if line.is_empty() {
                let body = fields.body(request.version())?;
                *request.headers_mut() = fields.all;
                return Ok(Self { request, body });
            }
            fields.add(head, line)?;
        }
    }

    /// Whether the client may send another request on this connection.
    pub(crate) fn keeps_alive(&self) -> bool {
        let has_option = |option: &str| {
            let values = self.request.headers().get_all(header::CONNECTION);
            let mut options = values
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','));
            options.any(|value| value.trim().eq_ignore_ascii_case(option))
        };
        if self.request.version() == Version::HTTP_10 {
            has_option("keep-alive") && !has_option("close")
        } else {
            !has_option("close")
        }
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) fn expects_continue(&self) -> bool {
        let expected = self.request.headers().get(header::EXPECT);
        self.request.version() == Version::HTTP_11
            && expected.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    }
}

/// The value of a header in a refused head, if it can be found.
pub(crate) fn seen_header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let lines = head.split(|byte| *byte == b'\n');
    lines
        .map(<[u8]>::trim_ascii_end)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| field(line).ok())
        .find(|(found, value)| found.eq_ignore_ascii_case(name.as_bytes()) && !value.is_empty())
        .map(|(_, value)| value)
}

/// The path in a refused head, if it can be found.
pub(crate) fn seen_path(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let target = line.split(|byte| *byte == b' ').nth(1)?;
    let path = target.split(|byte| *byte == b'?').next()?;
    std::str::from_utf8(path).ok()
}

/// Bytes that are allowed in header names and methods. A table, because most bytes of a head are checked with it.
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

pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

fn request_line(head: &Bytes, line: &[u8]) -> Result<Request<()>, Refused> {
    let mut parts = line.split(|byte| *byte == b' ');
    let parts = (parts.next(), parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target), Some(version), None) = parts else {
        return Err(Refused::RequestLine);
    };
    let is_target = target.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    let method = Method::from_bytes(method).ok();
    let uri = Uri::from_maybe_shared(head.slice_ref(target)).ok();
    let (Some(method), Some(uri), true) = (method, uri, is_target) else {
        return Err(Refused::RequestLine);
    };
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = match version {
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/1.0" => Version::HTTP_10,
        _ => return Err(Refused::RequestLine),
    };
    Ok(request)
}

/// Name and value of a header line.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Refused> {
    // A folded line (obs-fold) begins with a space, which is not allowed in a name.
    let colon = memchr(b':', line).ok_or(Refused::Header)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_name = !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    // The whole value is checked, before it is trimmed: `trim_ascii` would remove control characters that another
    // server takes for a line end.
    let is_text = |byte: &u8| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t';
    let is_value = value
        .iter()
        .fold(true, |so_far, byte| so_far & is_text(byte));
    if !is_name || !is_value {
        return Err(Refused::Header);
    }
    Ok((name, value.trim_ascii()))
}

/// The headers so far, and the framing that they declare.
struct Fields {
    all: HeaderMap,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Fields {
    fn new() -> Self {
        Self {
            all: HeaderMap::with_capacity(USUAL_HEADERS),
            hosts: 0,
            length: None,
            chunked: false,
        }
    }

    fn add(&mut self, head: &Bytes, line: &[u8]) -> Result<(), Refused> {
        if self.all.len() == MAX_HEADERS {
            return Err(Refused::TooMany);
        }
        let (name, value) = field(line)?;
        // Comparing the length first rules out most names cheaply.
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
        let name = HeaderName::from_bytes(name).map_err(|_| Refused::Header)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value));
        self.all.append(name, value.map_err(|_| Refused::Header)?);
        Ok(())
    }

    /// Refuses a second header that declares the framing. Two equal ones are refused as well, because another server
    /// may have combined or dropped one of them.
    fn must_be_first(&self) -> Result<(), Refused> {
        if self.length.is_some() || self.chunked {
            return Err(Refused::Length);
        }
        Ok(())
    }

    /// The framing of the body; checks also that there is one `Host` header.
    fn body(&self, version: Version) -> Result<Body, Refused> {
        if self.hosts > 1 || (version == Version::HTTP_11 && self.hosts == 0) {
            return Err(Refused::Host);
        }
        match self.chunked {
            true if version == Version::HTTP_10 => Err(Refused::Length),
            true => Ok(Body::Chunked),
            false => Ok(Body::Length(self.length.unwrap_or(0))),
        }
    }
}

/// A decimal number of digits only, without a sign.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    number.filter(|number| *number <= MAX_LENGTH)
}
