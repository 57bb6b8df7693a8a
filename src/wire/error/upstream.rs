//! The ways in which a provider can fail.

use std::time::Duration;

/// The phrase by which clients recognise an overlong conversation. The reason of every such error contains it.
pub(crate) const CONTEXT_OVERFLOW: &str = "maximum context length";

/// A failed attempt with a provider.
///
/// `Debug` and `Display` are for the operator's log; callers get [`UpstreamError::public_message`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("could not connect: {0}")]
    Connect(String),
    /// Nothing was sent, because there is no token for it.
    #[error("could not get a token: {0}")]
    NoToken(String),
    #[error("no response within {0:?}")]
    FirstByte(Duration),
    #[error("no data for {0:?} in the middle of a response")]
    Idle(Duration),
    #[error("response not finished within {0:?}")]
    TooLong(Duration),
    #[error("responded with status {status}{}", if *about_us { Self::ABOUT_US } else { "" })]
    Status {
        status: u16,
        /// The provider's message without names and secrets, if it concerns the caller's request.
        reason: Option<String>,
        /// The provider's `Retry-After`.
        retry_after: Option<Duration>,
        /// Whether the provider refuses the gateway's key or region rather than the request.
        about_us: bool,
    },
    /// The provider finds that a signature is not of now.
    #[error(
        "responded with status {0} (the clock of this machine may be wrong){about_us}",
        about_us = Self::ABOUT_US
    )]
    WrongClock(u16),
    /// The provider refused a request that was forwarded as it is. The caller speaks its API and acts on its words.
    #[error("responded with status {status}")]
    Verbatim { status: u16, message: String },
    #[error("response ended early: {0}")]
    Broken(String),
    #[error("malformed response: {0}")]
    Malformed(String),
    #[error("one piece of the response exceeds {0} bytes")]
    TooLarge(usize),
    #[error("cancelled because the gateway is stopping")]
    GatewayStopping,
    /// The response has no content. Used only if another model can be tried; otherwise it is delivered as it is.
    #[error("empty response")]
    Empty,
    /// The response is not JSON though the request wants JSON. Used only if another model can be tried.
    #[error("response is not JSON, which the request asks for")]
    NotJson,
    #[error("reported a failure in the response: {0}")]
    Reported(String),
}

impl UpstreamError {
    // What failures begin or end with, by which they are recognised once they are recorded (`recorded.rs`).
    pub(super) const STATUS: &str = "responded with status ";
    pub(super) const ABOUT_US: &str = ": it refuses the gateway's key or region";
    pub(super) const REPORTED: &str = "reported a failure in the response";
    pub(super) const TIMEOUTS: [&str; 3] = [
        "no response within",
        "no data for",
        "response not finished within",
    ];

