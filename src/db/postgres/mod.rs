//! PostgreSQL: where it is, and connections to it.
//!
//! A connection has no state beyond a transaction and no named statements, so that a pool may stand
//! between, as pgbouncer does in its transaction mode: queries go by `query_typed` and its like.

mod address;
mod connect;
mod error;
mod probe;
#[cfg(test)]
mod tests;
mod tls;

pub use self::{address::Address, connect::Connected, error::Error, probe::Probed};
