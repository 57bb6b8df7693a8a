//! Faults of the PostgreSQL server, and several gateways on one database.

use std::time::{Duration, Instant};

use super::*;
use crate::{backoffice::DEADLINE, db::testing::bouncer::Bouncer};

impl Given {
    fn address(&self) -> &Address {
        let Place::Database(address) = &self.place else {
            unreachable!("it was opened as a database")
        };
        address
    }

    /// The name of the database.
    fn name(&self) -> String {
        let address = self.address().to_string();
        address.rsplit_once('/').unwrap().1.to_owned()
    }
}

async fn until_added(backoffice: &Backoffice, email: &str) -> Person {
    let started = Instant::now();
    loop {
        match backoffice.add_person(new_person(email)).await {
            Ok(person) => return person,
            Err(error) => assert!(started.elapsed() < TIMEOUT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_gateways_create_the_tables_once() {
    for _ in 0..3 {
        let given = Given::postgres();
        let tasks = (0..10).map(|number| {
            let backoffice = given.place.open();
            tokio::spawn(async move {
                backoffice
                    .add_person(new_person(&format!("{number}@example.com")))
                    .await
            })
        });
        for one in tasks.collect::<Vec<_>>() {
            one.await.unwrap().unwrap();
        }
        assert_eq!(
            given.count("SELECT count(*) FROM backoffice_people").await,
            10
        );
        assert_eq!(
            given.count("SELECT count(*) FROM backoffice_schema").await,
            1
        );
        assert_eq!(
            given.count("SELECT version FROM backoffice_schema").await,
            3
        );
    }
}

#[tokio::test]
async fn gateways_share_the_store() {
    let one = Given::postgres();
    let other = one.place.open();
    let ada = one.person("ada@example.com").await;
    assert_eq!(other.person(&ada.id).await.unwrap().as_ref(), Some(&ada));
    let digest = one.session(1, &ada, NOW).await;
    let found = other.session(&digest, NOW).await.unwrap().unwrap();
    assert_eq!(found.person, Some(ada));
    other.end_session(&digest).await.unwrap();
    assert!(!one.is_in(&digest).await);
}

#[tokio::test]
async fn a_killed_server_is_unavailable_until_it_is_back() {
    let server = PostgresServer::own();
    let given = Given::on(&server);
    let ada = given.person("ada@example.com").await;
    let digest = given.session(1, &ada, NOW).await;
    server.kill();
    for _ in 0..3 {
        let started = Instant::now();
        let added = given
            .backoffice
            .add_person(new_person("eve@example.com"))
            .await;
        assert!(is_unavailable(&added), "{added:?}");
        let found = given.backoffice.session(&digest, NOW).await;
        assert!(is_unavailable(&found), "{found:?}");
        assert!(started.elapsed() < DEADLINE);
    }
    server.start();
    until_added(&given.backoffice, "grace@example.com").await;
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
    assert!(given.is_in(&digest).await);
    let eve = given.backoffice.person_by_email("eve@example.com").await;
    assert_eq!(eve.unwrap(), None);
}

/// A restart of the idle server or a terminated connection fails no operation.
#[tokio::test]
async fn a_closed_connection_is_replaced() {
    let server = PostgresServer::own();
    let given = Given::on(&server);
    let ada = given.person("ada@example.com").await;
    let digest = given.session(1, &ada, NOW).await;
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}'",
        given.name()
    );
    for round in 0..5 {
        assert_ne!(server.psql("postgres", &end), "0");
        given
            .backoffice
            .set_password(&ada.id, &round.to_string(), Some(&digest), NOW)
            .await
            .unwrap();
        assert_ne!(server.psql("postgres", &end), "0");
        assert!(given.is_in(&digest).await);
        assert_ne!(server.psql("postgres", &end), "0");
        let action = actions::action(&round.to_string(), "acct_1");
        given.backoffice.record(&action).await.unwrap();
    }
    server.kill();
    server.start();
    let page = given.backoffice.actions_page(None, None, 10).await.unwrap();
    assert_eq!(page.len(), 5, "each once");
}

#[tokio::test]
async fn a_hanging_server_times_out() {
    let server = PostgresServer::own();
    let given = Given::on(&server);
    let ada = given.person("ada@example.com").await;
    let backoffice = Backoffice::shared(given.address().clone());
    assert_eq!(
        backoffice.person(&ada.id).await.unwrap().as_ref(),
        Some(&ada)
    );
    server.pause();
    for _ in 0..2 {
        let started = Instant::now();
        let found = backoffice.person(&ada.id).await;
        assert!(is_unavailable(&found), "{found:?}");
        assert!(started.elapsed() < DEADLINE + Duration::from_secs(1));
    }
    server.resume();
    until_added(&backoffice, "grace@example.com").await;
    assert_eq!(backoffice.person(&ada.id).await.unwrap(), Some(ada));
}

/// Many operations on a server that hangs open few connections and do not pile up.
#[tokio::test]
async fn concurrent_operations_share_few_connections() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let address = Address::parse(&format!("postgres://u@{at}/db")).unwrap();
    let backoffice = Arc::new(Backoffice::shared(address));
    let started = Instant::now();
    let tasks = (0..50).map(|_| {
        let backoffice = backoffice.clone();
        tokio::spawn(async move { backoffice.person("person_1").await })
    });
    for one in tasks.collect::<Vec<_>>() {
        let found = one.await.unwrap();
        assert!(is_unavailable(&found), "{found:?}");
    }
    assert!(started.elapsed() < DEADLINE * 2);
    let mut connections = Vec::new();
    while let Ok(accepted) = tokio::time::timeout(Duration::from_millis(50), silent.accept()).await
    {
        connections.push(accepted.unwrap().0);
    }
    assert!(connections.len() <= 4, "{} were opened", connections.len());
}

/// The server's statement timeout ends transactions whose callers have timed out.
#[tokio::test]
async fn a_locked_table_times_out_and_is_used_again() {
    let given = Given::postgres();
    let ada = given.person("ada@example.com").await;
    let backoffice = Backoffice::shared(given.address().clone());
    let other_client = given.address().connect().await.unwrap();
    other_client
        .batch_execute("BEGIN; LOCK TABLE backoffice_people IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    for _ in 0..3 {
        let started = Instant::now();
        let found = backoffice.person(&ada.id).await;
        assert!(is_unavailable(&found), "{found:?}");
        assert!(started.elapsed() < DEADLINE + Duration::from_secs(1));
    }
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        given.name()
    );
    let waiting = PostgresServer::shared().psql("postgres", &waiting);
    assert_eq!(waiting, "0", "no transaction waits for the lock");
    other_client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(backoffice.person(&ada.id).await.unwrap(), Some(ada));
}

