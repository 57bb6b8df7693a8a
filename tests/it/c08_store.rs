//! §7 and §8.2: calls that cannot be counted or charged do not start, and a restart loses nothing.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, LedgerView, RawConnection, TestGateway,
    bodies::hello_with,
    gateway::{hello, until},
    raw::chat_request,
    stores::files_only,
    turns::{CONVERT, Turn},
    upstream::{chunk, completion, usage_chunk},
};

const MODEL: &str = "svc-standard";

/// Locks the database as another process until the connection is dropped.
fn lock(gateway: &TestGateway) -> rusqlite::Connection {
    let stranger = rusqlite::Connection::open(gateway.data.path().join("tollgate.db")).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    stranger
}

async fn balance(gateway: &TestGateway) -> Value {
    let path = format!("/operator/accounts/{}", gateway.account_id);
    let account = gateway.operate(Method::GET, &path, None).await;
    assert_eq!(account.assert_ok()["held"], "0.000000");
    account.body["balance"].clone()
}

async fn until_ready(gateway: &TestGateway) {
    for _ in 0..500 {
        if gateway.get("/health").await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not recover");
}

async fn until_unavailable(gateway: &TestGateway) {
    for _ in 0..500 {
        if gateway.get("/health").await.status == 503 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the gateway did not notice");
}

fn assert_no_credit_store(answer: &crate::support::Answer) {
    let code = Some("credit_reservation_unavailable");
    answer.assert_error(503, "server_error", code, None);
    assert_eq!(answer.headers["retry-after"], "1");
}

#[tokio::test]
async fn an_answer_that_cannot_be_charged_is_withheld_and_no_other_call_is_begun() {
    if files_only("it locks the database's file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let stranger = lock(&gateway);
    assert_no_credit_store(&gateway.chat(&hello(MODEL)).await);
    assert_eq!(
        gateway.upstream.calls(),
        1,
        "the fault was not known before"
    );
    assert_no_credit_store(&gateway.chat(&hello(MODEL)).await);
    let stream = hello_with(MODEL, json!({ "stream": true }));
    assert_no_credit_store(&gateway.chat(&stream).await);
    assert_eq!(gateway.upstream.calls(), 1, "now every gateway knows");
    assert_eq!(gateway.get("/health").await.status, 503);
    assert_eq!(gateway.get("/health/live").await.status, 200);
    assert_eq!(gateway.get("/v1/models").await.status, 200);
    let grant = format!("/operator/accounts/{}/grants", gateway.account_id);
    let amount = Some(json!({ "amount": "1" }));
    let refused = gateway.operate(Method::POST, &grant, amount).await;
    refused.assert_error(503, "server_error", Some("store_unavailable"), None);
    assert_eq!(balance(&gateway).await, "1000.000000");
    drop(stranger);
    until_ready(&gateway).await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(balance(&gateway).await, "999.999951", "11 in, 3 out, once");
}

/// Otherwise charges would go to a deleted file.
#[tokio::test]
async fn a_missing_database_file_is_reported_and_no_call_starts_until_it_is_back() {
    if files_only("it moves the database's file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let path = gateway.data.path().join("tollgate.db");
    let away = gateway.data.path().join("away.db");
    let gone = "store unavailable: the database file was moved or deleted";
    let linked = "store unavailable: the database file has a second name (hard link)";
    let version = env!("CARGO_PKG_VERSION");
    for (status, there) in [(gone, false), (linked, true)] {
        if there {
            std::fs::hard_link(&path, &away).unwrap();
        } else {
            std::fs::rename(&path, &away).unwrap();
        }
        until_unavailable(&gateway).await;
        let health = gateway.get("/health").await.body;
        let expected = json!({ "status": status, "service": "tollgate", "version": version });
        assert_eq!(health, expected);
        assert_no_credit_store(&gateway.chat(&hello(MODEL)).await);
        if there {
            std::fs::remove_file(&away).unwrap();
        } else {
            std::fs::rename(&away, &path).unwrap();
        }
        until_ready(&gateway).await;
        gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    assert_eq!(gateway.upstream.calls(), 2);
    assert_eq!(balance(&gateway).await, "999.999902");
}

/// The lock is released while the charge is being retried: callers notice nothing.
#[tokio::test]
async fn a_charge_that_succeeds_on_retry_is_charged() {
    if files_only("it locks the database's file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let stranger = lock(&gateway);
    let letting_go = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(600)).await;
        drop(stranger);
    });
    gateway.chat(&hello(MODEL)).await.assert_ok();
    letting_go.await.unwrap();
    assert_eq!(balance(&gateway).await, "999.999951");
}

/// A delivered stream cannot be withheld: its charge stays pending until it is written.
#[tokio::test]
async fn a_stream_that_cannot_be_charged_ends_and_is_charged_later() {
    if files_only("it locks the database's file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let chunks = [
        chunk(json!({ "content": "Hi" }), Some("stop")),
        usage_chunk(100, 10),
    ];
    gateway.upstream.answer_chunks(&chunks);
    let stranger = lock(&gateway);
    gateway.stream(&hello(MODEL)).await.assert_complete(MODEL);
    // Longer than one retry takes, so that retries must continue.
    tokio::time::sleep(Duration::from_millis(700)).await;
    drop(stranger);
    let mut rows = Value::Null;
    for _ in 0..500 {
        let usage = format!("/operator/accounts/{}/usage", gateway.account_id);
        rows = gateway.operate(Method::GET, &usage, None).await.body["data"].clone();
        if rows != json!([]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!(rows[0]["cost"], "0.000290");
    until_ready(&gateway).await;
    assert_eq!(balance(&gateway).await, "999.999710");
}

/// The client has left; the usage of its call is charged all the same.
#[tokio::test]
async fn the_call_of_a_client_that_left_is_charged_later() {
    if files_only("it locks the database's file") {
        return;
    }
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    let turn = Turn::calls(&[CONVERT]).after(&gate);
    gateway.upstream.converse([turn]);
    let mut connection = RawConnection::open(gateway.public).await;
    let body = hello_with(MODEL, json!({ "stream": true }));
    connection
        .send(chat_request(&customer.key, "", &body))
        .await;
    until("the provider gets the request", || {
        gateway.upstream.calls() == 1
    })
    .await;
    connection.hang_up().await;
    let stranger = lock(&gateway);
    gate.open();
    let spool = gateway.data.path().join("spool/charges-1.spool");
    let is_spooled = || std::fs::read(&spool).is_ok_and(|bytes| bytes[0] == b'1');
    until("its charge is in the spool", is_spooled).await;
    drop(stranger);
    until("it is charged", || !is_spooled()).await;
    until_ready(&gateway).await;
    assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(1));
}

#[tokio::test]
async fn the_window_survives_a_restart() {
    let gateway = TestGateway::start().await;
    let limits = json!({ "model": MODEL, "rpm": 5, "tpm": 1000 });
    gateway
        .operate(Method::PUT, "/operator/limits", Some(limits))
        .await
        .assert_ok();
    let mut answer = completion("Hi");
    answer["usage"] = json!({ "prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100 });
    gateway.upstream.answer_json(200, &answer);
    let small = json!({ "max_tokens": 200, "tool_execution": "passthrough" });
    let body = hello_with(MODEL, small);
    gateway.chat(&body).await.assert_ok();
    gateway.chat(&body).await.assert_ok();
    gateway.upstream.answer(500, "text/plain", "no");
    assert_eq!(
        gateway.chat(&body).await.status,
        502,
        "it counts, and used nothing"
    );
    let key = gateway.key.clone();
    let data = gateway.stop().await;
    let gateway = TestGateway::start_in(data, "").await;
    gateway.upstream.answer_json(200, &answer);
    let never_fits = hello_with(MODEL, json!({ "max_tokens": 990 }));
    let left = gateway.chat_as(&key, &never_fits).await;
    left.assert_error(429, "rate_limit_exceeded", Some("tpm_exceeded"), None);
    assert_eq!(left.headers["x-ratelimit-remaining"], "2");
    assert_eq!(left.headers["x-ratelimit-remaining-tokens"], "800");
    gateway.chat_as(&key, &body).await.assert_ok();
    gateway.chat_as(&key, &body).await.assert_ok();
    let full = gateway.chat_as(&key, &body).await;
    full.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
    let wait: u64 = full.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
}

/// Data files are readable by their owner only.
#[tokio::test]
async fn files_on_disk_are_private() {
    if files_only("nothing lies on the disk otherwise") {
        return;
    }
    let gateway = TestGateway::start().await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let mut seen = 0;
    for folder in [
        gateway.data.path().to_owned(),
        gateway.data.path().join("spool"),
    ] {
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let metadata = file.metadata().unwrap();
            let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode, expected, "{:?}", file.file_name());
            seen += 1;
        }
    }
    assert!(
        seen >= 6,
        "the database, its lock, the window journal and the spool"
    );
}

/// Calls do not need the portal. A start does (`process_check`).
#[tokio::test]
async fn a_portal_file_that_is_damaged_stops_no_call() {
    if files_only("it damages the portal's file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let folder = gateway.data.path();
    for file in ["tollgate.portal.db", "tollgate.portal.db-wal"] {
        std::fs::write(folder.join(file), "garbage".repeat(999)).unwrap();
    }
    gateway.get("/health").await.assert_ok();
    gateway.chat(&hello(MODEL)).await.assert_ok();
}
