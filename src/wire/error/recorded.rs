//! What the recorded failure of a call means for its sender.

use super::UpstreamError;

/// What to do after a call without a response, by the text of the [`UpstreamError`] that its record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedFailure {
    /// The request itself was refused: unchanged, it will be refused again.
    Refused,
    /// The provider had too many requests.
    RateLimited,
    /// The provider did not answer in time.
    Timeout,
    /// The provider refused the gateway's key, region or model name, which the operator has to repair.
    Misconfigured,
    /// The provider could not be reached, failed, or gave a response that cannot be used.
    Unavailable,
}

impl RecordedFailure {
    pub(crate) fn read(failure: &str) -> Self {
        if failure.starts_with(UpstreamError::REPORTED) {
            return if failure.contains("context_length_exceeded") {
                Self::Refused
            } else {
                Self::Unavailable
            };
        }
        let status = failure.strip_prefix(UpstreamError::STATUS);
        let Some(status) = status else {
            let is_timeout = UpstreamError::TIMEOUTS
                .iter()
                .any(|begin| failure.starts_with(begin));
            return if is_timeout {
                Self::Timeout
            } else {
                Self::Unavailable
            };
        };
        if status.ends_with(UpstreamError::ABOUT_US) {
            return Self::Misconfigured;
        }
        match status.split(' ').next().unwrap_or_default().parse() {
            Ok(429) => Self::RateLimited,
            Ok(408) => Self::Timeout,
            Ok(424) => Self::Unavailable, // of the model behind the provider
            Ok(401..=404) => Self::Misconfigured,
            Ok(400..500) => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn status(status: u16, about_us: bool) -> UpstreamError {
        UpstreamError::Status {
            status,
            reason: None,
            retry_after: None,
            about_us,
        }
    }

    #[test]
    fn a_recorded_failure_means_what_the_failure_meant() {
        use RecordedFailure::{Misconfigured, RateLimited, Refused, Timeout, Unavailable};
        let second = Duration::from_secs(1);
        let verbatim = UpstreamError::Verbatim {
            status: 400,
            message: "too long".into(),
        };
        let reported = |code: &str| UpstreamError::reported(&serde_json::json!({ "code": code }));
        for (error, expected) in [
            (status(400, false), Refused),
            (status(413, false), Refused),
            (status(422, false), Refused),
            (verbatim, Refused),
            (reported("context_length_exceeded"), Refused),
            (status(400, true), Misconfigured),
            (status(401, false), Misconfigured),
            (status(404, false), Misconfigured),
            (status(429, false), RateLimited),
            (status(408, false), Timeout),
            (status(424, false), Unavailable),
            (UpstreamError::WrongClock(403), Misconfigured),
            (UpstreamError::FirstByte(second), Timeout),
            (UpstreamError::Idle(second), Timeout),
            (UpstreamError::TooLong(second), Timeout),
            (status(500, false), Unavailable),
            (status(529, false), Unavailable),
            (UpstreamError::Connect("refused".into()), Unavailable),
            (UpstreamError::Broken("end of file".into()), Unavailable),
            (reported("overloaded"), Unavailable),
            (UpstreamError::Empty, Unavailable),
        ] {
            let recorded = error.to_string();
            let read = RecordedFailure::read(&recorded);
            assert_eq!(read, expected, "{recorded}");
            let is_final = error.is_callers_fault() || error.is_context_overflow();
            assert_eq!(read == Refused, is_final, "{recorded}");
        }
    }
}