    /// Error for JSON that does not have the expected form. It names the position but does not quote the text, which
    /// may be a caller's content.
    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Malformed(format!("unexpected JSON at line {line}, column {column}"))
    }

    /// Error for an error object in a provider's response. It has the type and the code only: the message may quote
    /// the request or the key.
    pub(crate) fn reported(error: &serde_json::Value) -> Self {
        let field = |key: &str| {
            let value = match error.get(key)? {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Number(number) => number.to_string(),
                _ => return None,
            };
            let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            Some(value.chars().filter(plain).take(48).collect::<String>())
        };
        let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "?".into());
        let kind = or_unknown(field("type").or_else(|| field("status")));
        let code = or_unknown(field("code"));
        Self::Reported(format!("type {kind}, code {code}"))
    }

    /// The provider's HTTP status, if it was an error status.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. }
            | Self::Verbatim { status, .. }
            | Self::WrongClock(status) => Some(*status),
            _ => None,
        }
    }

    /// Whether the provider would refuse the request again: a 4xx status that is not temporary.
    pub(crate) fn is_callers_fault(&self) -> bool {
        let is_final =
            |status| (400..500).contains(&status) && !matches!(status, 408 | 409 | 424 | 429);
        !self.is_operators_fault() && self.status().is_some_and(is_final)
    }

    /// Whether the cause is the operator's key, account or model name.
    pub(crate) fn is_operators_fault(&self) -> bool {
        self.is_about_us() || matches!(self.status(), Some(401..=404))
    }

    /// Whether the request is longer than the model's context.
    pub(crate) fn is_context_overflow(&self) -> bool {
        match self {
            Self::Status {
                status: 400 | 413 | 422,
                reason: Some(reason),
                ..
            } => reason.to_lowercase().contains(CONTEXT_OVERFLOW),
            // Some providers report it in a body or an event of status 200.
            Self::Reported(text) => text.contains("context_length_exceeded"),
            _ => false,
        }
    }

    /// Label of the failure in the operator's metrics. It has few distinct values.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::NoToken(_) => "no_token",
            Self::FirstByte(_) | Self::Idle(_) | Self::TooLong(_) => "timeout",
            Self::Status { status: 429, .. } => "rate_limited",
            Self::Status { status, .. } if *status < 500 => "refused",
            Self::Verbatim { .. } | Self::WrongClock(_) => "refused",
            Self::Status { .. } => "status",
            Self::Broken(_) => "broken",
            Self::Empty => "empty",
            Self::NotJson => "not_json",
            Self::Malformed(_) | Self::TooLarge(_) => "malformed",
            Self::GatewayStopping => "stopping",
            Self::Reported(_) => "reported",
        }
    }

    /// Whether an attempt with another deployment may succeed. An invalid request would be refused by every other one
    /// too.
    pub(crate) fn is_worth_another_try(&self) -> bool {
        let wrong = matches!(self.status(), Some(400 | 413 | 422)) && !self.is_about_us();
        !wrong && !matches!(self, Self::GatewayStopping | Self::Empty | Self::NotJson)
    }

    fn is_about_us(&self) -> bool {
        matches!(
            self,
            Self::Status { about_us: true, .. } | Self::WrongClock(_)
        )
    }

    /// The provider's `Retry-After`, if it sent one.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The message of a failed request for the caller: first what to do, then the cause.
    pub(crate) fn public_message(&self) -> String {
        let cause = self.public_cause();
        if matches!(self, Self::Verbatim { .. }) {
            return cause; // the provider's own words
        }
        let advice = if self.is_callers_fault() {
            "Change the request"
        } else {
            "Retry in a moment"
        };
        match cause.strip_prefix("The ") {
            Some(cause) => format!("{advice}: the {cause}"),
            None => cause, // of a conversation that is too long: it says itself what to do
        }
    }

    /// The cause for the caller: without host, model name and key, and of the provider's own text at most the sanitised
    /// reason.
    pub(crate) fn public_cause(&self) -> String {
        match self {
            Self::Connect(_) | Self::NoToken(_) => {
                "The model's provider could not be reached.".into()
            }
            Self::FirstByte(_) | Self::Idle(_) | Self::TooLong(_) => {
                "The model's provider did not answer in time.".into()
            }
            Self::Status {
                status,
                reason: Some(reason),
                ..
            } if self.is_context_overflow() => {
                format!(
                    "Shorten the conversation. The model's provider refused it ({status}): {reason}"
                )
            }
            Self::Status {
                status,
                reason: Some(reason),
                ..
            } => {
                format!("The model's provider refused the request ({status}): {reason}")
            }
            Self::Status {
                status,
                reason: None,
                ..
            }
            | Self::WrongClock(status) => {
                format!("The model's provider failed with status {status}.")
            }
            Self::Verbatim { message, .. } => message.clone(),
            Self::Broken(_) => "The model's provider broke off its answer.".into(),
            Self::Malformed(_) | Self::TooLarge(_) => {
                "The model's provider gave an answer that cannot be used.".into()
            }
            Self::Empty | Self::NotJson => "The model gave no answer.".into(),
            Self::GatewayStopping => "The gateway is stopping.".into(),
            Self::Reported(_) if self.is_context_overflow() => {
                format!("Shorten the conversation. It exceeds the model's {CONTEXT_OVERFLOW}.")
            }
            Self::Reported(_) => "The model's provider reported a failure.".into(),
        }
    }
}
