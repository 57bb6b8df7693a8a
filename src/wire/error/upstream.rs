//! The ways a provider fails.

use std::time::Duration;

/// The words that clients know an overlong conversation by. The reason of every such refusal has them.
pub const CONTEXT_OVERFLOW: &str = "maximum context length";

/// What went wrong between us and a provider.
///
/// `Debug` and `Display` are for the operator's log. What the caller may read is
/// [`UpstreamError::public_message`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("could not connect: {0}")]
    Connect(String),
    #[error("no answer within {0:?}")]
    FirstByte(Duration),
    #[error("silent for {0:?} in the middle of an answer")]
    Idle(Duration),
    #[error("not finished within {0:?}")]
    TooLong(Duration),
    #[error("answered with status {status}")]
    Status {
        status: u16,
        /// The provider's reason, cleaned of names and secrets, where it concerns the caller.
        reason: Option<String>,
        /// How long the provider asks us to wait.
        retry_after: Option<Duration>,
        /// It complains of our key or of where we are, and not of the request.
        about_us: bool,
    },
    #[error("broke off: {0}")]
    Broken(String),
    #[error("sent what cannot be understood: {0}")]
    Malformed(String),
    #[error("sent more than {0} bytes in one piece")]
    TooLarge(usize),
    #[error("was cut short, because the gateway is stopping")]
    GatewayStopping,
    /// Where another model can be asked; else an empty answer is an answer.
    #[error("said nothing")]
    Empty,
    /// Likewise.
    #[error("was asked for JSON and sent none")]
    NotJson,
    #[error("reported a failure in its answer: {0}")]
    Reported(String),
}

impl UpstreamError {
    /// JSON that does not fit: where, and not what is there, for that is a caller's answer.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Malformed(format!(
            "JSON that does not fit at line {line}, column {column}"
        ))
    }

    /// A provider's own error by its type and code; its message may quote the request or our key.
    pub fn reported(error: &serde_json::Value) -> Self {
        let word = |key: &str| {
            let word = match error.get(key)? {
                serde_json::Value::String(word) => word.clone(),
                serde_json::Value::Number(number) => number.to_string(),
                _ => return None,
            };
            let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            Some(word.chars().filter(plain).take(48).collect::<String>())
        };
        let known = |word: Option<String>| word.unwrap_or_else(|| "?".into());
        let kind = known(word("type").or_else(|| word("status")));
        Self::Reported(format!("type {kind}, code {}", known(word("code"))))
    }

    /// The provider's HTTP status, when it was one that tells of a failure.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the same request would be refused again: a 4xx that does not pass with time.
    pub fn is_callers_fault(&self) -> bool {
        let is_final = |status| (400..500).contains(&status) && !matches!(status, 408 | 409 | 429);
        !self.is_operators_fault() && self.status().is_some_and(is_final)
    }

    /// Whether it complains of the operator's key, account or name for the model.
    pub fn is_operators_fault(&self) -> bool {
        self.is_about_us() || matches!(self.status(), Some(401..=404))
    }

    /// Whether the request is longer than the model's context.
    pub fn is_context_overflow(&self) -> bool {
        match self {
            Self::Status {
                status: 400 | 413 | 422,
                reason: Some(reason),
                ..
            } => reason.to_lowercase().contains(CONTEXT_OVERFLOW),
            // Some say it in a body or an event of status 200.
            Self::Reported(words) => words.contains("context_length_exceeded"),
            _ => false,
        }
    }

    /// What kind of failure it was, for the operator's counters: of few different values.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::FirstByte(_) | Self::Idle(_) | Self::TooLong(_) => "timeout",
            Self::Status { status: 429, .. } => "rate_limited",
            Self::Status { status, .. } if *status < 500 => "refused",
            Self::Status { .. } => "status",
            Self::Broken(_) => "broken",
            Self::Empty => "empty",
            Self::NotJson => "not_json",
            Self::Malformed(_) | Self::TooLarge(_) => "malformed",
            Self::GatewayStopping => "stopping",
            Self::Reported(_) => "reported",
        }
    }

    /// Whether another upstream might do better. What this one found wrong with the request, every
    /// other one would too.
    pub fn is_worth_another_try(&self) -> bool {
        let wrong = matches!(self.status(), Some(400 | 413 | 422)) && !self.is_about_us();
        !wrong && !matches!(self, Self::GatewayStopping | Self::Empty | Self::NotJson)
    }

    fn is_about_us(&self) -> bool {
        matches!(self, Self::Status { about_us: true, .. })
    }

    /// How long the provider wants to be left alone.
    pub fn asked_rest(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What the caller reads: no host, no model name, no key, no words we did not choose but for
    /// a cleaned reason.
    pub fn public_message(&self) -> String {
        match self {
            Self::Connect(_) => "The model's provider could not be reached.".into(),
            Self::FirstByte(_) | Self::Idle(_) | Self::TooLong(_) => {
                "The model's provider did not answer in time.".into()
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
            } => {
                format!("The model's provider failed with status {status}.")
            }
            Self::Broken(_) => "The model's provider broke off its answer.".into(),
            Self::Malformed(_) | Self::TooLarge(_) => {
                "The model's provider gave an answer that cannot be used.".into()
            }
            Self::Empty | Self::NotJson => "The model gave no answer.".into(),
            Self::GatewayStopping => "The gateway is stopping.".into(),
            Self::Reported(_) if self.is_context_overflow() => {
                format!("The conversation exceeds the model's {CONTEXT_OVERFLOW}.")
            }
            Self::Reported(_) => "The model's provider reported a failure.".into(),
        }
    }
}
