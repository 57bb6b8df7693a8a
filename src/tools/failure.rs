//! Failures of tools, as text for the model.

use std::fmt;

/// Why a tool has no output, as text for the model. It must not contain a URL, host or key.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid; the model may try again with others.
    Arguments(String),
    Other(String),
}

impl Failure {
    pub(crate) fn arguments(reason: impl Into<String>) -> Self {
        Self::Arguments(reason.into())
    }

    pub(crate) fn other(reason: impl Into<String>) -> Self {
        Self::Other(reason.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Arguments(reason) | Self::Other(reason)) = self;
        f.write_str(reason)
    }
}
