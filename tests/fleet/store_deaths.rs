//! Stores that are killed under load and restarted: calls that cannot be counted or charged do not start, refused
//! requests cost nothing, and everything recovers without intervention.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    gateways::{
        Account, Fleet, MODEL, Outcome, RECOVERY, Servers, Store, TIMEOUT, TOKEN, ask,
        assert_store_refusal, eventually, within,
    },
    load::{Addresses, Load},
    support::{Gate, gateway::hello, turns::Turn},
};

const ROUNDS: usize = 3;
/// No hold outlives a crash of PostgreSQL by more than this, counted from its restart.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);

async fn killed_under_load(store: Store) {
    let servers = Servers::start().await;
    let fleet = Fleet::on(servers.stores(), 2).await;
    let (account, idle) = (fleet.account("1000").await, fleet.account("1000").await);
    let load = Load::start(&fleet, &Addresses::of(&fleet), &account, 0);
    let mut probes = 0;
    for _ in 0..ROUNDS {
        load.until_more(30).await;
        servers.kill(store).await;
        fleet.until_health(503).await;
        load.pause().await;
        assert_refused(&fleet, &idle, store).await;
        load.resume();
        servers.start_again(store).await;
        let (answered, took) = fleet.until_answering(&idle).await;
        println!("{store:?} was in use again after {took:?}");
        assert!(took < RECOVERY, "{took:?}");
        probes += answered;
    }
    load.until_more(30).await;
    let tally = load.end().await;
    assert_eq!(tally.broken, 0, "the gateways were there all the time");
    println!(
        "{} answered, {} refused",
        tally.answered.len(),
        tally.refused
    );
    fleet.until_charged(0, &idle, probes, 0).await;
    // Every delivered response is charged and nothing else, even where a charge was pending at first.
    let answered = tally.answered.len();
    fleet.until_charged(1, &account, answered, 0).await;
    fleet.ends_clean().await;
}

