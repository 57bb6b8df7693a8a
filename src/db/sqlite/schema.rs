//! The schema of an SQLite file and its version, which SQLite stores as `user_version`.

use rusqlite::Connection;

/// The version of the schema that this program creates and reads.
pub const VERSION: u32 = 1;

/// The version of a file; 0 for one without tables.
pub fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Whether this program can use a file of that version: its own, or an empty file.
pub fn is_usable(version: u32) -> bool {
    version == 0 || version == VERSION
}

/// Creates the tables in an empty file.
pub fn create(connection: &mut Connection, schema: &str) -> rusqlite::Result<()> {
    if version(connection)? != 0 {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    transaction.execute_batch(schema)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
