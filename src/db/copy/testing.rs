//! Checks lists of tables against the schema of their file.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::table::Table;

/// Asserts that the tables list every table and column of the schema, except for these tables and `table.column`s. A
/// table or column that is added to a schema must be imported too.
#[track_caller]
pub(crate) fn assert_lists_all(tables: &[Table], schema: &str, except: &[&str]) {
    let file = Connection::open_in_memory().unwrap();
    file.execute_batch(schema).unwrap();
    let mut query = file
        .prepare(
            "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'",
        )
        .unwrap();
    let columns = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let columns = columns.unwrap().map(Result::unwrap);
    let names =
        columns.map(|(table, column): (String, String)| (table.clone(), table + "." + &column));
    let expected: BTreeSet<String> = names
        .filter(|(table, column)| !except.contains(&&**table) && !except.contains(&&**column))
        .map(|(_, column)| column)
        .collect();
    let listed = tables.iter().flat_map(|table| {
        // Columns that are computed have other names in the source.
        let columns = table.columns.iter().filter(|column| !column.is_computed());
        columns.map(|column| format!("{}.{}", table.name, column.name))
    });
    assert_eq!(listed.collect::<BTreeSet<String>>(), expected);
}
