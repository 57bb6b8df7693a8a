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
    /// connection. A timeout says it too, unless the query is to blame; who sets the timeout logs that.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            // Others concern one operation: a cancelled statement, a full disk, a lock, a collision of transactions.
            Self::Refused { code, .. } => is_outage_code(code),
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

fn is_outage_code(code: &str) -> bool {
    // Shutdowns and crashes, but not 57014, a cancelled statement; connection exceptions.
    let classes = ["57P", "08"];
    // Too many connections; read-only transaction, after the server became a replica.
    let codes = ["53300", "25006"];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_one_operation_is_no_outage() {
        for (code, is_transient, is_outage) in [
            ("57P01", true, true),
            ("57P03", true, true),
            ("08006", true, true),
            ("53300", true, true),
            ("25006", true, true),
            ("57014", true, false),
            ("53100", true, false),
            ("53200", true, false),
            ("55P03", true, false),
            ("40001", true, false),
            ("23505", false, false),
        ] {
            let refused = Error::Refused {
                code: code.to_owned(),
                message: String::new(),
            };
            let found = (refused.is_transient(), refused.is_outage());
            assert_eq!(found, (is_transient, is_outage), "{code}");
        }
        for error in [Error::TimedOut, Error::Broken(String::new())] {
            assert!(error.is_outage(), "{error}");
        }
    }
}
