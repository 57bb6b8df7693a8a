//! The operator API: accounts, credit, keys and models; mistakes are named.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, TestGateway,
    gateway::{OPERATOR_TOKEN, answer},
};

async fn get(gateway: &TestGateway, path: &str) -> Answer {
    gateway.operate(Method::GET, path, None).await
}

async fn post(gateway: &TestGateway, path: &str, body: Value) -> Answer {
    gateway.operate(Method::POST, path, Some(body)).await
}

/// Asserts a 400 whose message names the field.
#[track_caller]
fn assert_names(answer: &Answer, field: &str, what: &Value) {
    let error = answer.error();
    let found = (answer.status, error["type"].as_str());
    assert_eq!(
        found,
        (400, Some("invalid_request_error")),
        "{what}: {error}"
    );
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(field), "{what}: `{field}` in {message:?}");
    if let Some(param) = error["param"].as_str() {
        assert_eq!(param, field, "{what}");
    }
}

async fn new_account(gateway: &TestGateway) -> String {
    let body = json!({ "email": "a@example.com", "track": "personal", "tier": "free" });
    let made = post(gateway, "/operator/accounts", body).await;
    made.assert_ok()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_operator_token_is_required() {
    let gateway = TestGateway::start().await;
    let key = gateway.key.clone();
    let cut = &OPERATOR_TOKEN[..OPERATOR_TOKEN.len() - 1];
    let headers = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(format!("Bearer {cut}")),
        Some(format!("Bearer {OPERATOR_TOKEN}x")),
        Some(format!("Basic {OPERATOR_TOKEN}")),
        Some(OPERATOR_TOKEN.to_owned()),
        Some(format!("Bearer {key}")),
    ];
    for header in headers {
        for (method, path) in [
            (Method::GET, "/operator/accounts"),
            (Method::POST, "/operator/accounts"),
            (Method::PUT, "/operator/models/svc-pro"),
            (Method::GET, "/operator/nowhere"),
            (Method::GET, "/"),
        ] {
            let url = format!("http://{}{path}", gateway.operator);
            let mut request = gateway.client.request(method, url).body("{}");
            if let Some(header) = &header {
                request = request.header("authorization", header);
            }
            let refused = answer(request).await;
            assert_eq!(refused.status, 401, "{header:?} {path}");
            assert_eq!(refused.error()["type"], "authentication_error");
        }
    }
    let on_public = gateway.url("/operator/accounts");
    let refused = answer(gateway.client.get(on_public).bearer_auth(OPERATOR_TOKEN)).await;
    assert_eq!(refused.status, 404, "never on the public listener");
    let caller = gateway.client.get(gateway.url("/v1/nowhere"));
    let refused = answer(caller.bearer_auth(OPERATOR_TOKEN)).await;
    assert_eq!(refused.status, 401, "the token is no caller's key");
}

#[tokio::test]
async fn an_account_is_made_shown_listed_and_changed() {
    let gateway = TestGateway::start().await;
    let body = json!({
        "email": "ada@example.com", "track": "personal", "tier": "basic", "name": "Ada",
    });
    let made = post(&gateway, "/operator/accounts", body).await;
    let made = made.assert_ok().clone();
    let id = made["id"].as_str().unwrap().to_owned();
    for (field, expected) in [
        ("email", json!("ada@example.com")),
        ("name", json!("Ada")),
        ("track", json!("personal")),
        ("tier", json!("basic")),
        ("closed", json!(false)),
        ("balance", json!("0.000000")),
        ("held", json!("0.000000")),
        ("available", json!("0.000000")),
        ("credits_expire_at", Value::Null),
    ] {
        assert_eq!(made[field], expected, "{field}");
    }
    let path = format!("/operator/accounts/{id}");
    assert_eq!(get(&gateway, &path).await.assert_ok(), &made);
    let list = get(&gateway, "/operator/accounts").await;
    let list = list.assert_ok();
    assert_eq!(list["object"], "list");
    let listed: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["id"] == *id)
        .collect();
    assert_eq!(listed, [&made]);

    let change = async |body: Value| gateway.operate(Method::PATCH, &path, Some(body)).await;
    assert_eq!(
        change(json!({ "tier": "max" })).await.assert_ok()["tier"],
        "max"
    );
    let moved = change(json!({ "track": "business", "tier": "flex" })).await;
    assert_eq!(moved.assert_ok()["track"], "business");
    assert_eq!(
        change(json!({ "closed": true })).await.assert_ok()["tier"],
        "flex"
    );
    let unchanged = change(json!({})).await;
    assert_eq!(
        unchanged.assert_ok(),
        get(&gateway, &path).await.assert_ok()
    );
    assert_eq!(unchanged.body["closed"], true);
    assert_eq!(unchanged.body["email"], "ada@example.com");
}

