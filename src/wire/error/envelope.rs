//! The error envelope: the JSON body of every failure, of the public API and of the operator API.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::GatewayError;
use crate::base::rate::{Refusal, UNLIMITED, WINDOW_MS};

/// `Retry-After` in seconds while abandoned calls are still running. When a provider will have finished is unknown;
/// most have within a few seconds.
const ABANDONED_RETRY_AFTER: u64 = 5;

/// Bounds of texts that can quote values of the request, which may be as large as its body. They are in bytes of JSON:
/// with them a body has less than 1,000, and programs that print the whole body stay readable.
pub(super) const MAX_MESSAGE_BYTES: usize = 600;
pub(super) const MAX_PARAM_BYTES: usize = 200;
/// What is left of a long message beside a long URL.
const MIN_MESSAGE_BYTES: usize = 200;

/// The field with the page of the portal that shows the request.
pub(crate) const REQUEST_URL: &str = "request_url";
const UPSTREAM_ERROR: &str = "upstream_error";

/// `{error: {message, type, code, param, …}}` with its status.
///
/// All four keys are always present, `null` if they have no value, so that a client can read them unchecked. Extra
/// fields are beside them and not outside `error`, because official clients pass on the inner object only.
#[derive(Debug, Serialize)]
pub(crate) struct Envelope {
    #[serde(skip)]
    pub status: StatusCode,
    pub message: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub code: Option<String>,
    pub param: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Envelope {
    pub(crate) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a Envelope,
        }
        serde_json::to_string(&Body { error: self }).expect("strings and JSON values serialise")
    }
}

impl Envelope {
    /// Adds the seconds of `Retry-After` as a field, for stream events, which have no headers.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, seconds: Option<u64>) -> Self {
        if let Some(seconds) = seconds {
            self.extra.insert("retry_after".into(), seconds.into());
        }
        self
    }

    /// Adds the page of the portal that shows the request, if there is one. A long message is cut to make room for it.
    #[must_use]
    pub(crate) fn with_request_url(mut self, url: Option<String>) -> Self {
        if let Some(url) = url {
            self.message = cut(self.message, message_bytes_beside(&url));
            self.extra.insert(REQUEST_URL.into(), url.into());
        }
        self
    }

    /// The page that [`Self::with_request_url`] has set.
    pub(crate) fn request_url(&self) -> Option<&Value> {
        self.extra.get(REQUEST_URL)
    }

    /// The most specific name of this error: its code, or its type where the code is the same for several types. The
    /// portal tells by it what to do.
    pub(crate) fn reason(&self) -> &str {
        match self.code.as_deref() {
            // The code of an upstream error is the provider's HTTP status.
            None | Some("payment_required" | "forbidden") => self.kind,
            Some(_) if self.kind == UPSTREAM_ERROR => self.kind,
            Some(code) => code,
        }
    }

    /// Label of this error in metrics: its code if it has one, otherwise its type. It has few distinct values.
    fn label(&self) -> String {
        match (&self.code, self.kind) {
            // The code of an upstream error is the provider's HTTP status, which can be any number.
            (_, UPSTREAM_ERROR) | (None, _) => self.kind.to_owned(),
            (Some(code), _) => code.clone(),
        }
    }
}

