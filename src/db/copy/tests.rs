//! Statements, batches and comparisons, with real SQLite files and a real server.

use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::db::{
    postgres::{Address, Connected},
    sqlite::schema,
    testing::postgres_server::PostgresServer,
};

const THINGS: Table = Table {
    name: "things",
    key: &["owner", "number"],
    columns: &[
        Column::text("owner"),
        Column::int("number"),
        Column::flag("at"),
        Column::bytes("raw"),
        Column::json("more"),
        Column::int("place").read_as("rowid"),
    ],
    identity: Some("place"),
};

const NOTES: Table = Table {
    name: "notes",
    key: &["id"],
    columns: &[Column::text("id")],
    identity: None,
};

const TABLES: &[Table] = &[THINGS, NOTES];

const SOURCE: &str = "
    CREATE TABLE things (owner TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER, raw BLOB, more TEXT,
        UNIQUE (owner, number)) STRICT;
    CREATE TABLE notes (id TEXT PRIMARY KEY) STRICT;
    INSERT INTO things VALUES
        ('b', 2, 1, x'00ff', '{\"nul\": \"a\\u0000\"}'), ('b', 1, 0, NULL, NULL),
        ('a', 9223372036854775807, NULL, x'', '[]'), ('a', 9223372036854775806, 1, x'61', 'null');
    INSERT INTO things VALUES ('nul' || char(0), -5, 1, CAST('text' AS BLOB), NULL);";

const TARGET: &str = "
    CREATE TABLE things (owner text NOT NULL, number bigint NOT NULL, at boolean, raw bytea, more jsonb,
        place bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (owner, number));
    CREATE TABLE notes (id text PRIMARY KEY);
    INSERT INTO import_tables (table_name) VALUES ('things'), ('notes');";

struct Given {
    folder: TempDir,
    database: String,
    connection: Connected,
}

impl Given {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fill(&folder.path().join("source.db"));
        let database = PostgresServer::shared().database();
        let connection = connect(&database).await;
        connection.batch_execute(SCHEMA).await.unwrap();
        connection.batch_execute(TARGET).await.unwrap();
        Self {
            folder,
            database,
            connection,
        }
    }

    fn part(&self) -> Part {
        Part {
            file: self.folder.path().join("source.db"),
            tables: TABLES,
        }
    }

    async fn copy(&self, batch_rows: u32) -> Vec<u64> {
        let mut reported = Vec::new();
        let report = |rows| reported.push(rows);
        copy_table(
            &self.connection,
            &self.part(),
            &TABLES[0],
            batch_rows,
            report,
        )
        .await
        .unwrap();
        reported
    }

    async fn text(&self, query: &str) -> String {
        let row = self.connection.query_typed_one(query, &[]).await.unwrap();
        row.get(0)
    }
}

async fn connect(url: &str) -> Connected {
    Address::parse(url).unwrap().connect().await.unwrap()
}

fn fill(file: &Path) {
    let mut connection = Connection::open(file).unwrap();
    schema::create(&mut connection, SOURCE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_copied_in_batches_and_equal_afterwards() {
    for (batch_rows, reported) in [(2, vec![0, 2, 4, 5]), (5, vec![0, 5]), (100, vec![0, 5])] {
        let given = Given::new().await;
        assert_eq!(given.copy(batch_rows).await, reported);
        let rows =
            "SELECT string_agg(concat_ws(' ', owner, number, at, encode(raw, 'hex'), more), '; '
            ORDER BY place) FROM things";
        assert_eq!(
            given.text(rows).await,
            "b 2 t 00ff {\"nul\": \"a\u{fffd}\"}; b 1 f; a 9223372036854775807  []; \
             a 9223372036854775806 t 61 null; nul\u{fffd} -5 t 74657874"
        );
        let source = given.part().totals().unwrap();
        for (table, source) in TABLES.iter().zip(source) {
            let copied = totals_of(&given.connection, table).await.unwrap();
            assert_eq!(source.differences(&copied), Vec::<String>::new());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_found() {
    let given = Given::new().await;
    given.copy(100).await;
    let change = "UPDATE things SET number = number - 1 WHERE owner = 'b' AND number = 1;
        INSERT INTO notes VALUES ('new')";
    given.connection.batch_execute(change).await.unwrap();
    let mut found = Vec::new();
    for (table, source) in TABLES.iter().zip(given.part().totals().unwrap()) {
        let copied = totals_of(&given.connection, table).await.unwrap();
        found.extend(source.differences(&copied));
    }
    assert_eq!(
        found,
        [
            "things.number adds up to 18446744073709551611, and its copy to 18446744073709551610",
            "notes has 0 rows, and its copy 1",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_continues_after_its_last_batch_and_new_rows_after_the_copied() {
    let given = Given::new().await;
    assert_eq!(given.copy(2).await, [0, 2, 4, 5]);
    // As if it had ended after its second batch.
    let earlier = "DELETE FROM things WHERE owner LIKE 'nul%';
        UPDATE import_tables SET copied_rows = 4, last_key = '[\"b\",2]' WHERE table_name = 'things'";
    given.connection.batch_execute(earlier).await.unwrap();
    assert_eq!(given.copy(2).await, [4, 5]);
    assert_eq!(given.copy(2).await, [5], "there is no more");
    assert_eq!(rows_copied(&given.connection).await.unwrap(), 5);
    continue_identities(&given.connection, TABLES.iter())
        .await
        .unwrap();
    let new = "INSERT INTO things VALUES ('c', 1) RETURNING place::text";
    assert_eq!(given.text(new).await, "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_at_once_one_fails() {
    let given = Given::new().await;
    let other = connect(&given.database).await;
    // The other copy has read its progress and waits for this transaction.
    let begun = "BEGIN; UPDATE import_tables SET copied_rows = 1 WHERE table_name = 'things'";
    given.connection.batch_execute(begun).await.unwrap();
    let part = given.part();
    let (copied, ()) = tokio::join!(copy_table(&other, &part, &TABLES[0], 100, |_| ()), async {
        let waiting = "SELECT count(*)::text FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while given.text(waiting).await == "0" {
            tokio::task::yield_now().await;
        }
        given.connection.batch_execute("COMMIT").await.unwrap();
    });
    assert!(matches!(copied, Err(CopyError::Concurrent)), "{copied:?}");
    drop(other);
    assert_eq!(given.text("SELECT count(*)::text FROM things").await, "0");
}

#[tokio::test]
async fn a_fingerprint_depends_on_contents_alone() {
    let of = |file: &Path| {
        let parts = [Part {
            file: file.to_owned(),
            tables: TABLES,
        }];
        let totals = parts[0].totals().unwrap();
        fingerprint(&parts, &totals).unwrap()
    };
    let folder = TempDir::new().unwrap();
    let (one, other) = (folder.path().join("one.db"), folder.path().join("other.db"));
    fill(&one);
    let before = of(&one);
    std::fs::copy(&one, &other).unwrap();
    assert_eq!(of(&other), before);
    let changed = Connection::open(&other).unwrap();
    let nulls = "('a', 1, NULL, NULL, NULL)";
    let change = format!("DELETE FROM things WHERE owner = 'b'; INSERT INTO things VALUES {nulls}");
    changed.execute_batch(&change).unwrap();
    assert_ne!(of(&other), before);
    let missing = folder.path().join("missing.db");
    assert_ne!(of(&missing), before);
    assert!(!missing.exists());
}