/// An operation that is dropped in the middle leaves no partial change and no open transaction.
#[tokio::test]
async fn a_dropped_operation_is_atomic() {
    let given = Given::postgres();
    for number in 0..40 {
        let person = given.person(&format!("{number}@example.com")).await;
        given.session(number, &person, NOW).await;
        let changing = given.backoffice.set_password(&person.id, "new", None, NOW);
        let soon = Duration::from_micros(u64::from(number) * 100);
        let _ = tokio::time::timeout(soon, changing).await;
    }
    // The last ones may still be running; at any time each is done completely or not at all.
    let partial = "SELECT count(*) FROM backoffice_people p
         WHERE (p.password = 'new')
             = EXISTS (SELECT 1 FROM backoffice_sessions s WHERE s.person_id = p.id)";
    let open = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let started = Instant::now();
    loop {
        assert_eq!(given.count(partial).await, 0);
        if given.count(open).await == 0 {
            break;
        }
        assert!(started.elapsed() < TIMEOUT, "a transaction is still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_operation_is_atomic() {
    let given = Given::postgres();
    let ada = given.person("ada@example.com").await;
    let statements = vec![
        statement("UPDATE backoffice_people SET name = $1", ["Eve".into()]),
        statement("UPDATE backoffice_nowhere SET name = $1", ["Eve".into()]),
    ];
    assert!(is_unavailable(&given.backoffice.run(statements).await));
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
}

#[tokio::test]
async fn dropped_tables_are_created_again() {
    let given = Given::postgres();
    given.person("ada@example.com").await;
    let tables = "DROP SCHEMA public CASCADE; CREATE SCHEMA public";
    PostgresServer::shared().psql(&given.name(), tables);
    let found = given.backoffice.person_by_email("ada@example.com").await;
    assert_eq!(found.unwrap(), None);
    given.person("ada@example.com").await;
}

/// `oldest` is the oldest gateway version that can use the tables of a newer one.
#[tokio::test]
async fn tables_of_another_version_are_refused_unless_compatible() {
    let given = Given::postgres();
    let ada = given.person("ada@example.com").await;
    given
        .run("UPDATE backoffice_schema SET version = 7, oldest = 1")
        .await;
    let mut given = given.restart();
    assert_eq!(given.backoffice.person(&ada.id).await.unwrap(), Some(ada));
    for (version, oldest) in [(7, 7), (0, 0)] {
        let change = format!("UPDATE backoffice_schema SET version = {version}, oldest = {oldest}");
        PostgresServer::shared().psql(&given.name(), &change);
        given = given.restart();
        let refused = given.backoffice.prune(NOW).await.unwrap_err().to_string();
        let reason = format!(
            "its tables have schema version {version}, and this tollgate uses version 3; run the version that made \
             them, or use another database: see Upgrade in docs/OPERATIONS.md"
        );
        assert!(refused.ends_with(&reason), "{refused}");
        let found = PostgresServer::shared().psql(&given.name(), "SELECT * FROM backoffice_schema");
        assert_eq!(found, format!("{version}|{oldest}"), "unchanged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_works_through_pgbouncer() {
    let direct = Given::postgres();
    let bouncer = Bouncer::start(PostgresServer::shared());
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        bouncer.port(),
        direct.name()
    );
    let given = Given::at(Place::Database(Address::parse(&url).unwrap()));
    let tasks = (0..12_u8).map(|number| {
        let backoffice = given.backoffice.clone();
        tokio::spawn(async move {
            let person = backoffice
                .add_person(new_person(&format!("{number}@example.com")))
                .await
                .unwrap();
            let new = new_session(number, Some(&person), NOW);
            let digest = new.digest;
            backoffice.begin_session(new).await.unwrap();
            backoffice
                .set_password(&person.id, "new", Some(&digest), NOW)
                .await
                .unwrap();
            let found = backoffice.session(&digest, NOW).await.unwrap().unwrap();
            assert_eq!(found.person.unwrap().id, person.id);
            backoffice
                .record(&actions::action("sign-up", &person.id))
                .await
                .unwrap();
        })
    });
    for one in tasks.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let page = direct
        .backoffice
        .actions_page(None, None, 100)
        .await
        .unwrap();
    assert_eq!(page.len(), 12);
}
