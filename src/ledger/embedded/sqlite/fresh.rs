//! Calls that are not entered yet, for whoever looks: as rows, and among the others.

use rusqlite::Connection;

use super::{calls::COLUMNS, new_calls::copy_to_fresh, open::version};

/// The version that wrote them in columns; before it there were none.
const IN_COLUMNS: usize = 9;

/// Shows them in a table `fresh`, among the other calls, and in the books, for this connection and its open
/// transaction: what was entered meanwhile would be there twice.
pub fn show(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "CREATE TEMP TABLE fresh AS SELECT {COLUMNS} FROM main.calls WHERE false;
         CREATE UNIQUE INDEX temp.fresh_by_id ON fresh (id);
         CREATE TEMP VIEW calls AS SELECT {COLUMNS} FROM main.calls UNION ALL SELECT {COLUMNS} FROM fresh;
         CREATE TEMP VIEW ledger_entries AS
         SELECT seq, account_id, kind, ref, delta, balance_after, at FROM main.ledger_entries
         UNION ALL
         SELECT (SELECT max(seq) FROM main.ledger_entries) + row_number() OVER (ORDER BY rowid), account_id,
             'charge', CAST(id AS TEXT), balance_after - balance_before, balance_after, ended_ms / 1000
         FROM fresh WHERE cost IS NOT NULL"
    ))?;
    match version(connection)? {
        IN_COLUMNS => connection.execute_batch(&format!(
            "INSERT INTO fresh SELECT {COLUMNS} FROM main.new_calls ORDER BY seq"
        )),
        earlier if earlier < IN_COLUMNS => Ok(()),
        _ => copy_to_fresh(connection),
    }
}
