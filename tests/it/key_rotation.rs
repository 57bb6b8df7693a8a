//! Rotation of keys through the operator API (§3.1, §5).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tollgate::base::timestamp::now;

use crate::support::{
    Answer, TestGateway,
    console::actions,
    gateway::{answer, hello},
    ledger_view::MODEL,
};

async fn rotate(gateway: &TestGateway, key_id: &str, body: Value) -> Answer {
    let path = format!("/operator/keys/{key_id}/rotate");
    gateway.operate(Method::POST, &path, Some(body)).await
}

async fn status_of(gateway: &TestGateway, key: &str) -> u16 {
    gateway.chat_as(key, &hello(MODEL)).await.status
}

async fn own(gateway: &TestGateway, key: &str) -> Answer {
    let request = gateway.client.get(gateway.url("/v1/key"));
    answer(request.bearer_auth(key)).await
}

/// The key as the list of its account has it.
async fn listed(gateway: &TestGateway, account_id: &str, key_id: &str) -> Value {
    let path = format!("/operator/accounts/{account_id}/keys");
    let list = gateway.operate(Method::GET, &path, None).await;
    let keys = list.assert_ok()["data"].as_array().unwrap().clone();
    keys.into_iter().find(|key| key["id"] == key_id).unwrap()
}

fn seconds(at: &Value) -> i64 {
    let at = OffsetDateTime::parse(at.as_str().unwrap(), &Rfc3339).unwrap();
    at.unix_timestamp()
}

#[tokio::test]
async fn both_secrets_work_until_the_grace_ends() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let (id, old) = gateway.new_key(&customer.id).await;
    assert_eq!(status_of(&gateway, &old).await, 200);
    let before = listed(&gateway, &customer.id, &id).await;
    assert_eq!(before["previous"], json!(null));
    let begun = now();
    let rotated = rotate(&gateway, &id, json!({ "grace_seconds": 3 })).await;
    let rotated = rotated.assert_ok();
    let new = rotated["key"].as_str().unwrap();
    assert!(new != old && new.starts_with("sk-svc-") && new.len() == 55);
    let shown = listed(&gateway, &customer.id, &id).await;
    assert_eq!(shown["prefix"], new[..12]);
    assert_eq!(shown["previous"]["prefix"], old[..12]);
    assert!(shown.get("key").is_none(), "a secret is shown once");
    for field in ["id", "name", "project", "member", "created_at", "state"] {
        assert_eq!(rotated[field], before[field], "{field}");
    }
    let until = seconds(&shown["previous"]["valid_until"]);
    assert!((begun + 3..=begun + 5).contains(&until), "{shown}");
    for key in [&old, new] {
        assert_eq!(status_of(&gateway, key).await, 200);
        let seen = own(&gateway, key).await;
        let seen = seen.assert_ok();
        assert_eq!(
            (&seen["id"], &seen["prefix"]),
            (&json!(id), &json!(key[..12]))
        );
        let is_old = *key == *old;
        let ends = is_old.then(|| shown["previous"]["valid_until"].clone());
        assert_eq!(seen["expires_at"], json!(ends));
    }
    while now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = gateway.chat_as(&old, &hello(MODEL)).await;
    refused.assert_error(401, "authentication_error", Some("invalid_api_key"), None);
    assert_eq!(own(&gateway, &old).await.status, 401);
    assert_eq!(status_of(&gateway, new).await, 200);
    let shown = listed(&gateway, &customer.id, &id).await;
    assert_eq!(shown["previous"], json!(null));
}

#[tokio::test]
async fn at_most_two_secrets_are_valid_and_both_end_with_the_key() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let (id, first) = gateway.new_key(&customer.id).await;
    let mut secrets = vec![first];
    for _ in 0..2 {
        // Without a body the grace is a day.
        let begun = now();
        let rotated = rotate(&gateway, &id, json!({})).await;
        let rotated = rotated.assert_ok();
        let grace = seconds(&rotated["previous"]["valid_until"]) - begun;
        assert!((86_400..86_410).contains(&grace), "{grace}");
        secrets.push(rotated["key"].as_str().unwrap().to_owned());
    }
    let statuses = async || {
        let mut statuses = Vec::new();
        for secret in &secrets {
            statuses.push(status_of(&gateway, secret).await);
        }
        statuses
    };
    assert_eq!(statuses().await, [401, 200, 200]);
    for (method, verb, expected) in [
        (Method::POST, "/disable", [401, 401, 401]),
        (Method::POST, "/enable", [401, 200, 200]),
        (Method::DELETE, "", [401, 401, 401]),
    ] {
        let path = format!("/operator/keys/{id}{verb}");
        gateway.operate(method, &path, None).await.assert_ok();
        assert_eq!(statuses().await, expected, "{verb}");
    }
    let again = rotate(&gateway, &id, json!({})).await;
    again.assert_error(400, "invalid_request_error", Some("key_deleted"), None);
}

#[tokio::test]
async fn without_grace_the_old_secret_is_refused_at_once() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let (id, old) = gateway.new_key(&customer.id).await;
    assert_eq!(status_of(&gateway, &old).await, 200);
    let rotated = rotate(&gateway, &id, json!({ "grace_seconds": 0 })).await;
    let rotated = rotated.assert_ok();
    assert_eq!(rotated["previous"], json!(null));
    assert_eq!(status_of(&gateway, &old).await, 401);
    let new = rotated["key"].as_str().unwrap();
    assert_eq!(status_of(&gateway, new).await, 200);
    let actions = actions(&gateway, Some(&id)).await;
    let whats: Vec<_> = actions.iter().map(|action| &*action.what).collect();
    assert_eq!(whats, ["key.rotate", "key.create"]);
    let recorded = format!("{:?}", actions[0]);
    assert!(
        !recorded.contains(new) && recorded.contains(&new[..12]),
        "{recorded}"
    );
}

#[tokio::test]
async fn a_wrong_grace_changes_nothing() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let (id, key) = gateway.new_key(&customer.id).await;
    for wrong in [json!(-1), json!(2_592_001), json!("1 day"), json!(1.5)] {
        let refused = rotate(&gateway, &id, json!({ "grace_seconds": wrong })).await;
        refused.assert_error(400, "invalid_request_error", None, Some("grace_seconds"));
    }
    let unknown = rotate(&gateway, &id, json!({ "grace": 1 })).await;
    assert_eq!(unknown.status, 400);
    assert_eq!(rotate(&gateway, "key_0", json!({})).await.status, 404);
    let shown = listed(&gateway, &customer.id, &id).await;
    assert_eq!(
        (&shown["previous"], &shown["prefix"]),
        (&json!(null), &json!(key[..12]))
    );
    assert_eq!(status_of(&gateway, &key).await, 200);
    let longest = rotate(&gateway, &id, json!({ "grace_seconds": 2_592_000 })).await;
    longest.assert_ok();
    assert_eq!(status_of(&gateway, &key).await, 200);
}