impl IntoResponse for Envelope {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() = self.status;
        let label = ErrorLabel(self.label());
        response.extensions_mut().insert(label);
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// Response extension: the error's label in the operator's metrics.
#[derive(Clone, Debug)]
pub(crate) struct ErrorLabel(pub String);

/// Response extension: why the request was refused, for its log line.
#[derive(Clone, Debug)]
pub(crate) struct Cause(pub String);

/// Response extension: the error, for its log line and for the form of another API.
#[derive(Clone, Debug)]
pub(crate) struct Failed(pub Arc<GatewayError>);

/// Response extension: the error, if the response is a page that shows it.
#[derive(Clone, Debug)]
pub(crate) struct FailedPage(pub Arc<GatewayError>);

impl IntoResponse for GatewayError {
    fn into_response(self) -> Response {
        let mut response = self.envelope().into_response();
        if let Some(retry) = self.should_retry() {
            let retry = HeaderValue::from_static(if retry { "true" } else { "false" });
            response.headers_mut().insert("x-should-retry", retry);
        }
        if let Self::RateLimited(refusal) = &self {
            rate_limit_headers(response.headers_mut(), refusal);
        }
        if let Some(seconds) = self.retry_after() {
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response.extensions_mut().insert(Failed(Arc::new(self)));
        response
    }
}

impl GatewayError {
    /// Why the request failed, for its log line: only texts of this program, because those of callers and providers can
    /// quote a message or a key.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Upstream(error) => error.to_string(),
            Self::InvalidRequest { param, .. } => match param {
                Some(param) => {
                    let param = cut(param.clone(), MAX_PARAM_BYTES);
                    format!("`{param}` was refused")
                }
                None => "the body was refused".into(),
            },
            Self::ModelNotFound { .. } => "there is no such model".into(),
            Self::RouteNotFound { .. } => "there is no such route".into(),
            other => other.to_string(),
        }
    }

    /// Seconds after which the request may succeed, if known.
    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            // `None` for a request that can never fit into the window: waiting would not help.
            Self::RateLimited(refusal) => {
                let seconds = Duration::from_millis(refusal.wait_ms?);
                Some(whole_seconds(seconds).clamp(1, 60))
            }
            Self::TooManyAbandoned { .. } => Some(ABANDONED_RETRY_AFTER),
            Self::TooManyRefused { seconds, .. } | Self::TooManyCounts { seconds } => {
                Some(*seconds)
            }
            Self::InsufficientCredits(unpaid) | Self::CreditsExpired { unpaid, .. } => {
                unpaid.is_temporary.then_some(1)
            }
            Self::BudgetExceeded(over) => over.is_temporary.then_some(1),
            Self::Overloaded
            | Self::RateLimitUnavailable
            | Self::BodyMemoryExhausted
            | Self::CreditUnavailable
            | Self::AdmissionLost
            | Self::IdempotencyInProgress
            | Self::StorageUnavailable => Some(1),
            _ => None,
        }
    }

    /// The envelope as the last event of a stream; fields replace the headers that it cannot have.
    pub(crate) fn event(&self) -> Envelope {
        self.envelope().with_retry_after(self.retry_after())
    }
}

/// Most bytes of a message in a body that names this page.
pub(super) fn message_bytes_beside(url: &str) -> usize {
    let field = url.len() + REQUEST_URL.len() + r#","":"""#.len();
    MAX_MESSAGE_BYTES
        .saturating_sub(field)
        .max(MIN_MESSAGE_BYTES)
}

/// Cuts a text that is longer than `most` bytes in JSON, at the end of a character.
pub(super) fn cut(mut text: String, most: usize) -> String {
    const ELLIPSIS: &str = "…";
    let (mut bytes, mut kept) = (0, 0);
    for (at, c) in text.char_indices() {
        bytes += json_bytes(c);
        if bytes > most {
            text.truncate(kept);
            text.push_str(ELLIPSIS);
            text.shrink_to_fit();
            return text;
        }
        if bytes + ELLIPSIS.len() <= most {
            kept = at + c.len_utf8();
        }
    }
    text
}

/// The bytes of a character in a JSON string.
fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

fn whole_seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Sets the rate-limit headers (§8.5). The reset time is rounded up, so that a client that waits for it is admitted.
fn rate_limit_headers(headers: &mut HeaderMap, refusal: &Refusal) {
    let wait = Duration::from_millis(refusal.wait_ms.unwrap_or(WINDOW_MS));
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let reset = whole_seconds(now + wait);
    headers.insert("x-ratelimit-reset", HeaderValue::from(reset));
    let ceilings = &refusal.ceilings;
    for (limit, remaining, most, left) in [
        (
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            ceilings.requests,
            refusal.requests_left,
        ),
        (
            "x-ratelimit-limit-tokens",
            "x-ratelimit-remaining-tokens",
            ceilings.tokens,
            refusal.tokens_left,
        ),
    ] {
        if most != UNLIMITED {
            headers.insert(limit, HeaderValue::from(most));
            headers.insert(remaining, HeaderValue::from(left));
        }
    }
}

#[cfg(test)]
mod tests;
