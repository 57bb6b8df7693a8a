//! How many keys an account can have, and lists of many keys.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Plan, TestGateway,
    admin::{Admin, links, rows},
    console::with_token,
    gateway::hello,
    portal::Browser,
};

const MODEL: &str = "svc-native-fast";

async fn create_by_operator(gateway: &TestGateway, account_id: &str) -> Answer {
    let path = format!("/operator/accounts/{account_id}/keys");
    let body = json!({ "name": "one more" });
    gateway.operate(Method::POST, &path, Some(body)).await
}

#[tokio::test]
async fn an_account_has_a_bounded_number_of_keys_however_they_are_created() {
    let gateway = TestGateway::start_set(&[("LIMITS__MAX_KEYS", "3")]).await;
    let browser = Browser::signed_in(&gateway).await;
    let mut id = String::new();
    for name in ["a", "b", "c"] {
        (id, _) = browser.new_key(name).await;
    }
    let refused = browser.post("/portal/keys", &[("name", "d")]).await;
    let page = refused.assert_page();
    assert!(
        page.contains("An account can have at most 3 keys"),
        "{page}"
    );
    assert!(!page.contains("id=\"new-key\""));
    let refused = create_by_operator(&gateway, &browser.account_id).await;
    refused.assert_error(409, "invalid_request_error", Some("too_many_keys"), None);
    let message = refused.error()["message"].as_str().unwrap();
    assert!(message.contains("`limits.max_keys`"), "{message}");
    // The playground would create one too.
    let request = browser
        .request(Method::POST, "/portal/playground/run")
        .header("origin", browser.origin())
        .header("x-form-token", browser.token());
    let refused = browser.send(request.json(&hello(MODEL))).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(
        refused.text.contains("An account can have at most 3 keys"),
        "{}",
        refused.text
    );

    browser.get("/portal/keys").await;
    let delete = format!("/portal/keys/{id}/delete");
    browser
        .post(&delete, &[])
        .await
        .assert_sent_to("/portal/keys");
    create_by_operator(&gateway, &browser.account_id)
        .await
        .assert_ok();
    let refused = create_by_operator(&gateway, &browser.account_id).await;
    assert_eq!(refused.status, 409);
    gateway.stop().await;
}

#[tokio::test]
async fn creating_keys_in_the_portal_is_throttled() {
    let gateway = TestGateway::start_set(&[("LIMITS__MAX_KEYS", "1000")]).await;
    let (browser, other) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    browser.get("/portal/keys").await;
    for number in 0..20 {
        let name = number.to_string();
        let made = browser.post("/portal/keys", &[("name", &name)]).await;
        made.assert_page();
    }
    let refused = browser.post("/portal/keys", &[("name", "more")]).await;
    assert_eq!(refused.status, 429);
    assert!(!refused.header("retry-after").is_empty());
    // The playground needs a key too.
    let run = browser.request(Method::POST, "/portal/playground/run");
    let run = run.header("origin", browser.origin());
    let run = run.header("x-form-token", browser.token());
    let refused = browser.send(run.json(&hello(MODEL))).await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert!(!refused.header("retry-after").is_empty());
    assert!(refused.text.contains("needs a key of its own"));
    other.new_key("mine").await;
    create_by_operator(&gateway, &browser.account_id)
        .await
        .assert_ok();
    gateway.stop().await;
}

/// Names of the keys on a page, and its link to an older one.
async fn listed(browser: &Browser, path: &str) -> (Vec<String>, Option<String>) {
    let page = browser.get(path).await;
    let page = page.assert_page();
    assert!(page.len() < 100_000, "{path}: {} bytes", page.len());
    let cells = page.split("<th scope=\"row\">").skip(1);
    let names = cells.map(|cell| cell.split('<').next().unwrap().to_owned());
    let links = links(page, "/portal/").into_iter();
    let older = links.rev().find(|link| link.contains("before="));
    (names.collect(), older)
}

