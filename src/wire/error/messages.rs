//! Errors in the form of the Messages API: another envelope, other types, and headers of its own.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode as Status, header},
    response::Response,
};
use serde_json::{Map, Value, json};

use super::{
    GatewayError, REFUSALS_EXCEEDED, UpstreamError,
    envelope::{MAX_MESSAGE_BYTES, MAX_PARAM_BYTES, REQUEST_URL, cut, message_bytes_beside},
    overflow,
};
use crate::base::{
    rate::{Limit, Refusal, UNLIMITED, WINDOW_MS},
    timestamp,
};

/// Code of errors that a provider caused.
const UPSTREAM_ERROR: &str = "upstream_error";
/// Status of an overloaded provider, which has no name in HTTP.
const OVERLOADED: u16 = 529;

impl GatewayError {
    /// The response to a request of the Messages API. `request_url` is the page of the portal that shows the request.
    pub(crate) fn messages_response(
        &self,
        request_id: &str,
        request_url: Option<String>,
    ) -> Response {
        let (status, kind, code) = self.messages_wire();
        let url = request_url.as_deref();
        let most = url.map_or(MAX_MESSAGE_BYTES, message_bytes_beside);
        let mut body = json!({
            "type": "error",
            "error": {
                "type": kind,
                "message": cut(self.messages_text(), most),
                "details": self.details(code),
            },
            "request_id": request_id,
        });
        if let Some(url) = request_url {
            body["error"][REQUEST_URL] = url.into();
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(retry) = self.messages_should_retry() {
            let retry = HeaderValue::from_static(if retry { "true" } else { "false" });
            headers.insert("x-should-retry", retry);
        }
        if let Some(seconds) = self.messages_retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::RateLimited(refusal) = self {
            rate_limit_headers(headers, refusal);
        }
        response
    }

    /// The one table that pairs a failure with its status, type and code on this API.
    ///
    /// It has no `_` arm, so a new variant does not compile until its entry is added here.
    fn messages_wire(&self) -> (Status, &'static str, Option<&'static str>) {
        match self {
            Self::InvalidRequest { .. } | Self::MalformedHead { .. } => {
                (Status::BAD_REQUEST, "invalid_request_error", None)
            }
            Self::ThreadUnsupported => (
                Status::BAD_REQUEST,
                "invalid_request_error",
                Some("thread_unsupported_request"),
            ),
            Self::ContextLengthExceeded { .. } => (
                Status::BAD_REQUEST,
                "invalid_request_error",
                Some("context_length_exceeded"),
            ),
            Self::WebSocketNotServed => (Status::UPGRADE_REQUIRED, "invalid_request_error", None),
            Self::BodyTooLarge { .. } => (Status::PAYLOAD_TOO_LARGE, "request_too_large", None),
            Self::HeadersTooLarge { .. } | Self::TooManyHeaders { .. } => (
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "invalid_request_error",
                None,
            ),
            Self::HeadTooSlow | Self::BodyTooSlow => {
                (Status::REQUEST_TIMEOUT, "timeout_error", None)
            }
            Self::MissingKey => authentication("missing_api_key"),
            Self::InvalidKey => authentication("invalid_api_key"),
            Self::NoAccount { .. } => billing("no_account"),
            Self::InsufficientCredits(_) => billing("insufficient_credits"),
            Self::CreditsExpired { .. } => billing("credits_expired"),
            Self::BudgetExceeded(_) => billing("budget_exceeded"),
            Self::TierUpgradeRequired { .. } => (
                Status::FORBIDDEN,
                "permission_error",
                Some("tier_upgrade_required"),
            ),
            Self::ModelNotAllowed { .. } => (
                Status::FORBIDDEN,
                "permission_error",
                Some("model_not_allowed"),
            ),
            Self::RouteNotFound { .. } => not_found("route_not_found"),
            Self::ModelNotFound { .. } => not_found("model_not_found"),
            Self::PreviousResponseNotFound { .. } => not_found("previous_response_not_found"),
            Self::RateLimited(refusal) => rate_limit(match refusal.limit {
                Limit::Requests => "rpm_exceeded",
                Limit::Tokens => "tpm_exceeded",
            }),
            Self::TooManyAbandoned { .. } => rate_limit("abandoned_exceeded"),
            Self::TooManyRefused { .. } => rate_limit(REFUSALS_EXCEEDED),
            Self::TooManyCounts { .. } => rate_limit("counts_exceeded"),
            Self::Overloaded => unavailable("overloaded"),
            Self::RateLimitUnavailable => unavailable("rate_limit_unavailable"),
            Self::BodyMemoryExhausted => unavailable("body_memory_exhausted"),
            Self::CreditUnavailable => unavailable("credit_reservation_unavailable"),
            Self::AdmissionLost => unavailable("admission_state_unavailable"),
            Self::IdempotencyInProgress => (
                Status::CONFLICT,
                "invalid_request_error",
                Some("idempotency_in_progress"),
            ),
            Self::IdempotencyKeyReused => (
                Status::UNPROCESSABLE_ENTITY,
                "invalid_request_error",
                Some("idempotency_key_reused"),
            ),
            Self::RecordingCut => unavailable("recording_cut"),
            Self::AnswerNotKept => (
                Status::CONFLICT,
                "invalid_request_error",
                Some("answer_not_kept"),
            ),
            Self::StorageUnavailable => unavailable("storage_unavailable"),
            Self::ShuttingDown => unavailable("stopping"),
            Self::Upstream(error) => upstream(error),
            Self::Gateway { .. } => internal("gateway_error"),
            Self::Internal => internal("internal_error"),
        }
    }

    /// The message that the caller reads. Some clients show nothing else, so it has what they need to act.
    fn messages_text(&self) -> String {
        match self {
            Self::MissingKey => {
                "No API key was sent. Send it in the header `x-api-key` or `Authorization: Bearer`."
                    .to_owned()
            }
            Self::NoAccount { billing_url, .. } => format!("{self} {billing_url}"),
            Self::InsufficientCredits(unpaid) | Self::CreditsExpired { unpaid, .. } => {
                format!("{self} {}", unpaid.billing_url)
            }
            Self::TierUpgradeRequired { upgrade_url, .. } => format!("{self} {upgrade_url}"),
            Self::Upstream(error) if error.is_context_overflow() => overflow::message(error),
            Self::ContextLengthExceeded {
                input,
                output,
                most,
                ..
            } => overflow::estimated(*input, *output, *most),
            other => other.to_string(),
        }
    }

    /// Fields by which a client can act without parsing the message.
    fn details(&self, code: Option<&str>) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("error_code".into(), json!(code));
        let envelope = self.envelope();
        let param = match self {
            // The field has another name than in a chat.
            Self::Upstream(_) => None,
            _ => envelope.param,
        };
        if let Some(param) = param {
            details.insert("param".into(), json!(cut(param, MAX_PARAM_BYTES)));
        }
        if let Self::Upstream(error) = self
            && let Some(status) = error.status()
        {
            details.insert("upstream_status".into(), json!(status));
        }
        details.extend(envelope.extra);
        details
    }

