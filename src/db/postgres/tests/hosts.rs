use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use super::*;

/// A URL with the server's address after others.
fn after(server: &PostgresServer, others: &str) -> String {
    format!(
        "postgres://postgres@{others},127.0.0.1:{}/postgres",
        server.port()
    )
}

#[tokio::test]
async fn a_host_that_is_down_is_skipped() {
    let connected = address(&after(PostgresServer::shared(), "127.0.0.1:1"));
    assert!(connected.connect().await.is_ok());
}

/// The host accepts connections, as the kernel does for a stopped process, and sends nothing.
#[tokio::test]
async fn a_host_that_hangs_leaves_time_for_the_next() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().unwrap();
    let started = Instant::now();
    let connected = address(&after(PostgresServer::shared(), &silent.to_string()));
    assert!(connected.connect().await.is_ok());
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn connecting_to_a_silent_host_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let started = Instant::now();
    let refused = address(&format!("postgres://u@{at}/db")).connect().await;
    let refused = refused.err().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(refused.is_transient());
    assert_eq!(
        refused.to_string(),
        format!("{at}: no response within the timeout")
    );
}

#[tokio::test]
async fn of_several_hosts_a_writable_one_is_chosen() {
    let replica = PostgresServer::own_with(&["default_transaction_read_only=on"]);
    let replica_at = format!("127.0.0.1:{}", replica.port());
    let url = after(PostgresServer::shared(), &replica_at);
    assert!(!address(&url).probe().await.unwrap().is_read_only);
    let any = format!("{url}?target_session_attrs=any");
    assert!(address(&any).probe().await.unwrap().is_read_only);

    let only = format!("postgres://postgres@{replica_at}/postgres?target_session_attrs=read-write");
    let refused = address(&only).connect().await.err().unwrap();
    assert!(refused.is_transient(), "it may be promoted");
    assert!(refused.to_string().contains("writes"), "{refused}");
}

#[tokio::test]
async fn a_unix_socket_is_supported() {
    let server = PostgresServer::shared();
    let folder = server.folder().to_str().unwrap().replace('/', "%2F");
    let url = format!(
        "postgres://postgres@{folder}:{}/postgres?sslmode=require",
        server.port()
    );
    address(&url).probe().await.unwrap();
}
