//! Parses the head of a response, and keeps the fields that the gateway uses.
//!
//! A head that is malformed, too large or ambiguous about the length of its body is an error. If it is unambiguous, but
//! a server could still send bytes that do not belong to its body, the connection is marked as not reusable.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use super::{
    body::BodyFraming,
    chunks::Dialect,
    limits::{MAX_HEAD_BYTES, MAX_RESPONSE_HEADERS},
    request_head::number,
};

/// Status, framing and the needed headers of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub status: u16,
    pub content_type: String,
    pub content_encoding: Option<String>,
    pub retry_after: Option<String>,
    pub framing: BodyFraming,
    /// Whether another request may be sent after the body.
    pub keep_alive: bool,
}

/// Why a response cannot be read. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadResponse {
    #[error("not HTTP: {0}")]
    NotHttp(httparse::Error),
    #[error("an invalid HTTP status")]
    Status,
    #[error("a response head that is too large")]
    TooLarge,
    #[error("an unsupported or repeated Transfer-Encoding")]
    TransferEncoding,
    #[error("an invalid or conflicting Content-Length")]
    ContentLength,
    #[error("an interim response (1xx) with a body")]
    InterimBody,
    #[error("too many interim responses (1xx)")]
    TooManyInterim,
    #[error("an unexpected change of protocol (status 101)")]
    SwitchedProtocol,
}

impl ResponseHead {
    /// Parses the head at the start of `bytes` and returns it with its length; `None` if it is incomplete. Interim
    /// responses (1xx) are returned as heads, too.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadResponse> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut headers = [const { MaybeUninit::uninit() }; MAX_RESPONSE_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parser = ParserConfig::default();
        let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        let length = match parsed {
            Ok(Status::Complete(length)) if length <= MAX_HEAD_BYTES => length,
            Ok(Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadResponse::TooLarge),
            Err(error) => return Err(BadResponse::NotHttp(error)),
        };
        let is_http11 = response.version == Some(1);
        let status = response.code.filter(|code| (100..=999).contains(code));
        let status = status.ok_or(BadResponse::Status)?;
        let headers = Headers(response.headers);
        let is_chunked = headers.is_chunked(is_http11)?;
        let announced = headers.content_length()?;
        let has_framing = is_chunked || announced.is_some();
        let (framing, is_certain) = match (status, announced) {
            (100..200, None | Some(0)) if !is_chunked => (BodyFraming::Length(0), true),
            (100..200, _) => return Err(BadResponse::InterimBody),
            // These have no body. A server that announces one may send it nevertheless.
            (204 | 304, _) => (BodyFraming::Length(0), !has_framing),
            // With both headers, another server may find the end of the body at another position.
            (_, announced) if is_chunked => {
                (BodyFraming::chunked(Dialect::Lenient), announced.is_none())
            }
            (_, Some(length)) => (BodyFraming::Length(length), true),
            (_, None) => (BodyFraming::UntilClosed, false),
        };
        let text = |name| headers.last_text(name);
        let head = Self {
            status,
            content_type: text("content-type")
                .unwrap_or_default()
                .to_ascii_lowercase(),
            content_encoding: text("content-encoding").map(str::to_owned),
            retry_after: text("retry-after").map(str::to_owned),
            framing,
            keep_alive: is_certain && headers.keeps_alive(is_http11),
        };
        Ok(Some((head, length)))
    }
}

