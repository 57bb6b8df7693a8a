//! Stores that are reachable but unusable: slow, full, or read-only. Callers are refused soon and do not pile up.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::{
    gateways::{
        Account, Fleet, Outcome, RECOVERY, Servers, Store, Stores, TIMEOUT, assert_store_refusal,
        eventually, run_blocking, store_refusal_is_wrong, within,
    },
    support::{
        FaultProxy, Gate, PostgresServer, RedisServer, proxy::Mode, stores::connect, turns::Turn,
    },
};

const CLIENTS: usize = 500;
/// A store operation times out after half a second; this bound also allows for five hundred requests on a busy
/// machine.
const SOON: Duration = Duration::from_secs(10);

/// Asserts that five hundred simultaneous requests all get a response within the bound, and that the store is used
/// again as soon as it responds.
async fn slow(fleet: &Fleet, account: &Account, proxy: &FaultProxy, late: Duration, store: Store) {
    let (mut answered, _) = fleet.until_answering(account).await;
    let calls = fleet.upstream.calls();
    proxy.set(Mode::Delay(late));
    let started = Instant::now();
    let requests = (0..CLIENTS).map(|_| fleet.ask(0, account));
    let (kind, code) = store.refusal();
    for outcome in join_all(requests).await {
        assert_store_refusal(outcome.refusal(), kind, code);
    }
    let took = started.elapsed();
    println!("{CLIENTS} clients of a slow {store:?} got responses within {took:?}");
    assert!(took < SOON, "{took:?}");
    assert_eq!(fleet.upstream.calls(), calls, "none of it goes anywhere");
    fleet.until_health(503).await;
    proxy.set(Mode::Pass);
    // Slow connections are dropped; recovery does not wait for them.
    let (more, took) = fleet.until_answering(account).await;
    assert!(took < RECOVERY + late, "{took:?}");
    answered += more;
    fleet.until_charged(0, account, answered, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_postgres_is_reported_soon_and_requests_do_not_pile_up() {
    let postgres = PostgresServer::shared();
    let proxy = FaultProxy::start(([127, 0, 0, 1], postgres.port()).into());
    let stores = Stores::new().postgres_by(proxy.address);
    let fleet = Fleet::on(stores, 1).await;
    let account = fleet.account("1000").await;
    let late = Duration::from_secs(2);
    slow(&fleet, &account, &proxy, late, Store::Postgres).await;
    fleet.ends_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_redis_is_reported_soon_and_requests_do_not_pile_up() {
    let proxy = FaultProxy::start(RedisServer::shared().address());
    let stores = Stores::new().redis_by(proxy.address);
    let fleet = Fleet::on(stores, 1).await;
    let account = fleet.account("1000").await;
    let late = Duration::from_secs(1);
    slow(&fleet, &account, &proxy, late, Store::Redis).await;
    fleet.ends_clean().await;
}

/// Connections that stay open and never carry another byte, so that no error is reported.
#[tokio::test(flavor = "multi_thread")]
async fn silent_stores_are_abandoned_and_reconnected() {
    for store in [Store::Postgres, Store::Redis] {
        let stores = Stores::new();
        let (server, by): (_, fn(&Stores, _) -> Stores) = match store {
            Store::Postgres => {
                let port = PostgresServer::shared().port();
                (([127, 0, 0, 1], port).into(), Stores::postgres_by)
            }
            Store::Redis => (RedisServer::shared().address(), Stores::redis_by),
        };
        let proxy = FaultProxy::start(server);
        let fleet = Fleet::on(by(&stores, proxy.address), 1).await;
        let account = fleet.account("10").await;
        let (mut answered, _) = fleet.until_answering(&account).await;
        for mode in [Mode::Blackhole, Mode::Refuse, Mode::Reset] {
            let calls = fleet.upstream.calls();
            proxy.set(mode);
            let (kind, code) = store.refusal();
            for _ in 0..3 {
                let refused = fleet.ask(0, &account).await;
                assert_store_refusal(refused.refusal(), kind, code);
            }
            fleet.until_health(503).await;
            assert_eq!(fleet.upstream.calls(), calls, "{store:?} {mode:?}");
            proxy.set(Mode::Pass);
            let (more, took) = fleet.until_answering(&account).await;
            println!("{store:?} after {mode:?}: {took:?}");
            assert!(took < RECOVERY, "{store:?} {mode:?}: {took:?}");
            answered += more;
        }
        fleet.until_charged(0, &account, answered, 0).await;
        fleet.ends_clean().await;
    }
}

/// Other clients take every connection of PostgreSQL, including those of the gateways.
#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_connections_everything_is_refused_until_one_is_free() {
    let settings = ["max_connections=40", "superuser_reserved_connections=0"];
    let postgres = run_blocking(move || PostgresServer::own_with(&settings)).await;
    let stores = Stores::on(&postgres, RedisServer::shared());
    let fleet = Fleet::on(stores, 2).await;
    let account = fleet.account("10").await;
    let (answered, _) = fleet.until_answering(&account).await;
    let url = postgres.url("postgres");
    let first = connect(&url).await;
    let mut other_clients = Vec::new();
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < TIMEOUT, "there are still connections");
        while let Ok((client, connection)) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await
        {
            other_clients.push((client, tokio::spawn(connection)));
        }
        // No connection is left: gateways that have lost theirs cannot open a new one.
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE datname <> 'postgres' AND backend_type = 'client backend'";
        if first.query(sql, &[]).await.unwrap().is_empty() {
            break;
        }
    }
    // A request makes the gateway notice.
    for at in 0..2 {
        let _ = fleet.ask(at, &account).await;
    }
    fleet.until_health(503).await;
    let calls = fleet.upstream.calls();
    for at in 0..2 {
        let refused = fleet.ask(at, &account).await;
        let (kind, code) = Store::Postgres.refusal();
        assert_store_refusal(refused.refusal(), kind, code);
    }
    assert_eq!(fleet.upstream.calls(), calls);
    drop((first, other_clients));
    let (more, took) = fleet.until_answering(&account).await;
    println!("connections were in use again after {took:?}");
    assert!(took < RECOVERY, "{took:?}");
    let unsure = calls - answered;
    fleet
        .until_charged(0, &account, answered + more, unsure)
        .await;
    fleet.ends_clean().await;
}

