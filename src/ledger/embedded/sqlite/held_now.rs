//! The table `held_now`: what running calls hold, for operators who query the file.
//!
//! Holds live in memory and die with the process. The table is a copy of their sums, at most about a second old, from
//! which nothing is ever decided.

use rusqlite::{Connection, params};

/// The holds of an account's running calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldNow {
    pub account_id: Box<str>,
    pub calls: i64,
    pub nano_usd: i64,
}

/// Replaces the table's rows.
pub(crate) fn write(connection: &Connection, held: &[HeldNow]) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM held_now")?
        .execute([])?;
    let mut insert = connection.prepare_cached("INSERT INTO held_now VALUES (?1, ?2, ?3)")?;
    for one in held {
        insert.execute(params![one.account_id, one.calls, one.nano_usd])?;
    }
    Ok(())
}
