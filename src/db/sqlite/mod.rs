//! SQLite files beside the ledger's: opened when they are needed, and again after whatever went wrong
//! with them.

mod file;
mod open;
pub mod schema;

pub use self::{
    file::File,
    open::{probe, probe_folder},
};
use crate::base::durability::Durability;

/// What files of one kind have in common.
#[derive(Clone, Copy)]
pub struct FileKind {
    pub schema: &'static str,
    pub durability: Durability,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
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
    #[error("{path} was written by a newer tollgate (version {found}, this one knows {known})")]
    TooNew {
        path: String,
        found: u32,
        known: u32,
    },
}
