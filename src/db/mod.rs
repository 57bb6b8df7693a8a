//! SQLite and PostgreSQL.

pub mod postgres;
pub mod sqlite;
#[cfg(test)]
pub mod testing;
