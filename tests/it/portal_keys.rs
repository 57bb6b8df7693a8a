//! API keys in the portal: create, use, disable, enable, delete.

use crate::support::{
    TestGateway,
    gateway::hello,
    portal::{Browser, SCRIPT},
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn a_key_is_shown_once_works_is_disabled_enabled_and_deleted() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let empty = browser.get("/portal/keys").await;
    assert!(empty.assert_page().contains("No API keys yet"));

    let (id, key) = browser.new_key("work-horse").await;
    let list = browser.get("/portal/keys").await;
    let page = list.assert_page();
    assert!(page.contains("work-horse") && page.contains(&key[..12]) && page.contains(">never<"));
    assert!(!page.contains(&key), "a key is shown once");
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let list = browser.get("/portal/keys").await;
    assert!(!list.assert_page().contains(">never<"), "it was used");

    let disable = format!("/portal/keys/{id}/disable");
    browser
        .post(&disable, &[])
        .await
        .assert_sent_to("/portal/keys");
    let refused = gateway.chat_as(&key, &hello(MODEL)).await;
    refused.assert_error(401, "authentication_error", Some("invalid_api_key"), None);
    assert!(browser.get("/portal/keys").await.text.contains("disabled"));

    let enable = format!("/portal/keys/{id}/enable");
    browser
        .post(&enable, &[])
        .await
        .assert_sent_to("/portal/keys");
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();

    let delete = format!("/portal/keys/{id}/delete");
    let confirmation = browser.get(&delete).await;
    assert!(confirmation.assert_page().contains("Delete work-horse?"));
    browser
        .post(&delete, &[])
        .await
        .assert_sent_to("/portal/keys");
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 401);
    let list = browser.get("/portal/keys").await;
    assert!(list.assert_page().contains("Key work-horse deleted."));
    let list = browser.get("/portal/keys").await;
    assert!(!list.assert_page().contains("work-horse"));
    assert_eq!(
        browser.get(&delete).await.status,
        404,
        "it is gone for good"
    );
    browser.get("/portal/keys").await;
    assert_eq!(browser.post(&enable, &[]).await.status, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn a_new_key_comes_with_requests_that_work() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    browser.get("/portal/keys").await;
    let made = browser.post("/portal/keys", &[("name", "first")]).await;
    let page = made.assert_page();
    for part in [
        format!("curl {}/v1/chat/completions", browser.origin()),
        "from openai import OpenAI".to_owned(),
        "import OpenAI from &quot;openai&quot;".to_owned(),
    ] {
        assert!(page.contains(&part), "no {part} in {page}");
    }
    assert!(!page.contains("YOUR_API_KEY"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_is_needed_and_is_only_a_name() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    browser.get("/portal/keys").await;
    for wrong in ["", "   ", &"x".repeat(101), "two\nlines"] {
        let refused = browser.post("/portal/keys", &[("name", wrong)]).await;
        assert!(refused.text.contains("A key needs a name"), "{wrong:?}");
    }
    let (_, _) = browser.new_key(SCRIPT).await;
    let list = browser.get("/portal/keys").await;
    assert!(!list.text.contains(SCRIPT));
    assert!(list.text.contains("&lt;script&gt;"));
    gateway.stop().await;
}

#[tokio::test]
async fn another_accounts_key_is_not_found() {
    let gateway = TestGateway::start().await;
    let (owner, other) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    let (id, key) = owner.new_key("mine").await;
    other.get("/portal/keys").await;
    for verb in ["disable", "enable", "delete"] {
        let refused = other.post(&format!("/portal/keys/{id}/{verb}"), &[]).await;
        assert_eq!(refused.status, 404, "{verb}");
    }
    assert_eq!(
        other.get(&format!("/portal/keys/{id}/delete")).await.status,
        404
    );
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_that_is_sent_again_makes_no_other_key() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let page = browser.get("/portal/keys").await;
    let once = page.between("name=\"once\" value=\"", "\"");
    let form = [("name", "work-horse"), ("once", once)];
    let made = browser.post("/portal/keys", &form).await;
    let key = made.between("id=\"new-key\">", "<");
    assert!(key.starts_with("sk-svc-"), "{key}");
    let again = browser.post("/portal/keys", &form).await;
    let text = again.assert_page();
    assert!(text.contains("was sent before") && !text.contains("id=\"new-key\""));
    assert_eq!(text.matches("<code>sk-svc-").count(), 1, "{text}");
}
