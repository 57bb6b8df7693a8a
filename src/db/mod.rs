//! Access to SQLite files and PostgreSQL servers, for the rooms that store data in them.
//!
//! Errors are returned with their cause and contain no password; those of PostgreSQL also say whether a retry may
//! succeed. Nothing here retries by itself.
//!
//! May use `net`, `wire`, `routing`, `catalog` and `base`; it needs only `net` and `base`.

pub(crate) mod copy;
pub mod postgres;
pub(crate) mod sqlite;
#[cfg(test)]
pub(crate) mod testing;