/// As after a failover to a server that is still a replica. Calls that were at the provider by then cannot be
/// charged: their callers get an error, and they stay free.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_postgres_is_unavailable_until_it_accepts_writes() {
    let servers = Servers::start().await;
    let fleet = Fleet::on(servers.stores(), 2).await;
    let account = fleet.account("10").await;
    let (mut answered, _) = fleet.until_answering(&account).await;
    let database = connect(&servers.postgres.url("postgres")).await;
    let say = async |word: &str| {
        let changed = database.execute(word, &[]).await;
        changed.unwrap();
        let loaded = database.execute("SELECT pg_reload_conf()", &[]).await;
        loaded.unwrap();
    };
    let (writes_stopped, calls) = (Gate::default(), fleet.upstream.calls());
    let waits = Turn::says("Hi").after(&writes_stopped);
    fleet.upstream.converse([waits]);
    let caught = join_all((0..2).map(|at| fleet.ask(at, &account)));
    let stops = async {
        eventually("both are at the provider", async || {
            fleet.upstream.calls() == calls + 2
        })
        .await;
        fleet.upstream.converse([Turn::says("Hi")]);
        say("ALTER SYSTEM SET default_transaction_read_only = on").await;
        let before = until_refused(&fleet, &account).await;
        fleet.until_health(503).await;
        writes_stopped.open();
        before
    };
    let (caught, before) = tokio::join!(caught, stops);
    answered += before;
    for outcome in caught {
        assert_eq!(store_refusal_is_wrong(outcome.refusal()), None);
    }
    let calls = fleet.upstream.calls();
    for at in 0..2 {
        let refused = fleet.ask(at, &account).await;
        let (kind, code) = Store::Postgres.refusal();
        assert_store_refusal(refused.refusal(), kind, code);
    }
    assert_eq!(
        fleet.upstream.calls(),
        calls,
        "no request is sent to the provider"
    );
    say("ALTER SYSTEM RESET default_transaction_read_only").await;
    let (more, took) = fleet.until_answering(&account).await;
    println!("writes were taken again after {took:?}");
    assert!(took < RECOVERY, "{took:?}");
    fleet.until_charged(0, &account, answered + more, 0).await;
    fleet.ends_clean().await;
}

/// Number of requests that are still served until every gateway has refused one; a server applies new settings a
/// moment after it is signalled.
async fn until_refused(fleet: &Fleet, account: &Account) -> usize {
    let mut answered = 0;
    for at in 0..fleet.gateways.len() {
        loop {
            match fleet.ask(at, account).await {
                Outcome::Answered => answered += 1,
                Outcome::Refused(answer) => {
                    assert_eq!(store_refusal_is_wrong(&answer), None);
                    break;
                }
                Outcome::Broken(why) => panic!("{why}"),
            }
        }
    }
    answered
}

/// The ledger stays correct while other sessions lock its tables for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_lock_delays_or_refuses_calls_and_corrupts_nothing() {
    let stores = Stores::new();
    let fleet = Fleet::on(stores.clone(), 2).await;
    let account = fleet.account("10").await;
    let (mut answered, _) = fleet.until_answering(&account).await;
    let mut stranger = connect(&stores.postgres).await;
    for _ in 0..3 {
        let lock = stranger.transaction().await.unwrap();
        let taken = lock.query("SELECT id FROM accounts FOR UPDATE", &[]).await;
        assert!(!taken.unwrap().is_empty());
        let requests = join_all((0..20).map(|number| fleet.ask(number % 2, &account)));
        let release = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            lock.rollback().await.unwrap();
        };
        let (requests, ()) = tokio::join!(requests, release);
        for outcome in requests {
            match outcome {
                Outcome::Answered => answered += 1,
                Outcome::Refused(answer) => assert_eq!(store_refusal_is_wrong(&answer), None),
                Outcome::Broken(why) => panic!("{why}"),
            }
        }
        let paid = async || fleet.spent_and_held(1, &account).await.1 == 0;
        within(TIMEOUT, "nothing is held", paid).await;
    }
    fleet.until_charged(0, &account, answered, 0).await;
    fleet.ends_clean().await;
}
