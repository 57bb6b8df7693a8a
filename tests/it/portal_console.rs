//! Operator actions in the console and through the operator API, and their records.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    TestGateway,
    console::{actions, person, with_token},
    gateway::{OPERATOR_TOKEN, hello},
    stores,
};

const MODEL: &str = "svc-standard";

async fn balance(gateway: &TestGateway, account: &str) -> Value {
    let path = format!("/operator/accounts/{account}");
    let answer = gateway.operate(Method::GET, &path, None).await;
    answer.assert_ok()["balance"].clone()
}

#[tokio::test]
async fn a_grant_form_submitted_twice_grants_and_is_recorded_once() {
    let gateway = TestGateway::start().await;
    let browser = person(&gateway).await;
    let id = gateway.account_id.as_str();
    let account = format!("/portal/console/accounts/{id}");
    let page = browser.get(&account).await;
    page.assert_page();
    let reference = page.between("name=\"reference\" value=\"", "\"").to_owned();
    let give = async |amount: &str, reference: &str| {
        let fields = [
            ("amount", amount),
            ("reason", "by transfer"),
            ("until", "2096-12-31"),
            ("reference", reference),
            ("confirmed", "yes"),
        ];
        browser.post(&format!("{account}/grants"), &fields).await
    };
    give("12.50", &reference)
        .await
        .assert_sent_to(&account.replace('_', "%5F"));
    give("12.50", &reference)
        .await
        .assert_sent_to(&account.replace('_', "%5F"));
    assert_eq!(balance(&gateway, id).await, "1012.500000");
    let another = give("13", &reference).await;
    assert_eq!(another.status, 400, "{}", another.text);
    for wrong in ["", "0", "-1", "1e9", "a lot"] {
        assert_eq!(give(wrong, "console_2").await.status, 400, "{wrong}");
    }
    assert_eq!(give("1", "").await.status, 403, "it would give twice");
    assert_eq!(balance(&gateway, id).await, "1012.500000");

    let done = actions(&gateway, Some(id)).await;
    let granted: Vec<_> = done
        .iter()
        .filter(|action| action.actor == browser.email)
        .collect();
    let [action] = granted.as_slice() else {
        panic!("one of {done:?}");
    };
    assert_eq!(action.what, "account.grant");
    let read =
        |text: &Option<String>| -> Value { serde_json::from_str(text.as_ref().unwrap()).unwrap() };
    assert_eq!(read(&action.before), json!({ "balance": "1000.000000" }));
    let after = read(&action.after);
    assert_eq!(
        (
            &after["balance"],
            &after["amount"],
            &after["reason"],
            &after["expires_at"]
        ),
        (
            &json!("1012.500000"),
            &json!("12.500000"),
            &json!("by transfer"),
            &json!("2097-01-01T00:00:00Z")
        )
    );
    assert_eq!(after["reference"], reference.as_str());
    gateway.stop().await;
}

