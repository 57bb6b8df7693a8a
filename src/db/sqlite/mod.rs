//! SQLite files other than the ledger's.
//!
//! A file is opened when it is first needed, and again after each failure, so no error is permanent by itself.

mod backup;
mod file;
mod open;
pub(crate) mod schema;

pub(crate) use self::{
    backup::back_up,
    file::File,
    open::{probe, probe_file, probe_folder, read_only},
};
use crate::base::durability::Durability;

/// The tables and the durability of a kind of files.
#[derive(Clone, Copy)]
pub(crate) struct FileKind {
    /// Creates the tables of a new file.
    pub schema: &'static str,
    pub durability: Durability,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{path} cannot be used: {source}")]
    /// The file cannot be created or is missing.
    Files {
        path: String,
        source: std::io::Error,
    },
    #[error("{path} cannot be used: {source}")]
    Database {
        path: String,
        source: rusqlite::Error,
    },
    #[error(
        "{path} was made by another version of tollgate (schema version {found}, this one uses {known}); run that \
         version, or move the file away to begin with an empty one: see Upgrade in docs/OPERATIONS.md"
    )]
    OtherVersion {
        path: String,
        found: u32,
        known: u32,
    },
}
