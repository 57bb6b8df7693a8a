//! The schema of an SQLite file: its version is SQLite's `user_version`, and `application_id` marks it as ours.

use rusqlite::Connection;

/// The version of the schema that this program creates and reads.
pub(crate) const VERSION: u32 = 5;
/// "toll" in ASCII. Files of development versions have the number of a schema, but not this mark.
const APPLICATION_ID: i32 = 0x746f_6c6c;

/// The version of a file; 0 for one without tables.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// The version of a file that this program cannot use; `None` if it can, or if the file is empty.
pub(crate) fn unusable(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    let found = version(connection)?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let is_usable = found == 0 || (found == VERSION && application == APPLICATION_ID);
    Ok((!is_usable).then_some(found))
}

/// Creates the tables in an empty file.
pub(crate) fn create(connection: &mut Connection, schema: &str) -> rusqlite::Result<()> {
    if version(connection)? != 0 {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    transaction.execute_batch(schema)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_version_or_program_are_not_used() {
        let mut file = Connection::open_in_memory().unwrap();
        assert_eq!(unusable(&file).unwrap(), None, "it is empty");
        create(&mut file, "CREATE TABLE t (a TEXT) STRICT").unwrap();
        create(&mut file, "CREATE TABLE t (a TEXT) STRICT").unwrap();
        assert_eq!(unusable(&file).unwrap(), None);
        file.pragma_update(None, "application_id", 0).unwrap();
        assert_eq!(unusable(&file).unwrap(), Some(VERSION));
        file.pragma_update(None, "application_id", APPLICATION_ID)
            .unwrap();
        file.pragma_update(None, "user_version", 13).unwrap();
        assert_eq!(unusable(&file).unwrap(), Some(13));
    }
}
