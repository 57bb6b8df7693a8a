//! PostgreSQL: URLs, TLS and connections.
//!
//! Connections keep no session state beyond a transaction and use no named statements, so that they work through a
//! connection pooler in transaction mode, such as `PgBouncer`. Queries must therefore use `query_typed` and its
//! variants.
//!
//! A failed connection or query returns an [`Error`], which says whether a retry may succeed.

mod address;
mod connect;
mod error;
mod probe;
pub(crate) mod storable;
#[cfg(test)]
mod tests;
mod tls;

pub use self::address::Address;
pub(crate) use self::{connect::Connected, error::Error};
