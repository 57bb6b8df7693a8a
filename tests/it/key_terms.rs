//! What binds a key beside its account (§5): its project, when it expires, its models and its own ceilings.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, TestGateway,
    console::actions,
    gateway::{answer, hello},
    ledger_view::MODEL,
};

const OTHER_MODEL: &str = "svc-native-light";

async fn create(gateway: &TestGateway, account: &str, terms: Value) -> Answer {
    let path = format!("/operator/accounts/{account}/keys");
    gateway.operate(Method::POST, &path, Some(terms)).await
}

async fn change(gateway: &TestGateway, key_id: &str, change: Value) -> Answer {
    let path = format!("/operator/keys/{key_id}");
    gateway.operate(Method::PATCH, &path, Some(change)).await
}

async fn project(gateway: &TestGateway, account: &str, name: &str) -> String {
    let path = format!("/operator/accounts/{account}/projects");
    let body = Some(json!({ "name": name }));
    let made = gateway.operate(Method::POST, &path, body).await;
    made.assert_ok()["id"].as_str().unwrap().to_owned()
}

async fn call(gateway: &TestGateway, key: &str, model: &str) -> Answer {
    let request = gateway.client.post(gateway.url("/v1/chat/completions"));
    answer(request.bearer_auth(key).json(&hello(model))).await
}

async fn get(gateway: &TestGateway, key: &str, path: &str) -> Answer {
    answer(gateway.client.get(gateway.url(path)).bearer_auth(key)).await
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_has_its_terms_and_they_can_be_changed_and_removed() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let search = project(&gateway, &customer.id, "Search").await;
    let plain = create(&gateway, &customer.id, json!({ "name": "plain" })).await;
    let plain = plain.assert_ok();
    let terms = |key: &Value| {
        ["project", "expires_at", "models", "rpm", "tpm"].map(|field| key[field].clone())
    };
    let none = [
        json!("default"),
        json!(null),
        json!(null),
        json!(null),
        json!(null),
    ];
    assert_eq!(terms(plain), none);
    let all = json!({ "project": search, "expires_at": "2099-01-31T00:00:00Z", "models": [MODEL], "rpm": 3, "tpm": 500 });
    let mut named = all.clone();
    named["name"] = "k".into();
    let made = create(&gateway, &customer.id, named).await;
    let made = made.assert_ok();
    assert_eq!(terms(made), terms(&all));
    let id = text(&made["id"]);
    // What is not named stays.
    let changed = change(&gateway, &id, json!({ "name": "renamed", "rpm": 4 })).await;
    let changed = changed.assert_ok();
    assert_eq!(
        (&changed["name"], &changed["rpm"]),
        (&json!("renamed"), &json!(4))
    );
    assert_eq!(changed["tpm"], 500);
    let clear =
        json!({ "project": null, "expires_at": null, "models": null, "rpm": null, "tpm": null });
    let cleared = change(&gateway, &id, clear).await;
    assert_eq!(terms(cleared.assert_ok()), none);
    // Every change is an operator action.
    let actions = actions(&gateway, Some(&id)).await;
    let actions: Vec<_> = actions.iter().map(|action| &*action.what).collect();
    assert_eq!(actions, ["key.change", "key.change", "key.create"]);
}

