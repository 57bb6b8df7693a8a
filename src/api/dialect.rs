//! Which API a request speaks: OpenAI's, or Anthropic's Messages API, whose errors and headers differ.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};

use super::access_log::Route;
use crate::{net::http1::Refused, wire::error::GatewayError};

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// The name under which clients of the Messages API read the request ID.
const MESSAGES_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const MESSAGES: &str = "/v1/messages";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Messages,
}

impl Dialect {
    /// The API of a request: the Messages API has paths of its own, and its clients send `anthropic-version` to the
    /// paths that both have. The other billed endpoints are OpenAI's, whatever the headers are.
    pub(super) fn of(request: &Request, route: Option<&Route>) -> Self {
        let is_messages = if let Some(Route::Known(path)) = route {
            path.starts_with(MESSAGES)
        } else {
            let path = Refused::path_of(request);
            is_messages_path(path) || sends_version(path, request.headers())
        };
        if is_messages {
            Self::Messages
        } else {
            Self::OpenAi
        }
    }

    /// Whether a request with these headers to a path of both APIs speaks the Messages API.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        if headers.contains_key(VERSION) {
            Self::Messages
        } else {
            Self::OpenAi
        }
    }

    /// The response to a failed request. Every refusal on the way gets its form here.
    ///
    /// `request_url` is the page of the portal that shows the request. `response` is the response without it, in the form
    /// of OpenAI's API.
    pub(super) fn translated(
        self,
        error: &GatewayError,
        request_id: &HeaderValue,
        request_url: Option<String>,
        mut response: Response,
    ) -> Response {
        match self {
            Self::OpenAi => {
                if request_url.is_some() {
                    let envelope = error.envelope().with_request_url(request_url);
                    *response.body_mut() = Body::from(envelope.to_json());
                }
                response
            }
            Self::Messages => {
                let request_id = String::from_utf8_lossy(request_id.as_bytes());
                error.messages_response(&request_id, request_url)
            }
        }
    }

    /// Adds the headers that every response of the API has.
    pub(super) fn mark(self, request_id: &HeaderValue, response: &mut Response) {
        if self == Self::Messages {
            let headers = response.headers_mut();
            headers.insert(MESSAGES_REQUEST_ID, request_id.clone());
        }
    }
}

fn is_messages_path(path: &str) -> bool {
    let rest = path.strip_prefix(MESSAGES);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn sends_version(path: &str, headers: &HeaderMap) -> bool {
    (path == "/v1" || path.starts_with("/v1/")) && headers.contains_key(VERSION)
}
