//! Tests of the database servers that tests start, kill and restart.

use std::path::Path;

use crate::support::{
    FaultProxy, PostgresServer, RedisServer,
    stores::{self, connect},
};

#[test]
fn a_killed_redis_restarts_empty_at_the_same_address() {
    let redis = RedisServer::own();
    assert_eq!(redis.command(&["SET", "a", "1"]).unwrap(), "+OK\r\n");
    assert_eq!(redis.command(&["GET", "a"]).unwrap(), "$1\r\n1\r\n");
    redis.kill();
    assert!(redis.command(&["GET", "a"]).is_err());
    redis.start();
    assert_eq!(redis.command(&["GET", "a"]).unwrap(), "$-1\r\n");
    let policy = redis.command(&["CONFIG", "GET", "maxmemory-policy"]);
    assert!(policy.unwrap().contains("noeviction"));
}

#[test]
fn redis_is_shared() {
    let urls = [RedisServer::shared().url(), RedisServer::shared().url()];
    assert_eq!(urls[0], urls[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_postgres_restarts_with_committed_data() {
    let postgres = PostgresServer::own();
    let url = postgres.database();
    let client = connect(&url).await;
    let made = "CREATE TABLE t (n INT); INSERT INTO t VALUES (7)";
    client.batch_execute(made).await.unwrap();
    postgres.kill();
    assert!(client.query_one("SELECT n FROM t", &[]).await.is_err());
    postgres.start();
    let row = connect(&url).await.query_one("SELECT n FROM t", &[]).await;
    assert_eq!(row.unwrap().get::<_, i32>(0), 7);
}

#[tokio::test]
async fn every_database_is_new() {
    let server = PostgresServer::shared();
    for _ in 0..2 {
        let client = connect(&server.database()).await;
        let made = "CREATE TABLE t (n INT)";
        client.batch_execute(made).await.unwrap();
    }
}

#[tokio::test]
async fn round_trips_to_postgres_are_counted() {
    let server = PostgresServer::shared();
    let proxy = FaultProxy::start(([127, 0, 0, 1], server.port()).into());
    let url = server.database();
    let port = format!(":{}/", server.port());
    let url = url.replace(&port, &format!(":{}/", proxy.address.port()));
    let client = connect(&url).await;
    client.batch_execute("SELECT 1").await.unwrap();
    let before = proxy.round_trips();
    for _ in 0..5 {
        client.batch_execute("SELECT 1; SELECT 2").await.unwrap();
    }
    assert_eq!(proxy.round_trips() - before, 5);
}

#[test]
fn a_folder_finds_its_stores_again() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lines = |folder: &Path| stores::lines(folder);
    assert_eq!(lines(first.path()), lines(first.path()));
    assert_ne!(lines(first.path()), lines(second.path()));
}
