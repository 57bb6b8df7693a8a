//! Emails of the portal: sign-up links, password resets, and what the log contains of them.

use std::net::TcpListener;

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Process, TestGateway,
    gateway::OPERATOR_TOKEN,
    portal::{Browser, PASSWORD, Seen},
    process::{run, text},
    smtp::{self, FakeSmtp},
    stores,
};

async fn follow(browser: &Browser, link: &str, password: &str) -> Seen {
    browser.get(link).await.assert_page();
    let secret = link.split_once("?link=").unwrap().1;
    let fields = [("link", secret), ("password", password)];
    browser.post("/portal/welcome", &fields).await
}

async fn forget(browser: &Browser, email: &str) -> Seen {
    browser.get("/portal/forgotten").await.assert_page();
    browser.post("/portal/forgotten", &[("email", email)]).await
}

/// The page's text without the visitor's email address.
fn plain(seen: &Seen, email: &str) -> String {
    assert_eq!(seen.status, 200, "{}", seen.text);
    seen.text.replace(email, "")
}

#[tokio::test]
async fn an_account_is_created_through_the_emailed_link() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let browser = Browser::new(&gateway);
    let form = browser.get("/portal/sign-up").await;
    assert!(!form.assert_page().contains("type=\"password\""));
    for wrong in ["", "me", "x<me@example.com>", "a b@example.com"] {
        let refused = browser.post("/portal/sign-up", &[("email", wrong)]).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
    let email = "ada@example.com";
    // A password in the request is ignored; it is set through the emailed link.
    let fields = [("email", email), ("name", "Ada"), ("password", PASSWORD)];
    let response = browser.post("/portal/sign-up", &fields).await;
    let for_a_new_one = plain(&response, email);
    assert!(for_a_new_one.contains("Check your inbox"));
    assert_eq!(browser.cookie("tollgate-session"), None);
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, email);
    let refused = browser.sign_in(email, PASSWORD).await;
    assert_eq!(refused.status, 401, "nothing is made yet");

    let elsewhere = Browser::new(&gateway);
    let page = elsewhere.get(&mail.link()).await;
    assert!(page.assert_page().contains("value=\"Ada\""));
    let joined = follow(&elsewhere, &mail.link(), "a password of mine").await;
    joined.assert_sent_to("/portal");
    elsewhere.get("/portal").await.assert_page();
    let settings = elsewhere.get("/portal/settings").await;
    assert!(settings.assert_page().contains(">acct_"));
    assert_eq!(browser.get(&mail.link()).await.status, 410);

    // Signing up with a known address shows an identical page; only the email says that there is an account.
    browser.get("/portal/sign-up").await.assert_page();
    let known = "ADA@example.com";
    let response = browser.post("/portal/sign-up", &[("email", known)]).await;
    assert_eq!(plain(&response, known), for_a_new_one);
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, email, "to the address as it is kept");
    assert!(mail.text.contains("which already has one"));
    assert!(!mail.text.contains("?link="));

    // Emails to one address are throttled.
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let response = browser.post("/portal/sign-up", &[("email", known)]).await;
        statuses.push(response.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    let reset = forget(&browser, email).await;
    assert_eq!(reset.status, 429);
    gateway.stop().await;
}

