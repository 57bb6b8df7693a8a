//! Faults of the PostgreSQL server, and several gateways on one database.

use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

use super::*;

const TABLES: &str = include_str!("../postgres/tables.sql");

/// A new database with the tables in it.
pub(crate) fn new_database(server: &PostgresServer) -> Address {
    let url = server.database();
    server.psql(url.rsplit_once('/').unwrap().1, TABLES);
    Address::parse(&url).unwrap()
}

impl Given {
    fn on(server: &PostgresServer, settings: Settings) -> Self {
        Self::at(Place::Database(new_database(server)), settings)
    }

    fn is_failing(&self) -> bool {
        let Conversations::Shared(database) = &*self.conversations else {
            unreachable!("it was opened as a database")
        };
        database.is_failing()
    }
}

async fn until_stored(given: &Given, id: &str) {
    let started = Instant::now();
    while let Err(error) = given.conversations.store(record("a", id)).await {
        assert!(started.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn gateways_share_the_storage() {
    let one = Given::postgres();
    let other = one.place.open(one.settings, &one.now_ms);
    one.store("a", "resp_1").await;
    let found = other.find("a", "resp_1").await.unwrap();
    assert_eq!(found, Some(record("a", "resp_1")));
    assert_eq!(other.find("b", "resp_1").await.unwrap(), None);
    assert!(other.delete("a", "resp_1").await.unwrap());
    assert!(!one.has("a", "resp_1").await);
}

/// Without a manual clock, the server's time is used.
#[tokio::test]
async fn the_time_is_the_servers() {
    let address = new_database(PostgresServer::shared());
    let conversations = Conversations::shared(address.clone());
    let kept = conversations.store(record("a", "resp_1")).await.unwrap();
    assert_eq!(kept, StoreOutcome::Stored);
    let found = conversations.find("a", "resp_1").await.unwrap();
    assert!(found.is_some());
    let rows = Reader::database(&address).await.rows().await;
    let age_ms = Clock::System.now_ms() - rows[0].2;
    assert!((-1_000..60_000).contains(&age_ms), "{age_ms}");
}

#[tokio::test]
async fn a_killed_server_is_unavailable_until_it_is_back() {
    let server = PostgresServer::own();
    let given = Given::on(&server, SETTINGS);
    given.store("a", "before").await;
    // Without a checkpoint, a killed server may lose the last commits, because stores do not wait for the disk.
    server.psql("postgres", "CHECKPOINT");
    server.kill();
    for _ in 0..3 {
        let started = Instant::now();
        let refused = given.conversations.store(record("a", "during")).await;
        let unavailable = matches!(
            refused,
            Err(StorageError::Unavailable(Cause::Postgres { .. }))
        );
        assert!(unavailable, "{refused:?}");
        assert!(given.conversations.find("a", "before").await.is_err());
        assert!(given.conversations.delete("a", "before").await.is_err());
        assert!(started.elapsed() < SETTINGS.deadline);
        assert!(given.is_failing());
    }
    server.start();
    until_stored(&given, "after").await;
    assert!(given.has("a", "before").await && given.has("a", "after").await);
    assert!(!given.has("a", "during").await);
    assert!(!given.is_failing());
}

/// Connections that the server closes, as at a restart or a failover, fail no operation.
#[tokio::test]
async fn a_closed_connection_is_replaced() {
    let server = PostgresServer::shared();
    let given = Given::postgres();
    let Place::Database(address) = &given.place else {
        unreachable!()
    };
    let name = address.to_string();
    let name = name.rsplit_once('/').unwrap().1;
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    for round in 0..5 {
        let id = format!("resp_{round}");
        given.store("a", &id).await;
        assert!(given.has("a", &id).await);
        assert_eq!(server.psql("postgres", &end), "2", "one reads, one writes");
        assert!(given.has("a", &id).await);
    }
    assert!(!given.is_failing());
}

#[tokio::test]
async fn a_hanging_server_times_out() {
    let server = PostgresServer::own();
    let settings = Settings {
        deadline: Duration::from_millis(500),
        ..SETTINGS
    };
    let given = Given::on(&server, settings);
    given.store("a", "before").await;
    assert!(given.has("a", "before").await);
    server.pause();
    let stored = given.conversations.store(record("a", "during")).await;
    assert!(matches!(stored, Err(StorageError::TimedOut)), "{stored:?}");
    for _ in 0..3 {
        let started = Instant::now();
        let stored = given.conversations.store(record("a", "during")).await;
        assert!(stored.is_err(), "{stored:?}");
        let found = given.conversations.find("a", "before").await;
        assert!(found.is_err(), "{found:?}");
        assert!(started.elapsed() < Duration::from_secs(2));
        assert!(given.is_failing());
    }
    server.resume();
    until_stored(&given, "after").await;
    assert!(given.has("a", "before").await && given.has("a", "after").await);
}

/// With a server that hangs, neither operations nor connections pile up.
#[tokio::test]
async fn waiting_operations_are_limited() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let address = Address::parse(&format!("postgres://u@{at}/db")).unwrap();
    let given = Given::at(Place::Database(address), SETTINGS);
    let waiting: Vec<_> = (0..SETTINGS.max_waiting)
        .map(|number| {
            let conversations = given.conversations.clone();
            let record = record("a", &format!("resp_{number}"));
            tokio::spawn(async move { conversations.store(record).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await; // until all of them wait
    let started = Instant::now();
    let refused = given.conversations.find("a", "resp_1").await;
    let full = matches!(refused, Err(StorageError::Unavailable(Cause::QueueFull)));
    assert!(full, "{refused:?}");
    assert!(started.elapsed() < SETTINGS.deadline / 10);
    for waiting in waiting {
        assert!(waiting.await.unwrap().is_err());
    }
    assert!(started.elapsed() < SETTINGS.deadline * 2);
    let mut connections: Vec<TcpStream> = Vec::new();
    while let Ok(accepted) = tokio::time::timeout(Duration::from_millis(50), silent.accept()).await
    {
        connections.push(accepted.unwrap().0);
    }
    assert!(connections.len() < 8, "{} were opened", connections.len());
}

/// Maintenance may lock the table; the server's lock timeout ends operations that wait for it.
#[tokio::test]
async fn a_locked_table_times_out_and_is_used_again() {
    let given = Given::with(Kind::Postgres, SETTINGS);
    given.store("a", "before").await;
    let Place::Database(address) = &given.place else {
        unreachable!()
    };
    let other_client = address.connect().await.unwrap();
    let lock = "BEGIN; LOCK TABLE responses IN EXCLUSIVE MODE";
    other_client.batch_execute(lock).await.unwrap();
    let started = Instant::now();
    assert!(
        given
            .conversations
            .store(record("a", "during"))
            .await
            .is_err()
    );
    assert!(started.elapsed() < SETTINGS.deadline * 2);
    assert!(given.has("a", "before").await, "a lock does not stop reads");
    other_client.batch_execute("ROLLBACK").await.unwrap();
    until_stored(&given, "after").await;
    assert!(given.has("a", "after").await);
}

/// Only the transaction that stores turns `synchronous_commit` off.
#[tokio::test]
async fn storing_does_not_wait_for_the_disk() {
    let address = new_database(PostgresServer::shared());
    let connected = address.connect().await.unwrap();
    let store = "SELECT store_response('r', 'a', '', '', NULL, NULL, 1000, 100, 1000),
                        current_setting('synchronous_commit')";
    let row = connected.query_typed_one(store, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (true, "off"));
    let setting = "SELECT current_setting('synchronous_commit')";
    let row = connected.query_typed_one(setting, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "on");
}
