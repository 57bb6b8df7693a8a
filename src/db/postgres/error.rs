//! Errors of PostgreSQL, and whether they are transient.

use std::io;

use crate::net::connect::chain;

/// An error of a connection or a query. It contains no password.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No host accepted the connection; `reasons` has the error of each.
    #[error("{reasons}")]
    NotConnected { reasons: String, is_transient: bool },
    /// The connection was lost; the statement may have been executed.
    #[error("the connection was lost: {0}")]
    Broken(String),
    /// There was no response within the timeout; the statement may still be executed.
    #[error("no response within the timeout")]
    TimedOut,
    /// The server returned an error; the statement was not executed.
    #[error("{message} (code {code})")]
    Refused { code: String, message: String },
    /// A response of unexpected form, a request that could not be encoded, or a rejected certificate.
    #[error("{0}")]
    Unexpected(String),
}

impl Error {
    /// Whether a retry may succeed later, on another connection. Otherwise something must be corrected first.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NotConnected { is_transient, .. } => *is_transient,
            Self::Broken(_) | Self::TimedOut => true,
            Self::Refused { code, .. } => is_transient_code(code),
            Self::Unexpected(_) => false,
        }
    }

    /// Whether a transient error says that no operation would succeed: the server is not there, or serves no
    /// connection.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            // A lock that is not available, and transactions that collided, concern one operation.
            Self::Refused { code, .. } => code != "55P03" && !code.starts_with("40"),
            Self::NotConnected { .. } | Self::Broken(_) | Self::TimedOut => true,
            Self::Unexpected(_) => false,
        }
    }

    /// The server's SQLSTATE code, e.g. `23505`.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }
}

fn is_transient_code(code: &str) -> bool {
    // Connection exceptions; operator intervention, such as a shutdown; insufficient resources; transaction rollbacks.
    let classes = ["08", "57", "53", "40"];
    // Lock not available; read-only transaction, after the server became a replica.
    let codes = ["55P03", "25006"];
    classes.iter().any(|class| code.starts_with(class)) || codes.contains(&code)
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            return Self::Refused {
                code: refusal.code().code().to_owned(),
                message: refusal.message().to_owned(),
            };
        }
        let message = chain(&error);
        let cause = std::error::Error::source(&error);
        let io_error = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        // A rejected certificate is an I/O error as well, but not a transient one.
        let inner = io_error.and_then(io::Error::get_ref);
        let is_certificate = matches!(inner, Some(inner) if inner.is::<rustls::Error>());
        if error.is_closed() || (io_error.is_some() && !is_certificate) {
            return Self::Broken(message);
        }
        Self::Unexpected(message)
    }
}
