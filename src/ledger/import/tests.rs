//! The beginning of an import, and what only the ledger's tables need.

use std::sync::{Arc, atomic::AtomicI64};

use rusqlite::Connection;
use tempfile::TempDir;

use super::{tables::TABLES, *};
use crate::{
    db::{
        copy::{copy_table, testing::assert_lists_all},
        sqlite::schema,
    },
    ledger::tests::TestStore,
};

const SCHEMA: &str = include_str!("../embedded/schema.sql");

#[test]
fn every_column_is_copied() {
    // Holds, the redo log and its end are state of a running gateway. What is left of grants goes to the accounts.
    let except = [
        "held_now",
        "redo_log",
        "posted",
        "credit_grants.remaining_nano_usd",
    ];
    assert_lists_all(TABLES, SCHEMA, &except);
}

fn names() -> Vec<&'static str> {
    TABLES.iter().map(|table| table.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unspent_grants_are_in_order_of_use() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ledger.db");
    let mut source = Connection::open(&file).unwrap();
    schema::create(&mut source, SCHEMA).unwrap();
    source
        .execute_batch(
            "INSERT INTO accounts VALUES ('poor', 'a@b.c', NULL, 'business', 'flex', 1, 1, 7, 5),
                 ('rich', 'a@b.c', 'R', 'business', 'flex', 0, 2, 0, NULL);
             INSERT INTO credit_grants VALUES ('never 1', 'rich', 9, NULL, NULL, 1, 4, NULL),
                 ('used up', 'rich', 9, 100, NULL, 1, 0, 'r'), ('late', 'rich', 9, 300, NULL, 1, 3, NULL),
                 ('soon 1', 'rich', 9, 200, 'gift', 1, 9, NULL), ('never 2', 'rich', 9, NULL, NULL, 1, 8, NULL),
                 ('soon 2', 'rich', 9, 200, NULL, 1, 1, NULL);
             INSERT INTO budgets VALUES ('budget_1', 'rich', 'account', 'rich', 'team', 100, 'day', 'UTC', NULL, 1,
                 '[50]', 1, 86400, 30);",
        )
        .unwrap();
    let store = TestStore::database();
    let connection = connect(&store.address()).await.unwrap();
    begin(&connection, "source", &names()).await.unwrap();
    let before_entries = TABLES.iter();
    for table in before_entries.take_while(|table| table.name != "ledger_entries") {
        copy_table(&connection, &part(&file), table, 1, |_| ())
            .await
            .unwrap();
    }
    let funds = "SELECT string_agg(concat_ws(' ', grant_id, remaining_nano_usd, f.held_nano_usd, expires_at), ', ')
        FROM accounts, unnest(funds) f WHERE id = 'rich'";
    assert_eq!(
        store.sql(funds),
        "soon 1 9 0 200, soon 2 1 0 200, late 3 0 300, never 1 4 0 9223372036854775807, \
         never 2 8 0 9223372036854775807"
    );
    let poor =
        "SELECT concat_ws(' ', closed, debt_nano_usd, lapsed_at, cardinality(funds)) FROM accounts
        WHERE id = 'poor'";
    assert_eq!(store.sql(poor), "t 7 5 0");
    let order =
        "SELECT string_agg(seq || ' ' || id, ', ' ORDER BY seq) FROM credit_grants WHERE seq > 4";
    assert_eq!(store.sql(order), "5 never 2, 6 soon 2");
    let budget = "SELECT concat_ws(' ', has_budgets, period_start, period_end, spent_nano_usd, budgets.held_nano_usd)
        FROM accounts JOIN budgets ON account_id = accounts.id";
    assert_eq!(store.sql(budget), "t 86400 172800 30 0");
    let same = BTreeMap::from([("poor".to_owned(), -7), ("rich".to_owned(), 25)]);
    assert_eq!(balances_of_file(&file).unwrap(), same);
    assert_eq!(balances(&connection).await.unwrap(), same);
}