#[tokio::test]
async fn a_password_reset_does_not_reveal_whether_the_account_exists() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let email = "ada@example.com";
    let path = format!("/operator/accounts/{}/invitations", gateway.account_id);
    let body = json!({ "email": email });
    let made = gateway.operate(Method::POST, &path, Some(body)).await;
    assert_eq!(made.assert_ok()["mailed"], true);
    let owner = Browser::new(&gateway);
    follow(&owner, &smtp.next_mail().await.link(), PASSWORD)
        .await
        .assert_sent_to("/portal");

    let stranger = Browser::new(&gateway);
    let sign_in = stranger.get("/portal/sign-in").await;
    assert!(sign_in.assert_page().contains("/portal/forgotten"));
    let unknown = forget(&stranger, "nobody@example.com").await;
    let known = forget(&stranger, email).await;
    assert_eq!(plain(&known, email), plain(&unknown, "nobody@example.com"));
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, email);
    gateway.idle().await;
    assert!(smtp.is_empty(), "no other email was sent");
    owner.get("/portal").await.assert_page();
    let set = follow(&stranger, &mail.link(), "another password").await;
    set.assert_sent_to("/portal");
    stranger.get("/portal").await.assert_page();
    assert_eq!(owner.get("/portal").await.status, 303);
    assert_eq!(owner.sign_in(email, PASSWORD).await.status, 401);

    // The page is identical if the mail server refuses the email.
    smtp.refuse(true);
    let again = forget(&stranger, email).await;
    assert_eq!(plain(&again, email), plain(&known, email));
    gateway.idle().await;
    assert!(smtp.is_empty());
    gateway.stop().await;

    let without = TestGateway::start().await;
    let browser = Browser::new(&without);
    assert_eq!(browser.get("/portal/forgotten").await.status, 404);
    let sign_in = browser.get("/portal/sign-in").await;
    assert!(sign_in.assert_page().contains("Ask the operator"));
    without.stop().await;
}

fn config(folder: &TempDir, mail: &str) -> std::path::PathBuf {
    let file = folder.path().join("tollgate.toml");
    let written = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n{}\
         portal.sign_up = \"open\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n{mail}",
        stores::quick_lines(folder.path()),
    );
    std::fs::write(&file, written).unwrap();
    file
}

#[tokio::test]
async fn a_failed_email_is_logged_without_its_link() {
    let smtp = FakeSmtp::start().await;
    let folder = TempDir::new().unwrap();
    let file = config(&folder, &smtp.section());
    let environment = [("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN)];
    let (mut process, public, _) = Process::serve(&file, &environment).await;
    let browser = Browser::at(public);
    browser.get("/portal/sign-up").await.assert_page();
    let ask = [("email", "ada@example.com")];
    browser.post("/portal/sign-up", &ask).await.assert_page();
    let link = smtp.next_mail().await.link();
    follow(&browser, &link, PASSWORD)
        .await
        .assert_sent_to("/portal");
    smtp.refuse(true);
    let response = forget(&browser, "ada@example.com").await;
    assert!(response.assert_page().contains("Check your inbox"));
    let said = "sending an email failed";
    process
        .until(|process| process.stderr().contains(said))
        .await;
    let ended = process.terminated().await;
    let log = ended.stderr + &ended.stdout;
    assert!(log.contains("nobody here wants that"), "{log}");
    assert!(log.contains("\"/portal/welcome\""), "{log}");
    let secret = link.split_once("?link=").unwrap().1;
    for hidden in [secret, "?link", smtp::PASSWORD, PASSWORD] {
        assert!(!log.contains(hidden), "{hidden} is in {log}");
    }
}

#[tokio::test]
async fn check_connects_to_the_mail_server() {
    let smtp = FakeSmtp::start().await;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let deaf = format!(
        "[mail]\nurl = \"smtp://{}\"\nfrom = \"gate@example.org\"\n",
        nobody.unwrap()
    );
    let strange = smtp.section().replace(smtp::PASSWORD, "another");
    for (mail, code, words) in [
        (smtp.section(), 0, "ok    mail: emails are sent from Gate"),
        (deaf, 1, "wrong mail: "),
        (strange, 1, "who are you?"),
        (
            "[mail]\nurl = \"smtp://a\"\n".into(),
            1,
            "`mail.from` is missing",
        ),
        (
            "[mail]\nfrom = \"a@b.c\"\n".into(),
            1,
            "`mail.url` is missing",
        ),
        (
            "[mail]\nurl = \"http://u:hush@a\"\nfrom = \"a@b.c\"\n".into(),
            1,
            "`mail.url` cannot be used",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let file = config(&folder, &mail);
        let checked = tokio::task::spawn_blocking(move || {
            let token = [("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN)];
            run(&["check", "--config", file.to_str().unwrap()], &token)
        });
        let output = checked.await.unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words}: {said}");
        assert!(!said.contains("hush") && !said.contains(smtp::PASSWORD));
    }
}
