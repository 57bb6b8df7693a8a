//! Parses the head of a response, and keeps the fields that the gateway uses.
//!
//! A head that is malformed, too large or ambiguous about the length of its body is `UpstreamError::Malformed`.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use crate::{
    net::http1::{body::BodyFraming, chunks::Dialect},
    wire::error::UpstreamError,
};

/// Largest head that is read.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// Status, framing and the needed headers of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub status: u16,
    pub content_type: String,
    pub content_encoding: Option<String>,
    pub retry_after: Option<String>,
    pub framing: BodyFraming,
    /// Whether another request may be sent after the body.
    pub keep_alive: bool,
}

impl Head {
    /// Parses the head at the start of `bytes` and returns it with its length; `None` if it is incomplete. Interim
    /// responses (1xx) are returned as heads, too.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, UpstreamError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let malformed = |what: &str| UpstreamError::Malformed(what.into());
        let parser = ParserConfig::default();
        let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        let length = match parsed {
            Ok(Status::Complete(length)) if length <= MAX_HEAD_BYTES => length,
            Ok(Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(malformed("a response head that is too large"));
            }
            Err(error) => return Err(UpstreamError::Malformed(format!("not HTTP: {error}"))),
        };
        let status = response.code.unwrap_or_default();
        let is_http11 = response.version == Some(1);
        let headers = Headers(response.headers);
        let chunked = match headers.last("transfer-encoding") {
            None => false,
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => true,
            Some(_) => return Err(malformed("an unsupported Transfer-Encoding")),
        };
        let announced = headers.content_length()?;
        let framing = match (status, announced) {
            (100..200 | 204 | 304, _) => BodyFraming::Length(0),
            _ if chunked => BodyFraming::chunked(Dialect::Lenient),
            (_, Some(length)) => BodyFraming::Length(length),
            (_, None) => BodyFraming::UntilClosed,
        };
        // With both headers, the end of the body is ambiguous: another server may find it at another position. Chunks
        // are read, and the connection is not reused.
        let is_unambiguous = !(chunked && announced.is_some());
        let has_option = |option| headers.has_option("connection", option);
        let keep_alive =
            is_unambiguous && !has_option("close") && (is_http11 || has_option("keep-alive"));
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
    /// The values of the headers with this name, without those that are not UTF-8.
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

    /// Whether a comma-separated list contains the option.
    fn has_option(&self, name: &str, option: &str) -> bool {
        let mut options = self.all(name).flat_map(|value| value.split(','));
        options.any(|value| value.trim().eq_ignore_ascii_case(option))
    }

    /// The Content-Length; an error if it is invalid or there are different ones.
    fn content_length(&self) -> Result<Option<u64>, UpstreamError> {
        let mut announced = None;
        for value in self
            .all("content-length")
            .flat_map(|value| value.split(','))
        {
            let value = value.trim();
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits);
            if length.is_none() || announced.is_some_and(|before| Some(before) != length) {
                let message = "an invalid or conflicting Content-Length".to_owned();
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
        let (head, length) = parsed.expect("a complete head");
        assert_eq!(length, text.len());
        for cut in 0..text.len() {
            let partial = Head::parse(&text.as_bytes()[..cut]).unwrap();
            assert!(partial.is_none(), "{:?}", &text[..cut]);
        }
        Ok(head)
    }

    #[test]
    fn framing_and_keep_alive_follow_the_headers() {
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
    fn an_endless_head_is_refused() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(Head::parse(endless.as_bytes()).is_err());
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "x: y\r\n".repeat(MAX_HEADERS + 1)
        );
        assert!(Head::parse(many.as_bytes()).is_err());
    }
}
