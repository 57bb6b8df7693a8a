//! Every way in which a request to the public API can fail, and the one table that maps failures to HTTP.

use axum::http::StatusCode as Status;
use serde_json::{Map, Value, json};

use crate::{
    base::{
        money::NanoUsd,
        rate::{Limit, Refusal, WindowOf},
    },
    catalog::Tier,
};

mod envelope;
mod messages;
mod over_budget;
mod overflow;
mod recorded;
mod unpaid;
mod upstream;

pub(crate) use envelope::{Cause, Envelope, ErrorLabel, Failed, FailedPage, REQUEST_URL};
pub(crate) use over_budget::OverBudget;
pub(crate) use recorded::RecordedFailure;
pub(crate) use unpaid::Unpaid;
pub(crate) use upstream::{CONTEXT_OVERFLOW, UpstreamError};

/// Code of [`GatewayError::TooManyRefused`].
pub(crate) const REFUSALS_EXCEEDED: &str = "refusals_exceeded";

/// What [`Envelope::reason`] can be.
#[cfg(test)]
pub(crate) const REASONS: &[&str] = &[
    "abandoned_exceeded",
    "admission_state_unavailable",
    "answer_not_kept",
    "body_memory_exhausted",
    "budget_exceeded",
    "context_length_exceeded",
    "counts_exceeded",
    "credit_reservation_unavailable",
    "credits_expired",
    "gateway_error",
    "idempotency_in_progress",
    "idempotency_key_reused",
    "insufficient_credits",
    "internal_error",
    "invalid_api_key",
    "invalid_request_error",
    "missing_api_key",
    "model_not_allowed",
    "model_not_found",
    "no_account",
    "overloaded",
    "previous_response_not_found",
    "rate_limit_unavailable",
    "recording_cut",
    REFUSALS_EXCEEDED,
    "route_not_found",
    "rpm_exceeded",
    "service_unavailable",
    "thread_unsupported_request",
    "tier_upgrade_required",
    "tpm_exceeded",
    "upstream_error",
    "websocket_not_served",
];

