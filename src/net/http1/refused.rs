//! Heads that the connection refused before they became requests.
//!
//! The listener reads heads strictly (`server/http1/head.rs`). What it refuses is answered like
//! everything else, through the router: in the place of the bad head it hands on a request that
//! names the reason, made here and recognised here. A client that sends such a request of its own accord
//! is refused as well, and nothing is lost.

use axum::{
    extract::Request,
    http::{self, HeaderName, HeaderValue, Method, Uri},
};

/// The header that identifies a request to its caller and in our logs.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The most a head may hold: larger than any client's, smaller than a nuisance.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// More than any client sends.
pub const MAX_HEADERS: usize = 100;

const METHOD: &str = "REFUSED";

/// Why a head was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
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

    /// The request that stands in for what was refused, under the ID that the caller gave it.
    pub fn request(self, id: Option<&[u8]>) -> http::Request<()> {
        let mut request = http::Request::new(());
        *request.method_mut() = Method::from_bytes(METHOD.as_bytes()).expect("a word");
        *request.uri_mut() = Uri::from_static(self.path());
        if let Some(id) = id.and_then(|id| HeaderValue::from_bytes(id).ok()) {
            request.headers_mut().insert(REQUEST_ID, id);
        }
        request
    }

    pub fn of(request: &Request) -> Option<Self> {
        if request.method().as_str() != METHOD {
            return None;
        }
        let path = request.uri().path();
        Self::ALL.into_iter().find(|refused| refused.path() == path)
    }
}