    fn messages_should_retry(&self) -> Option<bool> {
        match self {
            // Without it some clients repeat the request for minutes.
            Self::MissingKey | Self::InvalidKey => Some(false),
            other => other.should_retry(),
        }
    }

    fn messages_retry_after(&self) -> Option<u64> {
        match self {
            Self::ShuttingDown => Some(1),
            other => other.retry_after(),
        }
    }
}

type Wire = (Status, &'static str, Option<&'static str>);

fn authentication(code: &'static str) -> Wire {
    (Status::UNAUTHORIZED, "authentication_error", Some(code))
}

fn billing(code: &'static str) -> Wire {
    (Status::PAYMENT_REQUIRED, "billing_error", Some(code))
}

fn not_found(code: &'static str) -> Wire {
    (Status::NOT_FOUND, "not_found_error", Some(code))
}

fn rate_limit(code: &'static str) -> Wire {
    (Status::TOO_MANY_REQUESTS, "rate_limit_error", Some(code))
}

fn unavailable(code: &'static str) -> Wire {
    (Status::SERVICE_UNAVAILABLE, "api_error", Some(code))
}

fn internal(code: &'static str) -> Wire {
    (Status::INTERNAL_SERVER_ERROR, "api_error", Some(code))
}

/// A provider's failure. What it refused in the request is 400: clients that can mend a request do so on 400 only.
fn upstream(error: &UpstreamError) -> Wire {
    let code = Some(UPSTREAM_ERROR);
    if error.is_context_overflow() {
        let code = Some("context_length_exceeded");
        return (Status::BAD_REQUEST, "invalid_request_error", code);
    }
    match error.status() {
        Some(429 | 503 | 529) => {
            let status = Status::from_u16(OVERLOADED).unwrap_or(Status::SERVICE_UNAVAILABLE);
            (status, "overloaded_error", code)
        }
        Some(400 | 413 | 422) if error.is_callers_fault() => {
            (Status::BAD_REQUEST, "invalid_request_error", code)
        }
        _ => (Status::BAD_GATEWAY, "api_error", code),
    }
}

/// Sets the rate-limit headers. The reset time is rounded up, so that a client that waits for it is admitted.
fn rate_limit_headers(headers: &mut HeaderMap, refusal: &Refusal) {
    let wait = Duration::from_millis(refusal.wait_ms.unwrap_or(WINDOW_MS));
    let wait = i64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(0);
    let reset = HeaderValue::try_from(timestamp::shown(timestamp::now() + wait + 1));
    let ceilings = &refusal.ceilings;
    for (limit, remaining, reset_name, most, left) in [
        (
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
            ceilings.requests,
            refusal.requests_left,
        ),
        (
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
            ceilings.tokens,
            refusal.tokens_left,
        ),
    ] {
        if most == UNLIMITED {
            continue;
        }
        headers.insert(limit, HeaderValue::from(most));
        headers.insert(remaining, HeaderValue::from(left));
        if let Ok(reset) = &reset {
            headers.insert(reset_name, reset.clone());
        }
    }
}

#[cfg(test)]
mod tests;