#[tokio::test]
async fn keys_are_listed_page_by_page_and_deleted_ones_apart() {
    const KEYS: usize = 120;
    let admin = Admin::open().await;
    let ledger = &admin.gateway.inside().ledger;
    let mut ids = Vec::new();
    for number in 0..KEYS {
        let created = ledger.create_key(&admin.account_id, format!("n{number}").into(), 1_000);
        ids.push(created.await.unwrap().0.id);
    }
    let (owner, operator) = (&admin.browser, &with_token(&admin.gateway).await);
    let console = format!("/portal/console/accounts/{}/keys", admin.account_id);
    let deleted_keys = format!("{console}?deleted=true");
    for (deleted, lists) in [
        (false, [(owner, "/portal/keys"), (operator, &console)]),
        (
            true,
            [(owner, "/portal/keys/deleted"), (operator, &deleted_keys)],
        ),
    ] {
        for (browser, list) in lists {
            let (mut names, mut older) = listed(browser, list).await;
            assert_eq!(names.len(), 50, "{list}");
            while let Some(path) = older {
                let (more, next) = listed(browser, &path).await;
                assert!(!more.is_empty() && more.len() <= 50, "{path}");
                names.extend(more);
                older = next;
            }
            names.retain(|name| name != "laptop");
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), KEYS, "{list}");
        }
        if !deleted {
            for id in &ids {
                let state = tollgate::ledger::KeyState::Deleted;
                ledger.set_key_state(id, state).await.unwrap();
            }
            assert_eq!(listed(owner, "/portal/keys").await.0, ["laptop"]);
        }
    }
}

#[tokio::test]
async fn the_history_names_a_deleted_key() {
    let admin = Admin::open().await;
    let (id, key) = admin.new_key("old-faithful").await;
    admin.gateway.upstream.answer_using(11, 0, 3, 0);
    let answer = admin.gateway.chat_as(&key, &hello(MODEL)).await;
    answer.assert_ok();
    let path = format!("/operator/keys/{id}");
    admin.operate(Method::DELETE, &path, json!({})).await;
    let one = admin.listed("/portal/requests").await.remove(0);
    let filtered = format!("/portal/requests?key={id}");
    for path in ["/portal", "/portal/requests", &one, &filtered] {
        let page = admin.page(path).await;
        assert!(page.contains("old-faithful"), "{path}: {page}");
    }
    let page = admin.page("/portal/usage?days=7&by=key").await;
    let used = rows(&page, "Usage by key");
    assert!(used[1][0].starts_with("old-faithful"), "{used:?}");
    let csv = admin.browser.get("/portal/usage.csv?days=7").await.text;
    assert!(csv.contains("old-faithful"), "{csv}");
}

#[tokio::test]
async fn the_operator_api_lists_keys_page_by_page() {
    let gateway = TestGateway::start().await;
    let account_id = gateway.account_id.as_str();
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(gateway.new_key(account_id).await.0);
    }
    for id in &ids[..2] {
        let path = format!("/operator/keys/{id}");
        gateway
            .operate(Method::DELETE, &path, None)
            .await
            .assert_ok();
    }
    let list = format!("/operator/accounts/{account_id}/keys");
    let get = async |query: &str| {
        let path = format!("{list}?{query}");
        gateway.operate(Method::GET, &path, None).await
    };
    for (filter, expected) in [("", 7), ("deleted=true", 2), ("deleted=false", 5)] {
        let (mut found, mut before) = (Vec::new(), String::new());
        loop {
            let page = get(&format!("limit=2&{filter}{before}")).await;
            let page = page.assert_ok();
            for key in page["data"].as_array().unwrap() {
                found.push(key["id"].as_str().unwrap().to_owned());
            }
            before = format!("&before={}", found.last().unwrap());
            if page["has_more"] == false {
                break;
            }
        }
        assert_eq!(found.len(), expected, "{filter}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), expected, "{filter}");
    }
    let all = get("").await;
    assert_eq!(all.assert_ok()["data"].as_array().unwrap().len(), 7);
    assert_eq!(all.assert_ok()["has_more"], false);
    let (other, _) = gateway.account(Plan::FREE).await;
    let other = gateway.new_key(&other).await.0;
    for (wrong, param) in [
        ("limit=0", Some("limit")),
        ("limit=501", Some("limit")),
        ("before=key_0", Some("before")),
        (&format!("before={other}"), Some("before")),
        ("deleted=maybe", None),
    ] {
        let refused = get(wrong).await;
        refused.assert_error(400, "invalid_request_error", None, param);
    }
}
