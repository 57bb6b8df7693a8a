//! Why a call came to no answer.

use crate::{
    ledger::Outcome,
    wire::{
        chat::Usage,
        error::{Envelope, GatewayError, UpstreamError},
    },
};

pub enum Failure {
    /// The provider failed, or the gateway is stopping.
    Upstream(UpstreamError),
    /// A step called tools, and nobody counted its tokens: the request cannot go on.
    Uncounted,
    /// A further step was not allowed.
    Refused(GatewayError),
    /// The client has left between two steps. What they used is owed.
    Left(Usage),
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error)
    }
}

impl Failure {
    /// For the operator.
    pub fn cause(&self) -> String {
        match self {
            Self::Upstream(error) => error.to_string(),
            Self::Uncounted => uncounted().to_string(),
            Self::Refused(error) => error.to_string(),
            Self::Left(_) => "the client left".into(),
        }
    }

    /// How a call ended that failed before there was anything to hand on.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Upstream(UpstreamError::GatewayStopping) => Outcome::Stopped,
            Self::Upstream(_) | Self::Uncounted => Outcome::ProviderFailed,
            Self::Refused(_) => Outcome::NotRenewed,
            Self::Left(_) => Outcome::ClientLeft,
        }
    }

    /// How a stream ended that failed after it was opened.
    pub fn outcome_midway(&self) -> Outcome {
        match self.outcome() {
            Outcome::ProviderFailed => Outcome::Interrupted,
            other => other,
        }
    }

    /// What is told before there is anything to hand on.
    pub fn into_error(self) -> GatewayError {
        match self {
            Self::Upstream(UpstreamError::GatewayStopping) => GatewayError::ShuttingDown,
            Self::Upstream(error) => GatewayError::Upstream(error),
            Self::Uncounted => GatewayError::Upstream(uncounted()),
            Self::Refused(error) => error,
            Self::Left(_) => GatewayError::Internal, // nobody is there to read it
        }
    }

    /// What the last event of a stream says that was not finished (SPEC §6.2).
    pub fn interruption(&self) -> Envelope {
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
                error.public_message()
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