#[tokio::test]
async fn a_model_outside_of_the_list_is_refused_and_not_shown() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let made = create(&gateway, &customer.id, json!({ "models": [MODEL] })).await;
    let (id, key) = (
        text(&made.assert_ok()["id"]),
        text(&made.assert_ok()["key"]),
    );
    call(&gateway, &key, MODEL).await.assert_ok();
    let refused = call(&gateway, &key, OTHER_MODEL).await;
    let code = Some("model_not_allowed");
    refused.assert_error(403, "model_not_allowed", code, Some("model"));
    let listed = get(&gateway, &key, "/v1/models").await;
    let listed = listed.assert_ok()["data"].as_array().unwrap();
    let ids: Vec<_> = listed.iter().map(|model| text(&model["id"])).collect();
    assert_eq!(ids, [MODEL]);
    get(&gateway, &key, &format!("/v1/models/{MODEL}"))
        .await
        .assert_ok();
    let hidden = get(&gateway, &key, &format!("/v1/models/{OTHER_MODEL}")).await;
    assert_eq!(hidden.status, 404);
    // From the next request on, also for what a gateway has cached.
    change(&gateway, &id, json!({ "models": [OTHER_MODEL] }))
        .await
        .assert_ok();
    call(&gateway, &key, OTHER_MODEL).await.assert_ok();
    assert_eq!(call(&gateway, &key, MODEL).await.status, 403);
    // The Messages API has its own envelope.
    let body = json!({ "model": MODEL, "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    let request = gateway.client.post(gateway.url("/v1/messages"));
    let refused = answer(request.bearer_auth(&key).json(&body)).await;
    let kind = &refused.body["error"]["type"];
    assert_eq!((refused.status, kind), (403, &json!("permission_error")));
    assert_eq!(customer.ledger_view().await.charges, 2);
}

#[tokio::test]
async fn an_expired_key_is_refused_like_an_unknown_one() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let made = create(
        &gateway,
        &customer.id,
        json!({ "expires_at": "2099-01-01T00:00:00Z" }),
    )
    .await;
    let (id, key) = (
        text(&made.assert_ok()["id"]),
        text(&made.assert_ok()["key"]),
    );
    call(&gateway, &key, MODEL).await.assert_ok();
    change(
        &gateway,
        &id,
        json!({ "expires_at": "2020-01-01T00:00:00Z" }),
    )
    .await
    .assert_ok();
    let refused = call(&gateway, &key, MODEL).await;
    refused.assert_error(401, "authentication_error", Some("invalid_api_key"), None);
    change(&gateway, &id, json!({ "expires_at": null }))
        .await
        .assert_ok();
    call(&gateway, &key, MODEL).await.assert_ok();
    assert_eq!(customer.ledger_view().await.charges, 2);
}

#[tokio::test]
async fn the_ceilings_of_a_key_bind_beside_those_of_its_account() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let made = create(&gateway, &customer.id, json!({ "rpm": 2 })).await;
    let (id, key) = (
        text(&made.assert_ok()["id"]),
        text(&made.assert_ok()["key"]),
    );
    // All models together.
    call(&gateway, &key, MODEL).await.assert_ok();
    call(&gateway, &key, OTHER_MODEL).await.assert_ok();
    let refused = call(&gateway, &key, MODEL).await;
    refused.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
    let message = refused.error()["message"].as_str().unwrap();
    assert!(
        message.contains("this API key is limited to 2 requests"),
        "{message}"
    );
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.headers["x-ratelimit-limit"], "2");
    assert!(
        !refused.headers.contains_key("x-ratelimit-limit-tokens"),
        "it has none"
    );
    // A refusal by the key's window has taken nothing of the account's, and another key is not bound.
    let (_, other) = gateway.new_key(&customer.id).await;
    for _ in 0..3 {
        call(&gateway, &other, MODEL).await.assert_ok();
    }
    change(&gateway, &id, json!({ "rpm": null, "tpm": 1 }))
        .await
        .assert_ok();
    let refused = call(&gateway, &key, MODEL).await;
    refused.assert_error(429, "rate_limit_exceeded", Some("tpm_exceeded"), None);
    assert_eq!(refused.headers["x-should-retry"], "false", "it never fits");
    change(&gateway, &id, json!({ "tpm": null }))
        .await
        .assert_ok();
    call(&gateway, &key, MODEL).await.assert_ok();
    gateway.idle().await;
    assert_eq!(customer.ledger_view().await.charges, 6);
}

#[tokio::test]
async fn usage_belongs_to_the_project_of_its_time() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let search = project(&gateway, &customer.id, "Search").await;
    let made = create(&gateway, &customer.id, json!({ "project": search })).await;
    let (id, key) = (
        text(&made.assert_ok()["id"]),
        text(&made.assert_ok()["key"]),
    );
    call(&gateway, &key, MODEL).await.assert_ok();
    change(&gateway, &id, json!({ "project": null }))
        .await
        .assert_ok();
    call(&gateway, &key, MODEL).await.assert_ok();
    gateway.idle().await;
    let path = format!("/operator/accounts/{}/usage", customer.id);
    let usage = gateway.operate(Method::GET, &path, None).await;
    let usage = usage.assert_ok()["data"].as_array().unwrap();
    let mut projects: Vec<_> = usage.iter().map(|row| text(&row["project"])).collect();
    projects.sort();
    assert_eq!(projects, ["default", &*search]);
}