#[tokio::test]
async fn a_bad_account_is_refused_and_the_field_named() {
    let gateway = TestGateway::start().await;
    let before = get(&gateway, "/operator/accounts").await;
    let good = json!({ "email": "a@example.com", "track": "personal", "tier": "free" });
    for (field, value) in [
        ("email", json!("nobody")),
        ("email", json!("@example.com")),
        ("email", json!("a@")),
        ("email", json!("a b@example.com")),
        ("email", json!("")),
        ("email", json!(7)),
        ("email", Value::Null),
        ("track", json!("corporate")),
        ("track", json!("Personal")),
        ("track", json!(1)),
        ("tier", json!("gold")),
        ("tier", json!(["free"])),
        ("tier", json!("flex")),
        ("name", json!(7)),
        ("balance", json!("1000000")),
        ("id", json!("acct_mine")),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let refused = post(&gateway, "/operator/accounts", body.clone()).await;
        assert_names(&refused, field, &body);
    }
    for field in ["email", "track", "tier"] {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(field);
        let refused = post(&gateway, "/operator/accounts", body.clone()).await;
        assert_names(&refused, field, &body);
    }
    let after = get(&gateway, "/operator/accounts").await;
    assert_eq!(before.body, after.body, "a refusal changes nothing");
}

#[tokio::test]
async fn a_body_that_is_not_one_json_object_is_refused() {
    let gateway = TestGateway::start().await;
    let good = json!({ "email": "a@example.com", "track": "personal", "tier": "free" });
    for body in [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "\"text\"".to_owned(),
        format!("{good} and more"),
        format!("{good}{good}"),
    ] {
        let url = format!("http://{}/operator/accounts", gateway.operator);
        let request = gateway.client.post(url).bearer_auth(OPERATOR_TOKEN);
        let refused = answer(request.body(body.clone())).await;
        assert_eq!(refused.status, 400, "{body}");
        assert_eq!(refused.error()["type"], "invalid_request_error", "{body}");
    }
}

#[tokio::test]
async fn a_tier_must_exist_on_its_track() {
    let gateway = TestGateway::start().await;
    for (track, tier, fits) in [
        ("personal", "free", true),
        ("personal", "max", true),
        ("personal", "flex", false),
        ("business", "flex", true),
        ("business", "free", false),
        ("business", "max", false),
    ] {
        let body = json!({ "email": "a@example.com", "track": track, "tier": tier });
        let made = post(&gateway, "/operator/accounts", body.clone()).await;
        if fits {
            made.assert_ok();
        } else {
            made.assert_error(400, "invalid_request_error", None, Some("tier"));
        }
    }
    let id = new_account(&gateway).await;
    let path = format!("/operator/accounts/{id}");
    for change in [
        json!({ "track": "business" }),
        json!({ "tier": "flex" }),
        json!({ "track": "business", "tier": "pro" }),
    ] {
        let refused = gateway.operate(Method::PATCH, &path, Some(change)).await;
        refused.assert_error(400, "invalid_request_error", None, Some("tier"));
    }
    let account = get(&gateway, &path).await;
    assert_eq!(
        (&account.body["track"], &account.body["tier"]),
        (&json!("personal"), &json!("free"))
    );
}

#[tokio::test]
async fn bad_changes_are_refused_and_the_field_named() {
    let gateway = TestGateway::start().await;
    let id = new_account(&gateway).await;
    let path = format!("/operator/accounts/{id}");
    for (field, body) in [
        ("tier", json!({ "tier": "gold" })),
        ("track", json!({ "track": 5 })),
        ("closed", json!({ "closed": "yes" })),
        ("balance", json!({ "balance": "5" })),
    ] {
        let refused = gateway
            .operate(Method::PATCH, &path, Some(body.clone()))
            .await;
        assert_names(&refused, field, &body);
    }
}