/// Asserts that all requests are refused because the store is unavailable, and that none is sent to a provider.
async fn assert_refused(fleet: &Fleet, account: &Account, store: Store) {
    let calls = fleet.upstream.calls();
    let (kind, code) = store.refusal();
    for number in 0..20 {
        let refused = fleet.ask(number % 2, account).await;
        assert_store_refusal(refused.refusal(), kind, code);
    }
    for at in 0..2 {
        assert_eq!(fleet.health(at).await, (503, 200));
    }
    assert_eq!(
        fleet.upstream.calls(),
        calls,
        "no request is sent to the provider"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_under_load_and_comes_back() {
    killed_under_load(Store::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_killed_under_load_and_comes_back() {
    killed_under_load(Store::Postgres).await;
}

/// Both at once, as when a machine fails.
#[tokio::test(flavor = "multi_thread")]
async fn both_stores_are_killed_and_come_back_one_after_the_other() {
    let servers = Servers::start().await;
    let fleet = Fleet::on(servers.stores(), 2).await;
    let account = fleet.account("1000").await;
    let (warm, _) = fleet.until_answering(&account).await;
    servers.kill(Store::Postgres).await;
    servers.kill(Store::Redis).await;
    fleet.until_health(503).await;
    servers.start_again(Store::Redis).await;
    assert_eq!(
        fleet.health(0).await,
        (503, 200),
        "one of two is not enough"
    );
    servers.start_again(Store::Postgres).await;
    let (answered, took) = fleet.until_answering(&account).await;
    assert!(took < RECOVERY, "{took:?}");
    fleet.until_charged(0, &account, warm + answered, 0).await;
    fleet.ends_clean().await;
}

/// Everything that needs the database says once that it is away, and sums up when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_logged_at_its_ends_alone() {
    let servers = Servers::start().await;
    let fleet = Fleet::on(servers.stores(), 1).await;
    let idle = fleet.account("10").await;
    servers.kill(Store::Postgres).await;
    fleet.until_health(503).await;
    let early = warnings(&fleet);
    // Long enough for many tries of everything that is tried again, while customers and operators go on.
    let until = std::time::Instant::now() + Duration::from_secs(6);
    while std::time::Instant::now() < until {
        refused_pages(&fleet, &idle).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let late = warnings(&fleet);
    assert!(!early.is_empty(), "the outage is in the log");
    assert!(
        late.len() <= early.len() + 4,
        "{} lines at first, then {late:#?}",
        early.len()
    );
    assert!(late.len() <= 12, "{late:#?}");
    let messages: Vec<_> = late.iter().map(|line| &line["message"]).collect();
    for (at, message) in messages.iter().enumerate() {
        let is_first = messages.iter().position(|other| other == message) == Some(at);
        assert!(is_first, "{message} is there again: {late:#?}");
    }
    servers.start_again(Store::Postgres).await;
    fleet.until_answering(&idle).await;
    let summed_up = async || {
        let log = fleet.gateways[0].process.stderr();
        let is_over = |line: &Value| {
            let message = line["message"].as_str().unwrap_or_default();
            let what = message.strip_suffix(" failed; it is retried until it works");
            what.is_none_or(|what| log.contains(&format!("{what} works again")))
        };
        log.contains("is reachable again") && late.iter().all(is_over)
    };
    eventually("each outage is summed up", summed_up).await;
    fleet.ends_clean().await;
}

/// Asserts that the first gateway's portal and operator API refuse a sign-in, a read and a change for lack of the database.
async fn refused_pages(fleet: &Fleet, account: &Account) {
    let (client, gateway) = (&fleet.client, &fleet.gateways[0]);
    let path = account.path();
    let operator = |method, path: &str| {
        let request = client.request(method, format!("http://{}{path}", gateway.operator));
        request.bearer_auth(TOKEN)
    };
    let grant = json!({ "amount": "1", "reason": "a gift" });
    let page = format!("http://{}/portal/keys", gateway.public);
    let session = "tollgate-session=".to_owned() + &"a".repeat(43);
    for request in [
        operator(Method::GET, &path),
        operator(Method::POST, &format!("{path}/grants")).json(&grant),
        client.get(page).header("cookie", session),
    ] {
        let response = request.timeout(TIMEOUT).send().await.unwrap();
        assert_eq!(response.status(), 503, "{}", response.url());
    }
}

/// The lines of warnings and errors in the first gateway's log, without those of requests.
fn warnings(fleet: &Fleet) -> Vec<Value> {
    let log = fleet.gateways[0].process.stderr();
    let lines = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("a log line is JSON"));
    let lines = lines.filter(|line: &Value| line["level"] == "WARN" || line["level"] == "ERROR");
    lines.collect()
}

/// Releases are committed without waiting for the disk. This server writes only full pages of its WAL by itself, and
/// these few releases do not fill one.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_failed_while_postgres_was_killed_are_released_after_its_restart() {
    const CALLS: usize = 2;
    let settings = &["wal_writer_delay=10s", "full_page_writes=off"];
    let servers = Servers::start_with(settings).await;
    let fleet = Fleet::on(servers.stores(), 1).await;
    let account = fleet.account("10").await;
    let gate = Gate::default();
    fleet.upstream.converse([Turn::fails(400).after(&gate)]);
    let running: Vec<_> = (0..CALLS)
        .map(|_| {
            let (client, public) = (fleet.client.clone(), fleet.gateways[0].public);
            let key = account.key.clone();
            tokio::spawn(async move { ask(&client, public, &key, &hello(MODEL)).await })
        })
        .collect();
    let reached = async || fleet.upstream.calls() == CALLS;
    within(TIMEOUT, "all are running", reached).await;
    // Operator requests wait for the disk, so the holds before them are durable now.
    fleet.account("1").await;
    gate.open();
    for outcome in running {
        assert!(matches!(outcome.await.unwrap(), Outcome::Refused(_)));
    }
    let released = async || fleet.spent_and_held(0, &account).await == (0, 0);
    eventually("all are released", released).await;
    servers.kill(Store::Postgres).await;
    servers.start_again(Store::Postgres).await;
    fleet.until_health(200).await;
    let took = within(RELEASED_WITHIN, "all are released again", released).await;
    println!("released {took:?} after the server was back");
    fleet.ends_clean().await;
}

/// Windows are restored after Redis has lost its data; they do not start empty.
#[tokio::test(flavor = "multi_thread")]
async fn the_window_survives_a_kill_of_redis() {
    let servers = Servers::start().await;
    let fleet = Fleet::on(servers.stores(), 2).await;
    let (account, other) = (fleet.account("10").await, fleet.account("10").await);
    let limit = json!({ "account": account.id, "model": MODEL, "rpm": 20 });
    let limits = "/operator/limits";
    fleet.operate(0, Method::PUT, limits, limit).await;
    let started = std::time::Instant::now();
    for number in 0..12 {
        fleet.ask(number % 2, &account).await.assert_answered();
    }
    fleet.until_charged(0, &account, 12, 0).await;
    servers.kill(Store::Redis).await;
    servers.start_again(Store::Redis).await;
    fleet.until_answering(&other).await;
    let mut answered = 12;
    for number in 0..30 {
        match fleet.ask(number % 2, &account).await {
            Outcome::Answered => answered += 1,
            refused => {
                let code = Some("rpm_exceeded");
                let refused = refused.refusal();
                refused.assert_error(429, "rate_limit_exceeded", code, None);
            }
        }
    }
    assert!(
        started.elapsed().as_secs() < 60,
        "the window has not passed"
    );
    assert_eq!(answered, 20);
    fleet.until_charged(1, &account, 20, 0).await;
    fleet.ends_clean().await;
}
