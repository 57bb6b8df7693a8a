//! Statements that change more than SQLite keeps in memory for a rollback.

use super::*;

/// Rows of about a page each: four megabytes in all.
const ROWS: u32 = 1_000;

/// SQLite copies each page that a statement changes, and moves the copies to a file once they exceed its spill size
/// (`.cargo/config.toml`). A statement has to work beyond that size, and one that fails late is taken back from the
/// file.
#[tokio::test]
async fn a_statement_works_though_its_journal_spills_to_a_file() {
    let paying = with(DOLLAR).await;
    let writer = &paying.embedded().writer;
    let fill = format!(
        "CREATE TABLE large (id INTEGER PRIMARY KEY, number INTEGER UNIQUE, text TEXT);
         WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < {ROWS})
             INSERT INTO large SELECT id, id, printf('%.3500c', 'x') FROM ids;"
    );
    let filled = writer.run(move |database, _| Ok(database.execute(&fill)?));
    filled.await.unwrap();
    let updated = writer.run(|database, _| {
        database.execute("UPDATE large SET number = number + 10000")?;
        // The last row's number is taken, so the statement fails only there.
        let late = format!("UPDATE large SET number = iif(id < {ROWS}, number + 10000, 20001)");
        let refused = database.execute(&late).unwrap_err();
        let code = refused.sqlite_error_code();
        assert_eq!(
            code,
            Some(rusqlite::ErrorCode::ConstraintViolation),
            "{refused}"
        );
        Ok(())
    });
    updated.await.unwrap();
    let database = rusqlite::Connection::open(paying.folder().path().join("ledger.db")).unwrap();
    let sum = "SELECT min(number), max(number), count(DISTINCT number) FROM large";
    let found = database.query_row(sum, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    assert_eq!(found.unwrap(), (10_001, 10_000 + ROWS, ROWS));
    paying.pay().await.unwrap();
    paying.assert_sound().await;
}
