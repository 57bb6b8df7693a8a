use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::*;

#[tokio::test]
async fn a_connection_runs_queries_and_is_closed_when_dropped() {
    let server = PostgresServer::shared();
    let url = server.database();
    let connected = address(&url).connect().await.unwrap();
    let query = connected.query_typed_one("SELECT $1 || 'b'", &[(&"a", Type::TEXT)]);
    let result: String = query.await.unwrap().get(0);
    assert_eq!(result, "ab");
    assert!(!connected.is_closed());
    drop(connected);
    let name = url.rsplit_once('/').unwrap().1;
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'");
    let started = Instant::now();
    while server.psql("postgres", &count) != "0" {
        assert!(started.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn no_prepared_statement_is_left_behind() {
    let server = PostgresServer::shared();
    let connected = address(&server.database()).connect().await.unwrap();
    for _ in 0..3 {
        connected.query_typed("SELECT 1", &[]).await.unwrap();
        let query = connected.query_typed_one("SELECT count(*) FROM pg_prepared_statements", &[]);
        assert_eq!(query.await.unwrap().get::<_, i64>(0), 0);
    }
}

#[tokio::test]
async fn a_lost_connection_is_noticed_and_the_next_one_works() {
    let server = PostgresServer::own();
    let address = address(&server.database());
    let connected = address.connect().await.unwrap();
    server.kill();
    tokio::time::timeout(Duration::from_secs(5), connected.closed())
        .await
        .unwrap();
    assert!(connected.is_closed());
    let broken = connected.query_typed("SELECT 1", &[]).await.unwrap_err();
    assert!(Error::from(broken).is_transient());
    let refused = address.connect().await.err().unwrap();
    assert!(refused.is_transient(), "{refused}");
    assert!(refused.to_string().contains("refused"), "{refused}");
    server.start();
    assert!(address.connect().await.is_ok());
}

#[tokio::test]
async fn committed_data_survives_a_crash() {
    let server = PostgresServer::own_with(&["fsync=on"]);
    let url = server.database();
    let name = url.rsplit_once('/').unwrap().1;
    server.psql(name, "CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
    server.kill();
    server.start();
    assert_eq!(server.psql(name, "SELECT n FROM t"), "7");
}

#[tokio::test]
async fn mistakes_are_not_transient() {
    let server = PostgresServer::shared();
    let missing = address(&server.url("no_such_database")).connect().await;
    let missing = missing.err().unwrap();
    assert!(!missing.is_transient(), "{missing}");
    assert!(missing.to_string().contains("does not exist"), "{missing}");

    let connected = address(&server.database()).connect().await.unwrap();
    let wrong = connected.query_typed("SELEC 1", &[]).await.unwrap_err();
    let wrong = Error::from(wrong);
    assert_eq!(wrong.code(), Some("42601"));
    assert!(!wrong.is_transient(), "{wrong}");
}

#[tokio::test]
async fn a_password_lets_in_and_is_never_shown() {
    let server = PostgresServer::own();
    server.psql("postgres", "CREATE USER u PASSWORD 'hu/sh'");
    server.write_file("data/pg_hba.conf", "host all u all scram-sha-256\n");
    server.kill();
    server.start();
    let url = |login: &str| format!("postgres://{login}@127.0.0.1:{}/postgres", server.port());
    assert!(address(&url("u:hu%2Fsh")).connect().await.is_ok());
    for login in ["u:hush", "u"] {
        let refused = address(&url(login)).connect().await.err().unwrap();
        assert!(!refused.is_transient(), "{refused}");
        let shown = format!("{refused} {refused:?}");
        assert!(
            shown.contains("password") && !shown.contains("hush"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_probe_returns_version_and_mode() {
    let server = PostgresServer::shared();
    let url = server.database();
    let probed = address(&url).probe().await.unwrap();
    assert!(probed.version.starts_with(char::is_numeric), "{probed}");
    assert_eq!(
        probed.to_string(),
        format!("PostgreSQL {} answers", probed.version)
    );
    let name = url.rsplit_once('/').unwrap().1;
    let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    server.psql("postgres", &read_only);
    let probed = address(&url).probe().await.unwrap();
    assert!(matches!(
        &probed,
        ServerInfo {
            is_read_only: true,
            ..
        }
    ));
    assert!(probed.to_string().ends_with("is read-only"), "{probed}");
}
