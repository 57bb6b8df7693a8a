//! Calls of versions that had a row for each, and what becomes of them.

use rusqlite::{Connection, Row, ToSql, params};

use super::*;
use crate::ledger::{
    CallsPage,
    embedded::sqlite::{
        new_calls::not_entered,
        record::{Framed, HEAD, Record, framed},
    },
};

const TABLES: &str = "
    CREATE TABLE calls (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, account_id TEXT NOT NULL, key_id TEXT NOT NULL,
        model TEXT NOT NULL, routed_model TEXT NOT NULL, upstream TEXT, stream INTEGER NOT NULL,
        outcome TEXT NOT NULL, failure TEXT, reserved_tokens INTEGER NOT NULL, held INTEGER NOT NULL,
        most INTEGER NOT NULL, input_price INTEGER NOT NULL, cached_price INTEGER NOT NULL,
        output_price INTEGER NOT NULL, admitted_ms INTEGER NOT NULL, first_byte_ms INTEGER,
        ended_ms INTEGER NOT NULL, prompt INTEGER, cached INTEGER, completion INTEGER, reasoning INTEGER,
        cost INTEGER, balance_before INTEGER, balance_after INTEGER, attempts TEXT, steps TEXT, decision TEXT
    ) STRICT;
    CREATE INDEX calls_by_request ON calls (request_id);
    CREATE INDEX calls_by_account ON calls (account_id, ended_ms);
    CREATE INDEX calls_by_time ON calls (ended_ms);";

/// Makes the file what a version would have left that had a row for each call.
pub fn as_rows(paying: &Paying) {
    let file = paying.folder().path().join("ledger.db");
    let mut file = Connection::open(file).unwrap();
    let file = file.transaction().unwrap();
    file.execute_batch(TABLES).unwrap();
    for (_, records) in values(&file, "SELECT seq, records FROM call_blocks") {
        for framed in framed(&records) {
            let framed = framed.unwrap();
            insert(&file, framed.seq, &framed.read().unwrap());
        }
    }
    // What is not entered was a row for each transaction, and had nothing but its length before it.
    let records = not_entered(&file).unwrap();
    file.execute_batch(
        "DROP TABLE entered; DROP TABLE new_calls;
         CREATE TABLE new_calls (seq INTEGER PRIMARY KEY, records BLOB NOT NULL) STRICT",
    )
    .unwrap();
    for framed in framed(&records) {
        let Framed { seq, bytes, .. } = framed.unwrap();
        let record = &bytes[HEAD..];
        let length = u32::try_from(record.len()).unwrap();
        let lengths_only = [&length.to_le_bytes(), record].concat();
        let insert = "INSERT INTO new_calls VALUES (?1, ?2)";
        file.execute(insert, params![seq, lengths_only]).unwrap();
    }
    file.execute_batch("DROP TABLE call_blocks; DROP TABLE call_names; PRAGMA user_version = 10;")
        .unwrap();
    file.commit().unwrap();
}

fn values(file: &Connection, query: &str) -> Vec<(i64, Vec<u8>)> {
    let mut rows = file.prepare(query).unwrap();
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let rows = rows.query_map([], read).unwrap();
    rows.map(Result::unwrap).collect()
}

fn insert(file: &Connection, seq: i64, record: &Record<'_>) {
    let paid = record.paid;
    let list = |list: &str| (!list.is_empty()).then(|| list.to_owned());
    let values: [&dyn ToSql; 29] = [
        &record.id,
        &record.request_id,
        &record.account_id,
        &record.key_id,
        &record.model,
        &record.routed_model,
        &record.upstream,
        &record.stream,
        &record.outcome,
        &record.failure,
        &record.reserved_tokens,
        &record.held,
        &record.most,
        &record.input_price,
        &record.cached_price,
        &record.output_price,
        &record.admitted_ms,
        &record.first_byte_ms,
        &record.ended_ms,
        &paid.map(|paid| paid.prompt),
        &paid.map(|paid| paid.cached),
        &paid.map(|paid| paid.completion),
        &paid.map(|paid| paid.reasoning),
        &paid.map(|paid| paid.cost),
        &paid.map(|paid| paid.before),
        &paid.map(|paid| paid.after),
        &list(record.attempts),
        &list(record.steps),
        &record.decision,
    ];
    let marks = vec!["?"; values.len()].join(", ");
    file.execute(&format!("INSERT INTO calls VALUES ({marks})"), values)
        .unwrap();
    if let Some(paid) = paid {
        let line = params![
            seq,
            record.account_id,
            record.id.to_string(),
            record.delta(),
            paid.after,
            record.ended_ms / 1_000
        ];
        file.execute(
            "INSERT INTO ledger_entries (seq, account_id, kind, ref, delta, balance_after, at)
             VALUES (?1, ?2, 'charge', ?3, ?4, ?5, ?6)",
            line,
        )
        .unwrap();
    }
}

/// Two accounts that paid in turn, with grants in between, an expiry, and calls that came to nothing.
async fn with_a_past() -> Paying {
    let paying = with(DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    for round in 0..3 {
        paying.pay().await.unwrap();
        neighbour.pay().await.unwrap();
        paying.pay().await.unwrap();
        let failed = paying.hold(COST, COST, 0).await.unwrap();
        failed.free(Outcome::ProviderFailed, Some("status 529".into()));
        paying.give(COST, Some(paying.now() + 5)).await;
        paying.advance(round * 5);
    }
    paying.pay().await.unwrap();
    paying.assert_sound().await;
    paying
}

/// All that can be read of the account.
async fn story(paying: &Paying) -> String {
    let ledger = &paying.ledger;
    let page = CallsPage {
        account_id: Some(&paying.account_id),
        limit: 100,
        ..CallsPage::default()
    };
    let calls = ledger.calls_page(&page).await.unwrap();
    let entries = ledger.entries_page(&paying.account_id, None, 100).await;
    let (balance, days) = (paying.balance().await, paying.days().await);
    format!("{calls:#?} {:#?} {balance} {days:#?}", entries.unwrap())
}

#[tokio::test]
async fn rows_of_an_earlier_version_are_all_there_and_in_order() {
    let paying = with_a_past().await;
    let expected = story(&paying).await;
    as_rows(&paying);
    let audit = audit_file(&paying.folder().path().join("ledger.db")).unwrap();
    assert_eq!((audit.charges, audit.violations), (10, Vec::new()));
    let paying = paying.restart().await;
    assert_eq!(story(&paying).await, expected);
    paying.assert_sound().await;
    paying.assert_added_up().await;
    paying.pay().await.unwrap();
    paying.restart().await.assert_sound().await;
}

/// They died before they had entered them.
#[tokio::test]
async fn what_an_earlier_version_had_not_entered_is_entered() {
    let paying = with_a_past().await;
    paying.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON usage_days
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    let mut both = paying.hold(COST, COST, 0).await.unwrap();
    let _ = paying.pay().await.unwrap();
    both.charge(tokens(COST), Outcome::Answered).await.unwrap();
    drop(both);
    let balance = paying.balance().await;
    assert_eq!(paying.calls_that_wait(), 2);
    as_rows(&paying);
    let paying = paying.restart().await;
    assert_eq!(paying.balance().await, balance);
    paying.sql("DROP TRIGGER refuse");
    assert_eq!(story(&paying).await.matches("Answered").count(), 9);
    paying.assert_sound().await;
    paying.assert_added_up().await;
}
