//! Opening a shared ledger: on an empty database, by several gateways at once, and on tables of a newer version.

use std::collections::BTreeSet;

use super::*;
use crate::db::testing::postgres_server::PostgresServer;

async fn open(store: &TestStore) -> Result<Shared, OpenError> {
    let deadline = Duration::from_secs(10);
    Shared::open(
        store.address(),
        Durability::Power,
        deadline,
        Clock::default(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_gateways_start_at_once_on_an_empty_database() {
    let store = TestStore::database_of(PostgresServer::shared());
    let opened = futures_util::future::join_all((0..10).map(|_| open(&store))).await;
    let opened: Vec<Shared> = opened.into_iter().map(Result::unwrap).collect();
    let slots: BTreeSet<i32> = opened
        .iter()
        .map(|shared| shared.inner.lease.load().slot)
        .collect();
    assert_eq!(slots.len(), 10);
    let calls: BTreeSet<u64> = opened.iter().map(|shared| shared.next_call().0).collect();
    assert_eq!(calls.len(), 10);
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused_unless_they_are_compatible() {
    let store = TestStore::database();
    open(&store).await.unwrap();
    store.sql("UPDATE tollgate SET version = 99");
    assert!(
        open(&store).await.is_ok(),
        "it is compatible with this version"
    );
    store.sql("UPDATE tollgate SET version = 99, oldest = 99");
    let refused = open(&store).await.err().unwrap();
    assert!(
        matches!(refused, OpenError::OtherVersion { found: 99, .. }),
        "{refused}"
    );
    let probed = crate::ledger::probe_database(&store.address()).await;
    assert!(probed.unwrap_err().contains("another version of tollgate"));
}

/// A server that fails over or is busy ends sessions and accepts new ones late; a gateway that starts meanwhile
/// retries.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_whose_first_query_fails_retries() {
    const WAITING: &str = "pg_stat_activity WHERE datname = current_database() \
                           AND query LIKE '%all_settings%' AND wait_event_type = 'Lock'";
    let store = TestStore::database();
    open(&store).await.unwrap();
    let stranger = store.address().connect().await.unwrap();
    let lock = "BEGIN; LOCK TABLE model_settings IN ACCESS EXCLUSIVE MODE";
    stranger.batch_execute(lock).await.unwrap();
    let opening = async {
        let opened = open(&store).await;
        assert!(opened.is_ok(), "{:?}", opened.err());
    };
    let disturbing = async {
        for _ in 0..3 {
            let end = format!("SELECT count(pg_terminate_backend(pid)) FROM {WAITING}");
            while store.sql(&end) == "0" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        stranger.batch_execute("ROLLBACK").await.unwrap();
    };
    tokio::join!(opening, disturbing);
}
