//! The versions of an SQLite file: how far it has come, and the way from there.

use rusqlite::Connection;

/// How many migrations the file has seen.
pub fn seen(connection: &Connection) -> rusqlite::Result<usize> {
    let seen: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(usize::try_from(seen).unwrap_or(usize::MAX))
}

/// Carries out those that it has not seen, each in a transaction of its own.
pub fn bring_up_to_date(connection: &mut Connection, all: &[&str]) -> rusqlite::Result<()> {
    bring_up_to_date_with(connection, all, |_, _| Ok(()))
}

/// The same, with something to do in a version's transaction that SQL alone cannot say.
pub fn bring_up_to_date_with(
    connection: &mut Connection,
    all: &[&str],
    more: impl Fn(i64, &Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let done = seen(connection)?;
    for (version, migration) in (1_i64..).zip(all).skip(done) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        more(version, &transaction)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}
