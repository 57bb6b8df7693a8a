//! Errors of ledger operations, and of opening a ledger.

use super::budgets::MAX_BUDGETS;
use crate::db::postgres;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("there is no {what} `{id}`")]
    NotFound { what: &'static str, id: String },
    #[error("keys belong to the project; move or delete them first")]
    ProjectInUse,
    #[error("a deleted key does not come back; create a new one")]
    KeyDeleted,
    #[error(
        "the account has {max} keys, which is the most that it may have; delete one, or raise `limits.max_keys`"
    )]
    TooManyKeys { max: u32 },
    #[error(
        "the account has {MAX_BUDGETS} budgets, which is the most that it may have; remove one"
    )]
    TooManyBudgets,
    #[error("the {track} track has no `{tier}` tier")]
    NoSuchPlan {
        track: &'static str,
        tier: &'static str,
    },
    #[error("reference `{reference}` was used before, with another amount or expiry")]
    ReferenceTaken { reference: String },
    #[error("that is more credit than an account can hold")]
    TooMuchCredit,
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("the call has no open hold")]
    NoHold,
    #[error("another call with this idempotency key was charged")]
    KeySpent,
    #[error("the change could not be written to the disk")]
    NotCommitted,
    #[error("the ledger has stopped")]
    Stopped,
    #[error("the ledger database is unreachable")]
    Unavailable,
    #[error("the database failed: {0}")]
    Postgres(postgres::Error),
}

impl From<postgres::Error> for LedgerError {
    fn from(error: postgres::Error) -> Self {
        if error.is_transient() {
            // An outage fails every operation and is logged once, by those that ask for the end of it.
            if error.is_outage() {
                tracing::debug!(%error, "the ledger database is unreachable");
            } else {
                tracing::warn!(%error, "an operation of the ledger failed; it may succeed if it is repeated");
            }
            return Self::Unavailable;
        }
        Self::Postgres(error)
    }
}

/// Why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path} is in use by another tollgate process; stop that one or use another path")]
    InUse { path: String },
    #[error(
        "{path} has a second name (hard link), and a database opened by two names can be damaged; remove the other \
         name (`find -samefile {path}` finds it), or use a copy"
    )]
    Linked { path: String },
    #[error("{path} cannot be used: {source}")]
    Files {
        path: String,
        source: std::io::Error,
    },
    #[error("{path} cannot be used: {source}")]
    Database {
        path: String,
        source: rusqlite::Error,
    },
    #[error("{address} cannot be used: {source}")]
    Postgres {
        address: String,
        source: postgres::Error,
    },
    #[error(
        "an import into {address} is not finished; finish it with the same `tollgate import` command, or use another \
         database"
    )]
    UnfinishedImport { address: String },
    #[error(
        "{path} was made by another version of tollgate (schema version {found}, this one uses {known})"
    )]
    OtherVersion {
        path: String,
        found: u32,
        known: u32,
    },
}
