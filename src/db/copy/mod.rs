//! Copies tables from SQLite files into a PostgreSQL database, in batches that can be interrupted at any moment.
//!
//! A batch and the key of its last row are committed in one transaction, so a copy that was killed continues after the
//! last committed batch. The rooms that own tables describe them as [`Table`]s; `tollgate import` copies them all.
//!
//! A failure is returned, and nothing of the batch in progress is in the target.

mod batch;
mod fingerprint;
mod reader;
mod table;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod totals;
mod writer;

pub(crate) use self::{
    fingerprint::fingerprint,
    reader::Part,
    table::{Column, Table},
    totals::{Totals, totals_of},
    writer::{CopyError, continue_identities, copy_table, rows_copied},
};

/// The tables that record the progress.
pub(crate) const SCHEMA: &str = include_str!("tables.sql");