#[tokio::test]
async fn projects_are_listed_renamed_and_archived() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let search = project(&gateway, &customer.id, " Search ").await;
    let path = format!("/operator/projects/{search}");
    let rename = Some(json!({ "name": "Find" }));
    gateway
        .operate(Method::PATCH, &path, rename)
        .await
        .assert_ok();
    let made = create(&gateway, &customer.id, json!({ "project": search })).await;
    let id = text(&made.assert_ok()["id"]);
    let used = gateway.operate(Method::DELETE, &path, None).await;
    assert_eq!(
        (used.status, &used.error()["code"]),
        (409, &json!("project_in_use"))
    );
    change(&gateway, &id, json!({ "project": "default" }))
        .await
        .assert_ok();
    gateway
        .operate(Method::DELETE, &path, None)
        .await
        .assert_ok();
    let path = format!("/operator/accounts/{}/projects", customer.id);
    let listed = gateway.operate(Method::GET, &path, None).await;
    let listed = listed.assert_ok()["data"].as_array().unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|project| (text(&project["name"]), project["archived"] == true))
        .collect();
    assert_eq!(listed, [("Default".into(), false), ("Find".into(), true)]);
}

#[tokio::test]
async fn wrong_terms_are_refused_and_change_nothing() {
    let gateway = TestGateway::start().await;
    let (customer, other) = (gateway.customer().await, gateway.customer().await);
    let theirs = project(&gateway, &other.id, "Theirs").await;
    let (id, key) = gateway.new_key(&customer.id).await;
    for (terms, status, param) in [
        (json!({ "expires_at": "tomorrow" }), 400, Some("expires_at")),
        (json!({ "models": [] }), 400, Some("models")),
        (json!({ "models": [MODEL, "gpt-0"] }), 400, Some("models")),
        (json!({ "rpm": 0 }), 400, Some("rpm")),
        (json!({ "tpm": -1 }), 400, Some("tpm")),
        (json!({ "name": "x".repeat(101) }), 400, Some("name")),
        (json!({ "budget": 1 }), 400, None),
        (json!({ "project": "proj_0" }), 404, None),
        (json!({ "project": theirs }), 404, None),
    ] {
        for refused in [
            create(&gateway, &customer.id, terms.clone()).await,
            change(&gateway, &id, terms.clone()).await,
        ] {
            assert_eq!(refused.status, status, "{terms}: {}", refused.error());
            if let Some(param) = param {
                assert_eq!(refused.error()["param"], param, "{terms}");
            }
        }
    }
    assert_eq!(change(&gateway, "key_0", json!({})).await.status, 404);
    for name in ["", "  ", &"x".repeat(101)] {
        let path = format!("/operator/accounts/{}/projects", customer.id);
        let body = Some(json!({ "name": name }));
        let refused = gateway.operate(Method::POST, &path, body).await;
        assert_eq!(refused.status, 400, "{name:?}");
    }
    call(&gateway, &key, MODEL).await.assert_ok();
    let path = format!("/operator/accounts/{}/keys", customer.id);
    let keys = gateway.operate(Method::GET, &path, None).await;
    let keys = keys.assert_ok()["data"].as_array().unwrap();
    assert!(
        keys.iter()
            .all(|key| key["models"].is_null() && key["project"] == "default")
    );
}

#[tokio::test]
async fn a_key_describes_itself() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let (id, key) = gateway.new_key(&customer.id).await;
    let plain = get(&gateway, &key, "/v1/key").await;
    let plain = plain.assert_ok();
    assert_eq!(
        (&plain["id"], &plain["object"]),
        (&json!(id), &json!("key"))
    );
    assert_eq!(
        plain["project"],
        json!({ "id": "default", "name": "Default" })
    );
    assert_eq!(plain["limits"], json!({ "rpm": null, "tpm": null }));
    assert_eq!(plain["prefix"], key[..12]);
    assert!(!plain.to_string().contains(&key[12..]));
    let search = project(&gateway, &customer.id, "Search").await;
    let terms = json!({ "project": search, "models": [MODEL], "rpm": 2, "expires_at": "2099-01-01T00:00:00Z" });
    change(&gateway, &id, terms).await.assert_ok();
    for _ in 0..3 {
        // It is no call: it counts in no window.
        let bound = get(&gateway, &key, "/v1/key").await;
        let bound = bound.assert_ok();
        assert_eq!(bound["project"], json!({ "id": search, "name": "Search" }));
        assert_eq!(bound["models"], json!([MODEL]));
        assert_eq!(bound["limits"], json!({ "rpm": 2, "tpm": null }));
        assert_eq!(bound["expires_at"], "2099-01-01T00:00:00Z");
    }
    call(&gateway, &key, MODEL).await.assert_ok();
    for (key, status) in [
        (
            "sk-svc-000000000000000000000000000000000000000000000000",
            401,
        ),
        ("", 401),
    ] {
        assert_eq!(get(&gateway, key, "/v1/key").await.status, status);
    }
}