struct Headers<'a>(&'a [Header<'a>]);

impl<'a> Headers<'a> {
    /// The values of the headers with this name.
    fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self
            .0
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value.trim_ascii())
    }

    /// The last value of a header that is informational only, if it is text.
    fn last_text(&self, name: &str) -> Option<&'a str> {
        self.all(name)
            .last()
            .and_then(|value| str::from_utf8(value).ok())
    }

    /// Whether the body is chunked: one `Transfer-Encoding`, which says `chunked` and nothing else, in HTTP/1.1.
    fn is_chunked(&self, is_http11: bool) -> Result<bool, BadResponse> {
        let mut codings = self.all("transfer-encoding");
        match (codings.next(), codings.next()) {
            (None, _) => Ok(false),
            (Some(coding), None) if is_http11 && coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(true)
            }
            _ => Err(BadResponse::TransferEncoding),
        }
    }

    /// The `Content-Length`; an error if it is invalid or there are different ones. Equal ones are accepted: some
    /// proxies add a second.
    fn content_length(&self) -> Result<Option<u64>, BadResponse> {
        let mut announced = None;
        for value in self
            .all("content-length")
            .flat_map(|value| value.split(|byte| *byte == b','))
        {
            let length = number(value.trim_ascii()).ok_or(BadResponse::ContentLength)?;
            if announced.is_some_and(|before| before != length) {
                return Err(BadResponse::ContentLength);
            }
            announced = Some(length);
        }
        Ok(announced)
    }

    /// Whether the connection stays open by what `Connection` says. A value that is not ASCII closes it.
    fn keeps_alive(&self, is_http11: bool) -> bool {
        let has_option = |option: &[u8]| {
            let mut options = self
                .all("connection")
                .flat_map(|value| value.split(|byte| *byte == b','));
            options.any(|value| value.trim_ascii().eq_ignore_ascii_case(option))
        };
        self.all("connection").all(<[u8]>::is_ascii)
            && !has_option(b"close")
            && (is_http11 || has_option(b"keep-alive"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &[u8]) -> Result<ResponseHead, BadResponse> {
        let text = [text, b"\r\n\r\n"].concat();
        let parsed = ResponseHead::parse(&text)?;
        let (head, length) = parsed.expect("a complete head");
        assert_eq!(length, text.len());
        for cut in 0..text.len() {
            let partial = ResponseHead::parse(&text[..cut]).unwrap();
            assert!(partial.is_none(), "{:?}", text[..cut].escape_ascii());
        }
        Ok(head)
    }

    /// A response with these headers, in HTTP/1.1.
    fn with(status: u16, headers: &str) -> Result<ResponseHead, BadResponse> {
        head(format!("HTTP/1.1 {status} X\r\n{headers}").as_bytes())
    }

    #[test]
    fn framing_and_keep_alive_follow_the_headers() {
        let length = BodyFraming::Length;
        let chunked = || BodyFraming::chunked(Dialect::Lenient);
        for (text, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5", length(5), true),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\ncontent-length: 5",
                length(5),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked",
                chunked(),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
                chunked(),
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 0",
                length(0),
                false,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0", length(0), false),
            (
                "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 0",
                length(0),
                true,
            ),
            ("HTTP/1.1 204 None", length(0), true),
            ("HTTP/1.1 103 Early\r\ncontent-length: 0", length(0), true),
            ("HTTP/1.1 200", BodyFraming::UntilClosed, false),
        ] {
            let head = head(text.as_bytes()).unwrap();
            assert_eq!(
                (head.framing, head.keep_alive),
                (framing, keep_alive),
                "{text}"
            );
        }
    }

    #[test]
    fn a_status_without_a_body_that_announces_one_ends_the_connection() {
        for status in [204, 304] {
            for header in [
                "content-length: 5",
                "content-length: 0",
                "transfer-encoding: chunked",
            ] {
                let head = with(status, header).unwrap();
                assert_eq!(head.framing, BodyFraming::Length(0), "{status}, {header}");
                assert!(!head.keep_alive, "{status}, {header}");
            }
            assert!(with(status, "x: y").unwrap().keep_alive);
        }
    }

    #[test]
    fn a_connection_option_that_is_not_ascii_ends_the_connection() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: clos\xe9";
        assert!(!head(text).unwrap().keep_alive);
    }

    #[test]
    fn a_head_that_can_be_read_in_two_ways_is_an_error() {
        use BadResponse::{ContentLength, InterimBody, TransferEncoding};
        for (status, headers, error) in [
            (200, "content-length: 5\r\ncontent-length: 6", ContentLength),
            (200, "content-length: 5, 6", ContentLength),
            (200, "content-length: +5", ContentLength),
            (200, "content-length: ", ContentLength),
            (200, "content-length: \u{665}", ContentLength),
            (200, "content-length: 5\u{e9}", ContentLength),
            (200, "content-length: 18446744073709551615", ContentLength),
            (204, "content-length: x", ContentLength),
            (200, "transfer-encoding: gzip, chunked", TransferEncoding),
            (200, "transfer-encoding: chunked, chunked", TransferEncoding),
            (200, "transfer-encoding: identity", TransferEncoding),
            (200, "transfer-encoding: ", TransferEncoding),
            (200, "transfer-encoding: chunked\u{e9}", TransferEncoding),
            (200, "transfer-encoding: \u{e9}", TransferEncoding),
            (
                200,
                "transfer-encoding: chunked\r\nTransfer-Encoding: chunked",
                TransferEncoding,
            ),
            (
                200,
                "transfer-encoding: \u{e9}\r\ntransfer-encoding: chunked",
                TransferEncoding,
            ),
            (204, "transfer-encoding: gzip", TransferEncoding),
            (103, "content-length: 5", InterimBody),
            (100, "transfer-encoding: chunked", InterimBody),
        ] {
            assert_eq!(with(status, headers), Err(error), "{status}, {headers}");
        }
        let old = "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(ResponseHead::parse(old.as_bytes()), Err(TransferEncoding));
    }

    #[test]
    fn bytes_that_are_not_a_head_are_an_error() {
        for text in ["HTTP/1.1 200 OK\r\nx y: z", "HTTP/2 200 OK", "<html>"] {
            let refused = ResponseHead::parse(format!("{text}\r\n\r\n").as_bytes());
            assert!(matches!(refused, Err(BadResponse::NotHttp(_))), "{text}");
        }
        assert_eq!(
            ResponseHead::parse(b"HTTP/1.1 099 X\r\n\r\n"),
            Err(BadResponse::Status)
        );
    }

    #[test]
    fn an_endless_head_is_refused() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(ResponseHead::parse(endless.as_bytes()).is_err());
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "x: y\r\n".repeat(MAX_RESPONSE_HEADERS + 1)
        );
        assert!(ResponseHead::parse(many.as_bytes()).is_err());
    }
}
