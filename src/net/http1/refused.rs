//! Requests that stand in for heads that the server refused to parse.
//!
//! Heads are parsed strictly (`codec/request_head.rs`). The error response to a bad one is made by the router, like every
//! other: in place of the bad head the server passes on a request with the method `REFUSED` and a path that names the
//! reason. It is made here and recognised here. A client that sends such a request itself is refused as well, which is
//! harmless.

use axum::{
    extract::Request,
    http::{self, HeaderName, HeaderValue, Method, Uri},
};

use super::codec;

/// The header that identifies a request to its caller and in our logs.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header by which clients of the Messages API are recognised.
const API_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Method of the stand-in requests.
const METHOD: &str = "REFUSED";

/// Most characters of a path that are kept: enough to tell the APIs apart.
const SEEN_PATH_CHARS: usize = 64;

/// Extension of a stand-in request: the beginning of the path in the refused head.
#[derive(Clone)]
struct SeenPath(String);

/// Why a head was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    RequestLine,
    LineEnds,
    Header,
    Host,
    Length,
    TooLarge,
    TooMany,
    TooSlow,
}

impl Refused {
    const ALL: [Self; 8] = [
        Self::RequestLine,
        Self::LineEnds,
        Self::Header,
        Self::Host,
        Self::Length,
        Self::TooLarge,
        Self::TooMany,
        Self::TooSlow,
    ];

    fn path(self) -> &'static str {
        match self {
            Self::RequestLine => "/request-line",
            Self::LineEnds => "/line-ends",
            Self::Header => "/header",
            Self::Host => "/host",
            Self::Length => "/length",
            Self::TooLarge => "/too-large",
            Self::TooMany => "/too-many",
            Self::TooSlow => "/too-slow",
        }
    }

    /// The stand-in request for a head, with the caller's request ID and with what tells which API was called.
    pub(crate) fn request(self, head: &[u8]) -> http::Request<()> {
        let mut request = http::Request::new(());
        *request.method_mut() = Method::from_bytes(METHOD.as_bytes()).expect("a valid method");
        *request.uri_mut() = Uri::from_static(self.path());
        for name in [REQUEST_ID, API_VERSION] {
            let value = codec::seen_header(head, name.as_str());
            if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value).ok()) {
                request.headers_mut().insert(name, value);
            }
        }
        if let Some(path) = codec::seen_path(head) {
            let path = path.chars().take(SEEN_PATH_CHARS).collect();
            request.extensions_mut().insert(SeenPath(path));
        }
        request
    }

    /// The path of a request; for a stand-in request, that of the refused head if it was found.
    pub(crate) fn path_of(request: &Request) -> &str {
        match request.extensions().get() {
            Some(SeenPath(path)) => path,
            None => request.uri().path(),
        }
    }

    /// The reason that a stand-in request names; `None` for other requests.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        if request.method().as_str() != METHOD {
            return None;
        }
        let path = request.uri().path();
        Self::ALL.into_iter().find(|refused| refused.path() == path)
    }
}
