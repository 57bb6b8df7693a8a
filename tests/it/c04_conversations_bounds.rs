//! §8.4 and §7 for stored responses: how many are kept, and what happens when storage fails.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, LedgerView, Plan, TestGateway,
    gateway::answer,
    ledger_view::MODEL as PRICED,
    responses::{PATH, asking, assert_not_found, two_words},
    stores::{files_only, responses},
    upstream::completion,
};

fn file(gateway: &TestGateway) -> PathBuf {
    gateway.data.path().join("tollgate.responses.db")
}

async fn shown_as(gateway: &TestGateway, key: &str, id: &str) -> Answer {
    let request = gateway.client.get(gateway.url(&format!("{PATH}/{id}")));
    answer(request.bearer_auth(key)).await
}

async fn id_as(gateway: &TestGateway, key: &str) -> String {
    let answer = gateway.respond_as(key, &asking(json!({}))).await;
    answer.assert_ok()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_hundred_and_first_response_takes_the_place_of_the_first() {
    let gateway = TestGateway::start().await;
    let (_, other) = gateway.account(Plan::MAX).await;
    let theirs = id_as(&gateway, &other).await;
    let mut ids = Vec::new();
    for _ in 0..101 {
        ids.push(gateway.response_id(&asking(json!({}))).await);
    }
    assert_not_found(&gateway.shown(&ids[0]).await);
    let next = asking(json!({ "previous_response_id": ids[0] }));
    assert_not_found(&gateway.respond(&next).await);
    for id in [&ids[1], &ids[50], &ids[100]] {
        gateway.shown(id).await.assert_ok();
    }
    shown_as(&gateway, &other, &theirs).await.assert_ok();
    assert_eq!(responses(gateway.data.path()).await, (101, 100));
}

#[tokio::test]
async fn a_crowd_never_stores_more_than_each_account_may() {
    let gateway = TestGateway::start().await;
    let mut keys = Vec::new();
    for _ in 0..3 {
        keys.push(gateway.account(Plan::MAX).await.1);
    }
    for _ in 0..8 {
        let requests = keys
            .iter()
            .flat_map(|key| (0..20).map(|_| id_as(&gateway, key)));
        let ids = join_all(requests).await;
        assert_eq!(ids.len(), 60);
        let (in_all, of_one) = responses(gateway.data.path()).await;
        assert!(in_all <= 300 && of_one <= 100, "{in_all} {of_one}");
    }
    assert_eq!(responses(gateway.data.path()).await, (300, 100));
    // The latest response is always available.
    let last = id_as(&gateway, &keys[0]).await;
    shown_as(&gateway, &keys[0], &last).await.assert_ok();
}

#[tokio::test]
async fn a_too_large_conversation_is_answered_and_not_stored() {
    let gateway = TestGateway::start().await;
    let half = "x".repeat(130 << 10);
    let first = asking(json!({ "input": half }));
    let first = gateway.respond(&first).await;
    assert_eq!(first.assert_ok()["store"], true);
    let more = json!({ "input": half, "previous_response_id": first.body["id"] });
    let second = gateway.respond(&asking(more.clone())).await;
    assert_eq!(second.assert_ok()["store"], false);
    assert_eq!(second.body["status"], "completed");
    let id = second.body["id"].as_str().unwrap();
    assert_not_found(&gateway.shown(id).await);
    let third = asking(json!({ "previous_response_id": id }));
    assert_not_found(&gateway.respond(&third).await);
    // A stream reports this at its end.
    gateway.upstream.answer_chunks(&two_words());
    let streamed = gateway.events(&asking(more)).await.finished();
    assert_eq!(streamed["store"], false);
    assert_not_found(&gateway.shown(streamed["id"].as_str().unwrap()).await);
    // The response's text counts too.
    gateway
        .upstream
        .answer_json(200, &completion(&"x".repeat(256 << 10)));
    let large = gateway.respond(&asking(json!({}))).await;
    assert_eq!(large.assert_ok()["store"], false);
    // Earlier responses stay.
    let id = first.body["id"].as_str().unwrap();
    gateway.shown(id).await.assert_ok();
}

#[track_caller]
fn assert_unavailable(answer: &Answer) {
    answer.assert_error(503, "service_unavailable", None, None);
}

/// Storage that can be neither read nor written.
#[tokio::test]
async fn without_storage_only_what_needs_it_is_refused() {
    if files_only("it takes the responses' file away, and the credit's stays") {
        return;
    }
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let ask = async |more: Value| {
        let mut body = asking(more);
        body["model"] = PRICED.into();
        gateway.respond_as(&customer.key, &body).await
    };
    let kept = ask(json!({})).await;
    let id = kept.assert_ok()["id"].as_str().unwrap();
    let item = &kept.body["output"][0]["id"];
    // From now on the path is a directory, which cannot be opened as a file.
    let (file, aside) = (file(&gateway), gateway.data.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    let calls = gateway.upstream.calls();
    for more in [
        json!({ "previous_response_id": id }),
        json!({ "previous_response_id": id, "stream": true }),
        json!({ "previous_response_id": "resp_unknown" }),
        json!({ "input": [{ "type": "item_reference", "id": item }] }),
    ] {
        assert_unavailable(&ask(more).await);
    }
    for method in [Method::GET, Method::DELETE] {
        let request = gateway
            .client
            .request(method, gateway.url(&format!("{PATH}/{id}")));
        assert_unavailable(&answer(request.bearer_auth(&customer.key)).await);
    }
    assert_eq!(gateway.upstream.calls(), calls, "no provider got a request");
    assert_eq!(
        customer.ledger_view().await,
        LedgerView::charged(1),
        "and nothing reserved"
    );
    let unstored = ask(json!({})).await;
    assert_eq!(unstored.assert_ok()["store"], false);
    assert_eq!(
        ask(json!({ "store": false })).await.assert_ok()["store"],
        false
    );
    gateway.upstream.answer_chunks(&two_words());
    let stream = gateway.events(&asking(json!({}))).await.finished();
    assert_eq!(stream["store"], false);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(3));
    gateway.get("/health").await.assert_ok();
    // Storage recovers by itself.
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    gateway.upstream.answer_json(200, &completion("Hi"));
    let next = ask(json!({ "previous_response_id": id })).await;
    assert_eq!(next.assert_ok()["store"], true);
    let unstored = unstored.body["id"].as_str().unwrap();
    assert_not_found(&ask(json!({ "previous_response_id": unstored })).await);
}

/// A lock allows readers, so a stored response can still be continued.
#[tokio::test]
async fn a_locked_file_can_be_read_and_not_written() {
    if files_only("it locks the responses' file") {
        return;
    }
    let gateway = TestGateway::start().await;
    let id = gateway.response_id(&asking(json!({}))).await;
    let stranger = rusqlite::Connection::open(file(&gateway)).unwrap();
    stranger.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let next = asking(json!({ "previous_response_id": id }));
    let answer = gateway.respond(&next).await;
    assert_eq!(answer.assert_ok()["store"], false);
    assert_unavailable(&gateway.deleted(&id).await);
    gateway.shown(&id).await.assert_ok();
    stranger.execute_batch("ROLLBACK").unwrap();
    let answer = gateway.respond(&next).await;
    assert_eq!(answer.assert_ok()["store"], true);
    gateway.deleted(&id).await.assert_ok();
}

#[tokio::test]
async fn stored_conversations_are_private() {
    if files_only("it looks at the responses' file") {
        return;
    }
    let gateway = TestGateway::start().await;
    gateway.response_id(&asking(json!({}))).await;
    let mode = file(&gateway).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