#[tokio::test]
async fn unknown_resources_are_404() {
    let gateway = TestGateway::start().await;
    for (method, path, body) in [
        (Method::GET, "/operator/accounts/acct_nope", None),
        (
            Method::PATCH,
            "/operator/accounts/acct_nope",
            Some(json!({ "closed": true })),
        ),
        (Method::GET, "/operator/accounts/acct_nope/keys", None),
        (
            Method::POST,
            "/operator/accounts/acct_nope/keys",
            Some(json!({ "name": "x" })),
        ),
        (Method::GET, "/operator/accounts/acct_nope/grants", None),
        (
            Method::POST,
            "/operator/accounts/acct_nope/grants",
            Some(json!({ "amount": "1" })),
        ),
        (Method::POST, "/operator/keys/key_nope/disable", None),
        (Method::POST, "/operator/keys/key_nope/enable", None),
        (Method::DELETE, "/operator/keys/key_nope", None),
        (Method::GET, "/operator/models/svc-nope", None),
        (
            Method::PUT,
            "/operator/models/svc-nope",
            Some(json!({ "enabled": false })),
        ),
        (Method::GET, "/operator/accounts/%FF", None),
        (Method::PUT, "/operator/models/%FF", Some(json!({}))),
        (Method::GET, "/operator/nowhere", None),
        (Method::DELETE, "/operator/accounts", None),
        (Method::GET, "/v1/models", None),
    ] {
        let missing = gateway.operate(method.clone(), path, body).await;
        assert_eq!(missing.status, 404, "{method} {path}: {}", missing.body);
        assert_eq!(missing.error()["type"], "not_found", "{method} {path}");
    }
}

#[tokio::test]
async fn a_key_has_a_name_of_bounded_length() {
    let gateway = TestGateway::start().await;
    let id = new_account(&gateway).await;
    let path = format!("/operator/accounts/{id}/keys");
    for (body, status) in [
        (json!({ "name": "ü".repeat(100) }), 200),
        (json!({ "name": "" }), 200),
        (json!({ "name": "x".repeat(101) }), 400),
        (json!({ "name": 5 }), 400),
        (json!({ "name": "x", "key": "sk-svc-mine" }), 400),
    ] {
        assert_eq!(
            post(&gateway, &path, body.clone()).await.status,
            status,
            "{body}"
        );
    }
    let keys = get(&gateway, &path).await;
    assert_eq!(keys.assert_ok()["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn models_are_listed_with_their_settings() {
    let gateway = TestGateway::start().await;
    let list = get(&gateway, "/operator/models").await;
    assert_eq!(list.assert_ok()["data"].as_array().unwrap().len(), 17);
    let path = "/operator/models/svc-pro";
    let set = async |body: Value| gateway.operate(Method::PUT, path, Some(body)).await;
    for (body, enabled, unlisted) in [
        (json!({}), true, false),
        (json!({ "enabled": false }), false, false),
        (json!({ "unlisted": true }), false, true),
        (json!({ "enabled": true }), true, true),
        (json!({ "enabled": null, "unlisted": false }), true, false),
    ] {
        let set = set(body.clone()).await;
        let found = (&set.assert_ok()["enabled"], &set.body["unlisted"]);
        assert_eq!(found, (&json!(enabled), &json!(unlisted)), "{body}");
        assert_eq!(get(&gateway, path).await.assert_ok(), &set.body);
    }
    for (field, body) in [
        ("enabled", json!({ "enabled": "no" })),
        ("unlisted", json!({ "unlisted": 1 })),
        ("price", json!({ "price": "0" })),
    ] {
        assert_names(&set(body.clone()).await, field, &body);
    }
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let gateway = TestGateway::start().await;
    let (id, _) = gateway.account(Plan::MAX).await;
    let account = format!("/operator/accounts/{id}");
    let grant = json!({ "amount": "2.5", "expires_at": "2099-01-31T00:00:00Z", "reason": "gift" });
    post(&gateway, &format!("{account}/grants"), grant)
        .await
        .assert_ok();
    let (key_id, _) = gateway.new_key(&id).await;
    post(
        &gateway,
        &format!("/operator/keys/{key_id}/disable"),
        json!({}),
    )
    .await
    .assert_ok();
    let closed = Some(json!({ "closed": true }));
    gateway
        .operate(Method::PATCH, &account, closed)
        .await
        .assert_ok();
    let unlisted = Some(json!({ "unlisted": true }));
    gateway
        .operate(Method::PUT, "/operator/models/svc-pro", unlisted)
        .await
        .assert_ok();
    let paths = [
        account.clone(),
        format!("{account}/keys"),
        format!("{account}/grants"),
        "/operator/models".to_owned(),
    ];
    let mut before = Vec::new();
    for path in &paths {
        before.push(get(&gateway, path).await.assert_ok().clone());
    }
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    for (path, before) in paths.iter().zip(&before) {
        assert_eq!(get(&gateway, path).await.assert_ok(), before, "{path}");
    }
}
