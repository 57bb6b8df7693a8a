//! Why a call has no response.

use crate::{
    ledger::Outcome,
    wire::{
        chat::Usage,
        error::{Envelope, GatewayError, UpstreamError},
    },
};

pub(crate) enum Failure {
    /// The provider failed, or the gateway is stopping.
    Upstream(UpstreamError),
    /// A step called tools but came without usage: the next step could not be billed.
    Uncounted,
    /// The next step was not admitted.
    Refused(GatewayError),
    /// The client left between two steps. The usage of the steps so far is charged.
    Left(Usage),
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error)
    }
}

impl Failure {
    /// The reason, for the operator.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Upstream(error) => error.to_string(),
            Self::Uncounted => uncounted().to_string(),
            Self::Refused(error) => error.to_string(),
            Self::Left(_) => "the client left".into(),
        }
    }

    /// The outcome of a call that failed before its response started.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Upstream(UpstreamError::GatewayStopping) => Outcome::Stopped,
            Self::Upstream(_) | Self::Uncounted => Outcome::ProviderFailed,
            Self::Refused(_) => Outcome::NotRenewed,
            Self::Left(_) => Outcome::ClientLeft,
        }
    }

    /// The outcome of a stream that failed after it started.
    pub(crate) fn outcome_midway(&self) -> Outcome {
        match self.outcome() {
            Outcome::ProviderFailed => Outcome::Interrupted,
            other => other,
        }
    }

    /// The error response of a call that failed before its response started.
    pub(crate) fn into_error(self) -> GatewayError {
        match self {
            Self::Upstream(UpstreamError::GatewayStopping) => GatewayError::ShuttingDown,
            Self::Upstream(error) => GatewayError::Upstream(error),
            Self::Uncounted => GatewayError::Upstream(uncounted()),
            Self::Refused(error) => error,
            Self::Left(_) => GatewayError::Internal, // never sent: the client left
        }
    }

    /// The error event that ends an interrupted stream (§6.2).
    pub(crate) fn interruption(&self) -> Envelope {
        let error = match self {
            Self::Upstream(error) => error,
            Self::Uncounted => &uncounted(),
            Self::Refused(error) => return error.event(),
            Self::Left(_) => return GatewayError::Internal.envelope(),
        };
        Envelope {
            status: axum::http::StatusCode::OK,
            message: format!(
                "{} The answer is incomplete; retry the whole request.",
                error.public_cause()
            ),
            kind: "upstream_stream_error",
            code: Some("stream_interrupted".into()),
            param: None,
            extra: serde_json::Map::new(),
        }
    }
}

fn uncounted() -> UpstreamError {
    UpstreamError::Malformed("a step that called tools came without usage".into())
}
