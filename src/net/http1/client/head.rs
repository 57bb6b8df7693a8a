//! The head of an answer: what of it matters here.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use crate::{
    net::http1::{body::BodyFraming, chunks::Dialect},
    wire::error::UpstreamError,
};

/// The largest head that is read. A provider that sends more is not sending one.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub content_type: String,
    pub content_encoding: Option<String>,
    pub retry_after: Option<String>,
    pub framing: BodyFraming,
    /// Whether another request may follow once the body is over.
    pub keep_alive: bool,
}

impl Head {
    /// The head that `bytes` begin with, and its length; `None` while its end is still to come. Interim
    /// answers (1xx) are heads of their own.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, UpstreamError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let malformed = |what: &str| UpstreamError::Malformed(what.into());
        let parser = ParserConfig::default();
        let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut room);
        let length = match parsed {
            Ok(Status::Complete(length)) if length <= MAX_HEAD_BYTES => length,
            Ok(Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(malformed("a head that is too large"));
            }
            Err(error) => return Err(UpstreamError::Malformed(format!("no HTTP: {error}"))),
        };
        let status = response.code.unwrap_or_default();
        let is_newer = response.version == Some(1);
        let headers = Headers(response.headers);
        let chunked = match headers.last("transfer-encoding") {
            None => false,
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => true,
            Some(_) => return Err(malformed("a transfer encoding that nobody asked for")),
        };
        let announced = headers.length()?;
        let framing = match (status, announced) {
            (100..200 | 204 | 304, _) => BodyFraming::Length(0),
            _ if chunked => BodyFraming::chunked(Dialect::Lenient),
            (_, Some(length)) => BodyFraming::Length(length),
            (_, None) => BodyFraming::UntilClosed,
        };
        // Two answers to where the body ends: one of them is somebody else's.
        let is_clear = !(chunked && announced.is_some());
        let says = |word| headers.says("connection", word);
        let keep_alive = is_clear && !says("close") && (is_newer || says("keep-alive"));
        let owned = |name| headers.last(name).map(str::to_owned);
        let head = Self {
            status,
            content_type: headers
                .last("content-type")
                .unwrap_or_default()
                .to_ascii_lowercase(),
            content_encoding: owned("content-encoding"),
            retry_after: owned("retry-after"),
            framing,
            keep_alive,
        };
        Ok(Some((head, length)))
    }
}

struct Headers<'a>(&'a [Header<'a>]);

impl<'a> Headers<'a> {
    /// The values of this name that are text.
    fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self
            .0
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.filter_map(|header| str::from_utf8(header.value).ok().map(str::trim))
    }

    fn last(&self, name: &str) -> Option<&'a str> {
        self.all(name).last()
    }

    fn says(&self, name: &str, word: &str) -> bool {
        let mut words = self.all(name).flat_map(|value| value.split(','));
        words.any(|said| said.trim().eq_ignore_ascii_case(word))
    }

    /// The one length that is announced.
    fn length(&self) -> Result<Option<u64>, UpstreamError> {
        let mut announced = None;
        for value in self
            .all("content-length")
            .flat_map(|value| value.split(','))
        {
            let value = value.trim();
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits);
            if length.is_none() || announced.is_some_and(|before| Some(before) != length) {
                let message = "a length that is none".to_owned();
                return Err(UpstreamError::Malformed(message));
            }
            announced = length;
        }
        Ok(announced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, UpstreamError> {
        let text = format!("{text}\r\n\r\n");
        let parsed = Head::parse(text.as_bytes())?;
        let (head, length) = parsed.expect("it is whole");
        assert_eq!(length, text.len());
        for cut in 0..text.len() {
            let partial = Head::parse(&text.as_bytes()[..cut]).unwrap();
            assert!(partial.is_none(), "{:?}", &text[..cut]);
        }
        Ok(head)
    }

    #[test]
    fn where_a_body_ends_is_said_in_one_way() {
        for (text, framing, keep_alive) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5",
                BodyFraming::Length(5),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\ncontent-length: 5",
                BodyFraming::Length(5),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked",
                BodyFraming::chunked(Dialect::Lenient),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
                BodyFraming::chunked(Dialect::Lenient),
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 0",
                BodyFraming::Length(0),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\ncontent-length: 0",
                BodyFraming::Length(0),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 0",
                BodyFraming::Length(0),
                true,
            ),
            (
                "HTTP/1.1 204 None\r\ntransfer-encoding: chunked",
                BodyFraming::Length(0),
                true,
            ),
            ("HTTP/1.1 200", BodyFraming::UntilClosed, true),
        ] {
            let head = head(text).unwrap();
            assert_eq!(
                (head.framing, head.keep_alive),
                (framing, keep_alive),
                "{text}"
            );
        }
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
            "HTTP/1.1 200 OK\r\ncontent-length: +5",
            "HTTP/1.1 200 OK\r\ncontent-length: ",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
            "HTTP/1.1 200 OK\r\nx y: z",
            "HTTP/2 200 OK",
            "<html>",
        ] {
            let refused = Head::parse(format!("{text}\r\n\r\n").as_bytes());
            assert!(
                matches!(refused, Err(UpstreamError::Malformed(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_head_without_end_is_not_waited_for() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(Head::parse(endless.as_bytes()).is_err());
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "x: y\r\n".repeat(MAX_HEADERS + 1)
        );
        assert!(Head::parse(many.as_bytes()).is_err());
    }
}
