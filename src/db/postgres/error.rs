//! What can go wrong with PostgreSQL, and whether it may pass by itself.

use std::io;

use crate::net::connect::chain;

/// Has no password in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// None of the hosts let us in; what each said.
    #[error("{reasons}")]
    NotConnected { reasons: String, is_transient: bool },
    /// What was asked may still have been done.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// What was asked may still be done.
    #[error("it did not answer in time")]
    TimedOut,
    /// What was asked was not done.
    #[error("{message} (code {code})")]
    Refused { code: String, message: String },
    /// An answer of another form than we know, or a request that we could not write.
    #[error("{0}")]
    Unexpected(String),
}

impl Error {
    /// Whether the same may go well later, on another connection; otherwise it is a mistake.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotConnected { is_transient, .. } => *is_transient,
            Self::Broken(_) | Self::TimedOut => true,
            Self::Refused { code, .. } => is_transient_code(code),
            Self::Unexpected(_) => false,
        }
    }

    /// What the server calls it, e.g. `23505`.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }
}

fn is_transient_code(code: &str) -> bool {
    // The connection; shutting down or starting up; out of something; a race that was lost.
    let classes = ["08", "57", "53", "40"];
    // A lock that was not to be had; a server that has become a copy of another.
    let codes = ["55P03", "25006"];
    classes.iter().any(|class| code.starts_with(class)) || codes.contains(&code)
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return Self::Refused {
                code: said.code().code().to_owned(),
                message: said.message().to_owned(),
            };
        }
        let words = chain(&error);
        let cause = std::error::Error::source(&error);
        let trouble = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        // A certificate that is refused does not get better by itself.
        let inner = trouble.and_then(io::Error::get_ref);
        let is_certificate = matches!(inner, Some(inner) if inner.is::<rustls::Error>());
        if error.is_closed() || (trouble.is_some() && !is_certificate) {
            return Self::Broken(words);
        }
        Self::Unexpected(words)
    }
}
