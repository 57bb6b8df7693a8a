//! An import that is killed at any batch and run again copies everything once.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use reqwest::Method;
use serde_json::json;
use tollgate::base::failpoint::IMPORT_POINTS;

use crate::support::{
    PostgresServer, TestGateway,
    gateway::hello,
    imports::import_with,
    portal::Browser,
    responses::asking,
    stores::{connect, files_only},
};

const KILLS: u32 = 10;
/// Any seed must do.
const SEED: u64 = 20_261_118;

/// Every row of every table, in an order that does not depend on how they came there.
const ROWS: &str = "SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM";
const TABLES: [&str; 7] = [
    "accounts",
    "api_keys",
    "credit_grants",
    "calls",
    "usage_days",
    "backoffice_people",
    "responses",
];

async fn contents(database: &str) -> Vec<String> {
    let client = connect(database).await;
    let mut contents = Vec::new();
    for table in TABLES {
        let row = client.query_one(&format!("{ROWS} {table} t"), &[]).await;
        contents.push(row.unwrap().get(0));
    }
    contents
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_ten_times_copies_everything_once() {
    if files_only("it imports files") {
        return;
    }
    let gateway = TestGateway::start().await;
    for _ in 0..5 {
        let customer = gateway.customer().await;
        for _ in 0..6 {
            gateway
                .chat_as(&customer.key, &hello("svc-standard"))
                .await
                .assert_ok();
        }
    }
    for _ in 0..3 {
        gateway.response_id(&asking(json!({}))).await;
        Browser::signed_in(&gateway).await;
    }
    let unlisted = json!({ "unlisted": true });
    let path = "/operator/models/svc-basic";
    gateway
        .operate(Method::PUT, path, Some(unlisted))
        .await
        .assert_ok();
    let folder = gateway.stop().await;
    let server = PostgresServer::shared();
    let at_once = server.database();
    import_with(folder.path(), &at_once, &[], &[]).assert_ok();

    let mut random = StdRng::seed_from_u64(SEED);
    let database = server.database();
    for kill in 1..=KILLS {
        let point = IMPORT_POINTS[random.random_range(0..IMPORT_POINTS.len())];
        let die_at = format!("{point}:{}", random.random_range(1..=6));
        let rows = random.random_range(1..=3).to_string();
        let environment = [("TOLLGATE_DIE_AT", &*die_at)];
        let killed = import_with(folder.path(), &database, &["--batch", &rows], &environment);
        let problem = format!("kill {kill} at {die_at}: {}", killed.stderr);
        assert_eq!(killed.code, None, "{problem}");
    }
    let copied = connect(&database).await;
    let count = "SELECT sum(copied_rows)::bigint FROM import_tables";
    let copied: i64 = copied.query_one(count, &[]).await.unwrap().get(0);
    assert!(copied > 10, "killed in the middle, after {copied} rows");
    let last = import_with(folder.path(), &database, &["--batch", "3"], &[]);
    last.assert_ok();
    let told = format!("continuing an import; rows copied before: {copied}\n");
    assert!(last.stderr.contains(&told), "{}", last.stderr);
    assert_eq!(contents(&database).await, contents(&at_once).await);
}