/// A failed request; `Display` is the message that the caller reads.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("{message}")]
    InvalidRequest {
        message: String,
        param: Option<String>,
    },
    #[error("thread: threads are not supported; send the whole conversation in `messages`.")]
    ThreadUnsupported,
    #[error(
        "Send a smaller request body: this one is larger than {limit} bytes, which is the most this service reads."
    )]
    BodyTooLarge { limit: usize },
    #[error(
        "Send smaller headers: these are larger than {limit} bytes, which is the most this service reads."
    )]
    HeadersTooLarge { limit: usize },
    #[error("The request cannot be read: {reason}.")]
    MalformedHead { reason: &'static str },
    #[error(
        "Send fewer headers: these are more than {limit}, which is the most this service reads."
    )]
    TooManyHeaders { limit: usize },
    #[error("Send the request again: its head did not arrive in time.")]
    HeadTooSlow,
    #[error("Send the request again: its body did not arrive in time.")]
    BodyTooSlow,
    #[error(
        "Retry after the time in Retry-After: too many large request bodies are being processed, of this account or in \
         all."
    )]
    BodyMemoryExhausted,
    #[error(
        "Send an API key in the header `Authorization: Bearer sk-svc-...`: this request has none."
    )]
    MissingKey,
    #[error("Use another API key: this one is unknown, disabled, deleted or expired.")]
    InvalidKey,
    #[error("Open the billing page or contact support: this API key's account is closed.")]
    NoAccount {
        balance: NanoUsd,
        billing_url: String,
    },
    #[error("{}", .0.message())]
    InsufficientCredits(Box<Unpaid>),
    #[error("Top up to go on: the account's credit has expired.")]
    CreditsExpired {
        unpaid: Box<Unpaid>,
        expired_at: String,
    },
    #[error("{}", .0.message())]
    BudgetExceeded(Box<OverBudget>),
    #[error("Retry in a moment: the account's credit cannot be reached just now.")]
    CreditUnavailable,
    #[error(
        "Upgrade to the {required} tier for the model `{model}`: this account is on {current}."
    )]
    TierUpgradeRequired {
        model: String,
        current: Tier,
        required: Tier,
        upgrade_url: String,
    },
    #[error(
        "Use another model or another API key: this key is not allowed to call `{model}`; GET /v1/models lists what it is."
    )]
    ModelNotAllowed { model: String },
    #[error("Check the base URL and the path: there is no `{method} {path}` here.")]
    RouteNotFound { method: String, path: String },
    #[error("Send the request by HTTP, as `POST /v1/responses`. There is no WebSocket here.")]
    WebSocketNotServed,
    #[error("Use a model that GET /v1/models lists: `{model}` does not exist.")]
    ModelNotFound { model: String },
    #[error(
        "Send the whole conversation: there is no stored response for `{id}`, it is unknown, expired or deleted."
    )]
    PreviousResponseNotFound { id: String },
    #[error(
        "Shorten the conversation. None of the models that `{model}` can choose from for you has a {CONTEXT_OVERFLOW} \
         that fits it."
    )]
    ContextLengthExceeded {
        model: String,
        /// Estimated tokens of the input.
        input: u64,
        /// The output budget with the target that has the longest context; 0 if there is none.
        output: u64,
        /// The longest context of the targets.
        most: u64,
    },
    #[error("Retry in a moment: a request with this Idempotency-Key is still running.")]
    IdempotencyInProgress,
    #[error(
        "Use another Idempotency-Key: this one was sent before, with another request. A key belongs to one path and body."
    )]
    IdempotencyKeyReused,
    #[error(
        "Send the request with another Idempotency-Key, or without one, to run it again: it ran once, and its response was \
         too long to be kept, or had to make room for others."
    )]
    AnswerNotKept,
    #[error(
        "Retry in a moment: there was no memory to go on with this stream of a call that is running for another request."
    )]
    RecordingCut,
    #[error("Retry in a moment: stored responses cannot be reached just now.")]
    StorageUnavailable,
    #[error("{}", rate_limit_message(.0))]
    RateLimited(Refusal),
    #[error(
        "Retry after the time in Retry-After, and read responses to their end: {limit} or more requests of this \
         account are still running though their clients disconnected."
    )]
    TooManyAbandoned { limit: usize },
    #[error("Retry in a moment: the gateway has more requests than it can serve just now.")]
    Overloaded,
    #[error(
        "Retry after the time in Retry-After, and correct what the errors before said: too many requests of this \
         {whose} were refused."
    )]
    TooManyRefused { whose: &'static str, seconds: u64 },
    #[error("Retry after the time in Retry-After: too many requests of this account count tokens.")]
    TooManyCounts { seconds: u64 },
    #[error("Retry in a moment: requests cannot be counted just now.")]
    RateLimitUnavailable,
    #[error("Retry the whole request: it lost its admission between two steps.")]
    AdmissionLost,
    #[error("{}", .0.public_message())]
    Upstream(#[from] UpstreamError),
    #[error("Retry in a moment: the gateway is shutting down.")]
    ShuttingDown,
    #[error("The gateway could not process the request: {reason}.")]
    Gateway { reason: &'static str },
    #[error("The gateway failed unexpectedly. Quote the X-Request-ID when you report it.")]
    Internal,
}

impl GatewayError {
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidRequest {
            message: message.into(),
            param: Some(param.into()),
        }
    }

    /// The error in the form of the Messages API, whose messages begin with the path of the field.
    #[must_use]
    pub(crate) fn beginning_with_path(self) -> Self {
        match self {
            Self::InvalidRequest {
                message,
                param: Some(param),
            } if !message.starts_with(&format!("{param}: ")) => {
                let message = format!("{param}: {message}");
                Self::invalid(param, message)
            }
            other => other,
        }
    }

    /// The one table that pairs a failure with its status, type and code (§7).
    ///
    /// It has no `_` arm, so a new variant does not compile until its entry is added here.
    #[expect(
        clippy::too_many_lines,
        reason = "one table is easier to read than several parts of it"
    )]
    fn wire(&self) -> (Status, &'static str, Option<String>) {
        let code = |code: &str| Some(code.to_owned());
        match self {
            Self::InvalidRequest { .. } | Self::MalformedHead { .. } => {
                (Status::BAD_REQUEST, "invalid_request_error", None)
            }
            Self::ThreadUnsupported => (
                Status::BAD_REQUEST,
                "invalid_request_error",
                code("thread_unsupported_request"),
            ),
            Self::BodyTooLarge { .. } => (Status::PAYLOAD_TOO_LARGE, "invalid_request_error", None),
            Self::HeadersTooLarge { .. } | Self::TooManyHeaders { .. } => (
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "invalid_request_error",
                None,
            ),
            Self::HeadTooSlow | Self::BodyTooSlow => {
                (Status::REQUEST_TIMEOUT, "invalid_request_error", None)
            }
            Self::MissingKey => (
                Status::UNAUTHORIZED,
                "authentication_error",
                code("missing_api_key"),
            ),
            Self::InvalidKey => (
                Status::UNAUTHORIZED,
                "authentication_error",
                code("invalid_api_key"),
            ),
            Self::NoAccount { .. } => (
                Status::PAYMENT_REQUIRED,
                "no_account",
                code("payment_required"),
            ),
            Self::InsufficientCredits(_) => (
                Status::PAYMENT_REQUIRED,
                "insufficient_credits",
                code("payment_required"),
            ),
            Self::CreditsExpired { .. } => (
                Status::PAYMENT_REQUIRED,
                "credits_expired",
                code("payment_required"),
            ),
            Self::BudgetExceeded(_) => (
                Status::PAYMENT_REQUIRED,
                "budget_exceeded",
                code("payment_required"),
            ),
            Self::CreditUnavailable => (
                Status::SERVICE_UNAVAILABLE,
                "server_error",
                code("credit_reservation_unavailable"),
            ),
            Self::TierUpgradeRequired { .. } => (
                Status::FORBIDDEN,
                "tier_upgrade_required",
                code("forbidden"),
            ),
            Self::ModelNotAllowed { .. } => (
                Status::FORBIDDEN,
                "model_not_allowed",
                code("model_not_allowed"),
            ),
            Self::WebSocketNotServed => (
                Status::UPGRADE_REQUIRED,
                "invalid_request_error",
                code("websocket_not_served"),
            ),
            Self::RouteNotFound { .. } => (Status::NOT_FOUND, "not_found", code("route_not_found")),
            Self::ModelNotFound { .. } => (
                Status::NOT_FOUND,
                "invalid_request_error",
                code("model_not_found"),
            ),
            Self::PreviousResponseNotFound { .. } => (
                Status::NOT_FOUND,
                "invalid_request_error",
                code("previous_response_not_found"),
            ),
            Self::RateLimited(refusal) => (
                Status::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                code(match refusal.limit {
                    Limit::Requests => "rpm_exceeded",
                    Limit::Tokens => "tpm_exceeded",
                }),
            ),
            Self::TooManyAbandoned { .. } => (
                Status::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                code("abandoned_exceeded"),
            ),
            Self::Overloaded => (
                Status::SERVICE_UNAVAILABLE,
                "service_unavailable",
                code("overloaded"),
            ),
            Self::TooManyRefused { .. } => (
                Status::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                code(REFUSALS_EXCEEDED),
            ),
            Self::TooManyCounts { .. } => (
                Status::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                code("counts_exceeded"),
            ),
            Self::RateLimitUnavailable => (
                Status::SERVICE_UNAVAILABLE,
                "service_unavailable",
                code("rate_limit_unavailable"),
            ),
            Self::BodyMemoryExhausted => (
                Status::SERVICE_UNAVAILABLE,
                "service_unavailable",
                code("body_memory_exhausted"),
            ),
            Self::AdmissionLost => (
                Status::SERVICE_UNAVAILABLE,
                "server_error",
                code("admission_state_unavailable"),
            ),
            Self::ContextLengthExceeded { .. } => (
                Status::BAD_REQUEST,
                "invalid_request_error",
                code("context_length_exceeded"),
            ),
            Self::Upstream(error) if error.is_context_overflow() => (
                Status::BAD_REQUEST,
                "invalid_request_error",
                code("context_length_exceeded"),
            ),
            Self::Upstream(error) => (
                Status::BAD_GATEWAY,
                "upstream_error",
                error.status().map(|s| s.to_string()),
            ),
            Self::IdempotencyInProgress => (
                Status::CONFLICT,
                "invalid_request_error",
                code("idempotency_in_progress"),
            ),
            Self::IdempotencyKeyReused => (
                Status::UNPROCESSABLE_ENTITY,
                "invalid_request_error",
                code("idempotency_key_reused"),
            ),
            Self::RecordingCut => (
                Status::SERVICE_UNAVAILABLE,
                "service_unavailable",
                code("recording_cut"),
            ),
            Self::AnswerNotKept => (
                Status::CONFLICT,
                "invalid_request_error",
                code("answer_not_kept"),
            ),
            Self::StorageUnavailable | Self::ShuttingDown => {
                (Status::SERVICE_UNAVAILABLE, "service_unavailable", None)
            }
            Self::Gateway { .. } => (Status::INTERNAL_SERVER_ERROR, "gateway_error", None),
            Self::Internal => (
                Status::INTERNAL_SERVER_ERROR,
                "server_error",
                code("internal_error"),
            ),
        }
    }

    pub(crate) fn envelope(&self) -> Envelope {
        let (status, kind, code) = self.wire();
        let param = match self {
            Self::InvalidRequest { param, .. } => param.clone(),
            Self::ThreadUnsupported => Some("thread".into()),
            Self::ModelNotFound { .. }
            | Self::ModelNotAllowed { .. }
            | Self::TierUpgradeRequired { .. } => Some("model".into()),
            Self::ContextLengthExceeded { .. } => Some("messages".into()),
            Self::Upstream(error) if error.is_context_overflow() => Some("messages".into()),
            _ => None,
        };
        Envelope {
            status,
            message: envelope::cut(self.to_string(), envelope::MAX_MESSAGE_BYTES),
            kind,
            code,
            param: param.map(|param| envelope::cut(param, envelope::MAX_PARAM_BYTES)),
            extra: self.extra(),
        }
    }

    /// Extra fields by which a client can act without parsing the message (§7).
    fn extra(&self) -> Map<String, Value> {
        let fields = match self {
            Self::NoAccount {
                balance,
                billing_url,
            } => json!({ "balance": balance, "billing_url": billing_url }),
            Self::InsufficientCredits(unpaid) => return unpaid.fields(),
            Self::BudgetExceeded(over) => return over.fields(),
            Self::CreditsExpired { unpaid, expired_at } => {
                let mut fields = unpaid.fields();
                fields.insert("expired_at".into(), json!(expired_at));
                return fields;
            }
            Self::TierUpgradeRequired {
                model,
                current,
                required,
                upgrade_url,
            } => json!({
                "current_tier": current, "required_tier": required,
                "model": model, "upgrade_url": upgrade_url,
            }),
            _ => return Map::new(),
        };
        fields.as_object().cloned().unwrap_or_default()
    }

    /// Value of `X-Should-Retry`, which official clients obey; `None` leaves the decision to the status.
    ///
    /// By default they retry every 5xx and no 402. A request that the provider refused as invalid stays invalid, so
    /// retries would only make three calls of one. A 402 is worth a retry if only running calls hold the credit.
    pub(crate) fn should_retry(&self) -> Option<bool> {
        match self {
            // The operator may fix it, or another deployment may take the request, before the client gives up.
            Self::Upstream(error) if error.is_operators_fault() => Some(true),
            Self::Overloaded | Self::IdempotencyInProgress => Some(true),
            // Official clients would retry a 409.
            Self::AnswerNotKept => Some(false),
            Self::Upstream(error) if error.is_callers_fault() => Some(false),
            Self::InsufficientCredits(unpaid) | Self::CreditsExpired { unpaid, .. } => {
                Some(unpaid.is_temporary)
            }
            Self::BudgetExceeded(over) => Some(over.is_temporary),
            Self::NoAccount { .. } | Self::RateLimited(Refusal { wait_ms: None, .. }) => {
                Some(false)
            }
            _ => None,
        }
    }
}

