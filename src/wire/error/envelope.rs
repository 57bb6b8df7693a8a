//! The error envelope: the one body every failure has, here and in the operator API.

use std::time::{Duration, SystemTime};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::GatewayError;
use crate::base::rate::{Refusal, WINDOW_MS};

/// In seconds. Nobody knows when a provider will have finished; most have within a few seconds.
const ABANDONED_RETRY_AFTER: u64 = 5;

/// `{error: {message, type, code, param, …}}` with its status.
///
/// All four keys are always there, `null` where there is nothing to say, so that a client can
/// read them without asking first. Extra fields stand beside them, because official clients hand
/// on the inner object alone.
#[derive(Debug, Serialize)]
pub struct Envelope {
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
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            error: &'a Envelope,
        }
        serde_json::to_string(&Body { error: self }).expect("strings and JSON values serialise")
    }
}

impl Envelope {
    /// With the seconds after which to try again, for events: those have no headers.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: Option<u64>) -> Self {
        if let Some(seconds) = seconds {
            self.extra.insert("retry_after".into(), seconds.into());
        }
        self
    }

    /// Its code or its type, whichever says more; of few different values.
    fn label(&self) -> String {
        match (&self.code, self.kind) {
            // Here the code is whatever the provider's status was.
            (_, "upstream_error") | (None, _) => self.kind.to_owned(),
            (Some(code), _) => code.clone(),
        }
    }
}

impl IntoResponse for Envelope {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() = self.status;
        let refused = Refused(self.label());
        response.extensions_mut().insert(refused);
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// What kind of error was answered, for the operator's counters.
#[derive(Clone, Debug)]
pub struct Refused(pub String);

/// Why a request was refused, for its log line.
#[derive(Clone, Debug)]
pub struct Cause(pub String);

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
        // What we make of it, and no one else's words: they can quote a message or a key.
        let cause = match &self {
            Self::Upstream(error) => error.to_string(),
            Self::InvalidRequest { param, .. } => match param {
                Some(param) => format!("`{param}` was refused"),
                None => "the body was refused".into(),
            },
            Self::ModelNotFound { .. } => "there is no such model".into(),
            Self::RouteNotFound { .. } => "there is no such route".into(),
            other => other.to_string(),
        };
        response.extensions_mut().insert(Cause(cause));
        response
    }
}

impl GatewayError {
    /// The seconds after which the same request may fare better, where that is known.
    fn retry_after(&self) -> Option<u64> {
        match self {
            // Whoever cannot fit at all is not told to wait.
            Self::RateLimited(refusal) => {
                let seconds = Duration::from_millis(refusal.wait_ms?);
                Some(whole_seconds(seconds).clamp(1, 60))
            }
            Self::TooManyAbandoned { .. } => Some(ABANDONED_RETRY_AFTER),
            Self::InsufficientCredits(unpaid) | Self::CreditsExpired { unpaid, .. } => {
                unpaid.passes.then_some(1)
            }
            Self::RateLimitUnavailable
            | Self::CreditUnavailable
            | Self::AdmissionLost
            | Self::StorageUnavailable => Some(1),
            _ => None,
        }
    }

    /// The last event of a stream: it says what headers say elsewhere.
    pub fn event(&self) -> Envelope {
        self.envelope().with_retry_after(self.retry_after())
    }
}

fn whole_seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// SPEC §8.5. Rounded up: whoever waits until then fits.
fn rate_limit_headers(headers: &mut HeaderMap, refusal: &Refusal) {
    let wait = Duration::from_millis(refusal.wait_ms.unwrap_or(WINDOW_MS));
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let reset = whole_seconds(now + wait);
    for (name, value) in [
        ("x-ratelimit-limit", u64::from(refusal.ceilings.requests)),
        ("x-ratelimit-remaining", u64::from(refusal.requests_left)),
        ("x-ratelimit-reset", reset),
        (
            "x-ratelimit-limit-tokens",
            u64::from(refusal.ceilings.tokens),
        ),
        (
            "x-ratelimit-remaining-tokens",
            u64::from(refusal.tokens_left),
        ),
    ] {
        headers.insert(name, HeaderValue::from(value));
    }
}