#[tokio::test]
async fn a_model_that_is_disabled_is_not_found_with_the_next_request() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    browser.get("/portal/console/models").await.assert_page();
    let set = async |name: &str, value: &str| {
        let fields = [("model", MODEL), (name, value)];
        let set = browser.post("/portal/console/models", &fields).await;
        set.assert_sent_to("/portal/console/models");
    };
    gateway.chat(&hello(MODEL)).await.assert_ok();
    set("enabled", "false").await;
    let refused = gateway.chat(&hello(MODEL)).await;
    assert_eq!(
        (refused.status, &refused.error()["code"]),
        (404, &json!("model_not_found"))
    );
    set("enabled", "true").await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    set("unlisted", "true").await;
    set("unlisted", "true").await;
    let listed = gateway.get("/v1/models").await;
    assert!(!listed.assert_ok().to_string().contains("\"svc-standard\""));
    let done = actions(&gateway, Some(MODEL)).await;
    let done: Vec<_> = done
        .iter()
        .map(|action| (&*action.what, action.after.as_deref()))
        .collect();
    assert_eq!(
        done,
        [
            ("model.change", Some(r#"{"enabled":true,"unlisted":true}"#)),
            ("model.change", Some(r#"{"enabled":true,"unlisted":false}"#)),
            (
                "model.change",
                Some(r#"{"enabled":false,"unlisted":false}"#)
            ),
        ]
    );
    let unknown = [("model", "svc-nothing"), ("enabled", "false")];
    assert_eq!(
        browser
            .post("/portal/console/models", &unknown)
            .await
            .status,
        400
    );
    gateway.stop().await;
}

#[tokio::test]
async fn accounts_are_made_changed_closed_and_opened() {
    let gateway = TestGateway::start().await;
    let browser = with_token(&gateway).await;
    let id = gateway.account_id.as_str();
    let account = format!("/portal/console/accounts/{id}");
    browser.get(&account).await.assert_page();
    let set = async |what: &str, name: &str, value: &str| {
        browser
            .post(&format!("{account}/{what}"), &[(name, value)])
            .await
            .status
    };
    assert_eq!(set("state", "state", "closed").await, 303);
    let refused = gateway.chat(&hello(MODEL)).await;
    assert_eq!(refused.status, 402, "{}", refused.body);
    assert!(browser.get(&account).await.text.contains("closed"));
    assert_eq!(set("state", "state", "open").await, 303);
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(set("state", "state", "ajar").await, 400);

    assert_eq!(set("plan", "plan", "personal/free").await, 303);
    let refused = gateway.chat(&hello("svc-pro")).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(set("plan", "plan", "personal/flex").await, 400);
    let done = actions(&gateway, Some(id)).await;
    assert_eq!(done[0].what, "account.change");
    let (before, after) = (
        done[0].before.as_ref().unwrap(),
        done[0].after.as_ref().unwrap(),
    );
    assert!(
        before.contains("\"flex\"") && after.contains("\"free\""),
        "{before} {after}"
    );

    browser.get("/portal/console/accounts").await.assert_page();
    let fields = [
        ("email", "new@example.com"),
        ("name", "New"),
        ("plan", "personal/pro"),
    ];
    let made = browser.post("/portal/console/accounts", &fields).await;
    assert_eq!(made.status, 303, "{}", made.text);
    let page = browser.get(made.header("location")).await;
    assert!(page.assert_page().contains("new@example.com"));
    let wrong = [("email", "nobody"), ("plan", "personal/pro")];
    assert_eq!(
        browser
            .post("/portal/console/accounts", &wrong)
            .await
            .status,
        400
    );
    assert_eq!(
        browser
            .get("/portal/console/accounts/acct_none")
            .await
            .status,
        404
    );
    gateway.stop().await;
}

#[tokio::test]
async fn actions_through_the_operator_api_are_recorded() {
    let gateway = TestGateway::start().await;
    let id = gateway.account_id.clone();
    let account = format!("/operator/accounts/{id}");
    let keys = format!("{account}/keys");
    let body = json!({ "name": "one" });
    let made = gateway.operate(Method::POST, &keys, Some(body)).await;
    let made = made.assert_ok().clone();
    let key = made["id"].as_str().unwrap();
    for (method, path, body) in [
        (Method::PATCH, account.clone(), json!({ "closed": true })),
        (Method::PATCH, account.clone(), json!({ "closed": true })),
        (
            Method::POST,
            format!("/operator/keys/{key}/disable"),
            json!({}),
        ),
        (Method::DELETE, format!("/operator/keys/{key}"), json!({})),
        (
            Method::PUT,
            format!("/operator/models/{MODEL}"),
            json!({ "enabled": false }),
        ),
        (
            Method::PUT,
            "/operator/limits".into(),
            json!({ "account": id, "rpm": 7 }),
        ),
        (
            Method::PUT,
            "/operator/limits".into(),
            json!({ "account": id, "rpm": null }),
        ),
        (Method::POST, "/operator/audit".into(), json!({})),
    ] {
        gateway.operate(method, &path, Some(body)).await.assert_ok();
    }
    let refused = gateway.operate(Method::PATCH, &account, Some(json!({ "tier": "max" })));
    assert_eq!(
        refused.await.status,
        400,
        "a refused action is not recorded"
    );
    let done = actions(&gateway, None).await;
    let shown: Vec<_> = done
        .iter()
        .rev()
        .map(|action| (&*action.what, &*action.subject))
        .collect();
    let first_key = shown[2].1;
    assert_eq!(
        shown,
        [
            ("account.create", id.as_str()),
            ("account.grant", &id),
            ("key.create", first_key),
            ("key.create", key),
            ("account.change", &id),
            ("key.change", key),
            ("key.change", key),
            ("model.change", MODEL),
            ("limit.change", &id),
            ("limit.change", &id),
            ("audit.run", "ledger"),
        ]
    );
    for action in &done {
        assert_eq!(action.actor, "operator token");
        let all = format!("{action:?}");
        assert!(
            !all.contains(&gateway.key) && !all.contains(made["key"].as_str().unwrap()),
            "{all}"
        );
        assert!(!all.contains(OPERATOR_TOKEN), "{all}");
    }
    assert_eq!(done[2].before.as_deref(), None);
    assert_eq!(
        done[1].after, None,
        "a rule without ceilings is none: {done:?}"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn an_action_takes_effect_even_if_recording_it_fails() {
    let data = TempDir::new().unwrap();
    let file = data.path().join("tollgate.portal.db");
    let gateway = TestGateway::start_in(data, "").await;
    if !stores::are_shared() {
        let portal = rusqlite::Connection::open(file).unwrap();
        portal
            .execute_batch("DROP TABLE backoffice_actions")
            .unwrap();
    }
    let path = format!("/operator/accounts/{}", gateway.account_id);
    let closed = gateway.operate(Method::PATCH, &path, Some(json!({ "closed": true })));
    assert_eq!(closed.await.assert_ok()["closed"], true);
    let backoffice = &gateway.inside().backoffice;
    assert!(stores::are_shared() || backoffice.actions_page(None, None, 1).await.is_err());
    gateway.stop().await;
}
