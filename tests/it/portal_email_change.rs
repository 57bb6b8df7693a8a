//! Changing one's email address and name.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    console::actions,
    portal::{Browser, PASSWORD, SCRIPT, Seen},
    smtp::FakeSmtp,
};

const FORM: &str = "/portal/settings/email";
const CONFIRM: &str = "/portal/settings/email/confirm";

async fn change(browser: &Browser, email: &str) -> Seen {
    browser.get("/portal/settings").await.assert_page();
    let fields = [("email", email), ("present", PASSWORD)];
    browser.post(FORM, &fields).await
}

/// The account's email address in the ledger.
async fn account_email(gateway: &TestGateway, browser: &Browser) -> String {
    let path = format!("/operator/accounts/{}", browser.account_id);
    let account = gateway.operate(Method::GET, &path, None).await;
    account.assert_ok()["email"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_a_mail_server_the_address_changes_with_the_password() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let taken = Browser::signed_in(&gateway).await;
    let member = browser.member(&gateway, "developer").await;
    let elsewhere = Browser::new(&gateway);
    elsewhere
        .sign_in(&browser.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    let new = "New.Address@example.com";
    browser.get("/portal/settings").await.assert_page();
    for wrong in [
        [("email", new), ("present", "not the password")],
        [("email", new), ("x", "")],
        [("email", "no address"), ("present", PASSWORD)],
        [("email", taken.email.as_str()), ("present", PASSWORD)],
        [("email", browser.email.as_str()), ("present", PASSWORD)],
    ] {
        let refused = browser.post(FORM, &wrong).await;
        assert_eq!(refused.status, 400, "{wrong:?}");
        assert!(refused.text.contains("<details open"), "{wrong:?}");
    }
    elsewhere.get("/portal").await.assert_page();
    let before = browser.cookie("tollgate-session");
    change(&browser, new)
        .await
        .assert_sent_to("/portal/settings");
    assert_ne!(browser.cookie("tollgate-session"), before);
    let settings = browser.get("/portal/settings").await;
    let text = format!("Email changed to {new}.");
    assert!(settings.assert_page().contains(&text));
    let settings = browser.get("/portal/settings").await;
    assert!(!settings.assert_page().contains(&text), "shown once");
    assert_eq!(elsewhere.get("/portal").await.status, 303);
    assert_eq!(account_email(&gateway, &browser).await, new);
    assert_eq!(
        elsewhere.sign_in(&browser.email, PASSWORD).await.status,
        401
    );
    let signed_in = elsewhere.sign_in("new.address@EXAMPLE.com", PASSWORD).await;
    signed_in.assert_sent_to("/portal");

    // The former address is free again. A member's address is not the account's.
    change(&member, &browser.email)
        .await
        .assert_sent_to("/portal/settings");
    assert_eq!(account_email(&gateway, &browser).await, new);
    let person = gateway.inside().backoffice.person_by_email(new).await;
    let recorded = actions(&gateway, Some(&person.unwrap().unwrap().id)).await;
    let recorded = recorded.iter().find(|it| it.what == "person.email");
    let recorded = recorded.unwrap();
    assert_eq!(recorded.actor, browser.email);
    assert_eq!(recorded.after, Some(json!({ "email": new }).to_string()));
    gateway.stop().await;
}

/// The response tells whether an address is in use.
#[tokio::test]
async fn without_a_mail_server_few_addresses_can_be_tried() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let other = Browser::signed_in(&gateway).await;
    for _ in 0..5 {
        let refused = change(&browser, &other.email).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("This address cannot be used."));
    }
    for email in [other.email.as_str(), "free@example.com"] {
        assert_eq!(change(&browser, email).await.status, 429, "{email}");
    }
    // The limit is the person's own.
    change(&other, "free@example.com")
        .await
        .assert_sent_to("/portal/settings");
    gateway.stop().await;
}