/// The refusal by a ceiling that the key has of its own.
fn key_limit_message(refusal: &Refusal) -> String {
    let (requests, tokens) = (refusal.ceilings.requests, refusal.ceilings.tokens);
    match (refusal.limit, refusal.wait_ms) {
        (Limit::Requests, _) => format!(
            "Retry after the time in Retry-After: this API key is limited to {requests} requests in 60 seconds, with all \
             models together."
        ),
        (Limit::Tokens, Some(_)) => format!(
            "Retry after the time in Retry-After, or lower max_tokens: this API key is limited to {tokens} tokens in 60 \
             seconds, with all models together, counting what this request may use."
        ),
        (Limit::Tokens, None) => format!(
            "Lower max_tokens or shorten the messages: this request may use more than {tokens} tokens, which is the most \
             this API key may use in 60 seconds, so it can never fit."
        ),
    }
}

fn rate_limit_message(refusal: &Refusal) -> String {
    let Refusal {
        ceilings, wait_ms, ..
    } = refusal;
    let (requests, tokens) = (ceilings.requests, ceilings.tokens);
    if refusal.of == WindowOf::Key {
        return key_limit_message(refusal);
    }
    match (refusal.limit, wait_ms) {
        (Limit::Requests, _) => format!(
            "Retry after the time in Retry-After: these are more than {requests} requests to this model in 60 seconds."
        ),
        (Limit::Tokens, Some(_)) => format!(
            "Retry after the time in Retry-After, or lower max_tokens: these are more than {tokens} tokens with this \
             model in 60 seconds, counting what this request may use."
        ),
        (Limit::Tokens, None) => format!(
            "Lower max_tokens or shorten the messages: this request may use more than {tokens} tokens, which is the \
             most this account may use with this model in 60 seconds, so it can never fit."
        ),
    }
}