#[test]
fn months_without_calls_are_left_out() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ledger.db");
    let mut source = Connection::open(&file).unwrap();
    schema::create(&mut source, SCHEMA).unwrap();
    assert_eq!(months(&file).unwrap(), [""; 0]);
    for time in [
        "1970-01-01 00:00:00",
        "2026-10-31 23:59:59",
        "2026-11-01 00:00:00",
        "2026-11-30 12:00:00",
        "2027-02-01 00:00:00",
    ] {
        let call = "INSERT INTO calls (id, request_id, account_id, key_id, model, routed_model, stream, outcome,
                admitted_at_ms, ended_at_ms, reserved_tokens, held_nano_usd, worst_case_nano_usd, input_pico_usd,
                cached_input_pico_usd, output_pico_usd)
            VALUES ((unixepoch(?1) * 1000) << 19, '', '', '', '', '', 0, 'failed', 0, 0, 0, 0, 0, 0, 0, 0)";
        source.execute(call, [time]).unwrap();
    }
    let expected = ["1970-01-01", "2026-10-01", "2026-11-01", "2027-02-01"];
    assert_eq!(months(&file).unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_begins_on_an_empty_database_and_continues_from_the_same_files() {
    let store = TestStore::database();
    let connect = async || connect(&store.address()).await.unwrap();
    let begin = async |source: &str| begin(&connect().await, source, &names()).await;
    store.open(&clock()).await.close().await;
    begin("one").await.unwrap();
    begin("one").await.unwrap();
    let other = begin("other").await.unwrap_err();
    assert!(matches!(other, ImportError::OtherSource), "{other}");
    finish(&connect().await).await.unwrap();
    let again = begin("one").await.unwrap_err();
    assert!(matches!(again, ImportError::Finished), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_is_refused() {
    let store = TestStore::database();
    let gateway = store.open(&clock()).await;
    let begin = async || {
        let connection = connect(&store.address()).await.unwrap();
        begin(&connection, "source", &names()).await
    };
    let found = begin().await.unwrap_err().to_string();
    assert!(found.starts_with("gateways has rows"), "{found}");
    gateway.close().await;
    store.sql("INSERT INTO model_settings VALUES ('m', true, NULL)");
    let found = begin().await.unwrap_err().to_string();
    assert!(found.starts_with("model_settings has rows"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_only_after_the_import() {
    let store = TestStore::database();
    let connection = connect(&store.address()).await.unwrap();
    begin(&connection, "source", &names()).await.unwrap();
    let open = async || {
        let deadline = crate::ledger::DEADLINE;
        Ledger::share(&store.address(), Durability::Power, deadline).await
    };
    let refused = open().await.err().unwrap();
    assert!(
        matches!(refused, OpenError::UnfinishedImport { .. }),
        "{refused}"
    );
    let probed = crate::ledger::probe_database(&store.address()).await;
    assert!(probed.unwrap_err().contains("is not finished"));
    assert_eq!(store.sql("SELECT count(*) FROM gateways"), "0");
    finish(&connection).await.unwrap();
    assert!(open().await.is_ok());
}

/// The import begins after the gateway has looked for one, and before it is registered.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_while_an_import_begins_is_refused() {
    let store = TestStore::database();
    let import = connect(&store.address()).await.unwrap();
    let lock = "BEGIN; LOCK TABLE gateways IN SHARE ROW EXCLUSIVE MODE";
    import.batch_execute(lock).await.unwrap();
    let deadline = crate::ledger::DEADLINE;
    let address = store.address();
    let (opened, ()) = tokio::join!(
        Ledger::share(&address, Durability::Power, deadline),
        async {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND wait_event_type = 'Lock' AND query LIKE '%begin_gateway%'";
            while store.sql(waiting) == "0" {
                tokio::task::yield_now().await;
            }
            let begun = "INSERT INTO imports (source) VALUES ('source'); COMMIT";
            import.batch_execute(begun).await.unwrap();
        }
    );
    let refused = opened.err().unwrap();
    assert!(
        matches!(refused, OpenError::UnfinishedImport { .. }),
        "{refused}"
    );
    assert_eq!(store.sql("SELECT count(*) FROM gateways"), "0");
}

fn clock() -> Arc<AtomicI64> {
    Arc::new(AtomicI64::new(1_800_000_000_000))
}