#[tokio::test]
async fn with_a_mail_server_the_new_address_proves_itself() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let [ada, bob] = ["ada@example.com", "bob@example.com"];
    let mut browsers = Vec::new();
    for email in [ada, bob] {
        let path = format!("/operator/accounts/{}/invitations", gateway.account_id);
        let body = json!({ "email": email });
        let made = gateway.operate(Method::POST, &path, Some(body)).await;
        made.assert_ok();
        let browser = Browser::new(&gateway);
        let link = smtp.next_mail().await.link();
        browser.join(&link).await.assert_sent_to("/portal");
        browsers.push(browser);
    }
    let [browser, other]: [Browser; 2] = browsers.try_into().ok().unwrap();
    // A taken address gets an email without a link; the page says the same.
    change(&browser, bob)
        .await
        .assert_sent_to("/portal/settings");
    let page = browser.get("/portal/settings").await;
    assert!(page.assert_page().contains("Check your inbox"));
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, bob);
    assert!(!mail.text.contains("link="), "{}", mail.text);

    let new = "ada@new.example.com";
    change(&browser, new)
        .await
        .assert_sent_to("/portal/settings");
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, new);
    let first = mail.link();
    change(&browser, new)
        .await
        .assert_sent_to("/portal/settings");
    let link = smtp.next_mail().await.link();
    assert_eq!(browser.get(&first).await.status, 410, "replaced");
    let secret = link.split_once("?link=").unwrap().1.to_owned();
    // The owner of the new mailbox who is not signed in as Ada cannot use the link.
    let stranger = Browser::new(&gateway);
    let sent = stranger.get(&link).await;
    assert_eq!(sent.status, 303);
    assert!(sent.header("location").starts_with("/portal/sign-in?to="));
    assert_eq!(other.get(&link).await.status, 410);
    let refused = other.post(CONFIRM, &[("link", &secret)]).await;
    assert_eq!(refused.status, 410);
    let welcome = stranger
        .get(&format!("/portal/welcome?link={secret}"))
        .await;
    assert_eq!(welcome.status, 410);
    stranger.get("/portal/sign-in").await.assert_page();
    let joined = [("link", secret.as_str()), ("password", PASSWORD)];
    assert_eq!(stranger.post("/portal/welcome", &joined).await.status, 410);

    let elsewhere = Browser::new(&gateway);
    elsewhere
        .sign_in(ada, PASSWORD)
        .await
        .assert_sent_to("/portal");
    let asks = browser.get(&link).await;
    assert!(asks.assert_page().contains(new));
    elsewhere.get("/portal").await.assert_page();
    let done = browser.post(CONFIRM, &[("link", &secret)]).await;
    done.assert_sent_to("/portal/settings");
    assert_eq!(elsewhere.get("/portal").await.status, 303);
    let settings = browser.get("/portal/settings").await;
    assert!(
        settings
            .assert_page()
            .contains("Email changed to ada@new.example.com.")
    );
    let told = smtp.next_mail().await;
    assert_eq!(told.to, ada);
    assert!(told.text.contains("no longer signs in"));
    assert!(!told.text.contains("password"), "{}", told.text);
    let again = browser.post(CONFIRM, &[("link", &secret)]).await;
    assert_eq!(again.status, 410, "used");

    // A password change ends a link that is under way.
    change(&browser, "ada@third.example.com").await;
    let third = smtp.next_mail().await.link();
    browser.get("/portal/settings").await.assert_page();
    let password = [("present", PASSWORD), ("new", "another password")];
    let changed = browser.post("/portal/settings/password", &password).await;
    changed.assert_sent_to("/portal/settings");
    assert_eq!(browser.get(&third).await.status, 410);
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_is_saved_and_can_be_undone() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    browser.get("/portal/settings").await.assert_page();
    let path = "/portal/settings/profile";
    let long = "x".repeat(101);
    for wrong in [long.as_str(), "a\nb"] {
        let refused = browser.post(path, &[("name", wrong)]).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
    let saved = browser.post(path, &[("name", SCRIPT)]).await;
    saved.assert_sent_to("/portal/settings");
    let settings = browser.get("/portal/settings").await;
    let shown = settings.assert_page();
    assert!(shown.contains("Name saved.") && shown.contains("Undo"));
    assert!(!shown.contains(SCRIPT) && shown.contains("&lt;script&gt;"));
    browser.post(path, &[("name", "")]).await;
    // The page after it has the name before in its button to undo.
    browser.get("/portal/settings").await.assert_page();
    let settings = browser.get("/portal/settings").await;
    assert!(!settings.assert_page().contains("&lt;script&gt;"));
    gateway.stop().await;
}
