//! The secret that signs the portal's cookies: in the store, the same for all gateways of a store, and replaceable.

use std::time::Duration;

use reqwest::Method;
use tempfile::TempDir;

use crate::support::{
    TestGateway,
    console::{actions, with_token},
    portal::{Browser, PASSWORD},
    stores,
};

const DEVICE: &str = "tollgate-device";
const SESSION: &str = "tollgate-session";

/// Whether the gateway recognises this browser of a person whom strangers have made unknown browsers wait for.
async fn is_known(gateway: &TestGateway, email: &str, device: &str) -> bool {
    let guesser = Browser::new(gateway);
    while guesser.sign_in(email, "a wrong guess").await.status != 429 {}
    let browser = Browser::new(gateway);
    browser.set_cookie(DEVICE, device);
    let seen = browser.sign_in(email, PASSWORD).await;
    assert!(matches!(seen.status, 303 | 429), "{}", seen.text);
    seen.status == 303
}

/// A browser with the cookies of another, at this gateway.
fn moved(browser: &Browser, gateway: &TestGateway) -> Browser {
    let moved = Browser::new(gateway);
    moved.set_cookie(SESSION, &browser.cookie(SESSION).unwrap());
    moved
}

async fn rotate(gateway: &TestGateway) {
    let rotated = gateway.operate(Method::POST, "/operator/secret/rotate", None);
    let rotated = rotated.await.assert_ok().clone();
    // The secret itself is in no response.
    let keys: Vec<_> = rotated.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["object", "name", "rotated_at"]);
}

/// If cookies depended on the operator token alone, a cookie would tell whether a guess of the token is right.
#[tokio::test]
async fn cookies_do_not_depend_on_the_operator_token_alone() {
    let (one, other) = (TestGateway::start().await, TestGateway::start().await);
    let browser = Browser::signed_in(&one).await;
    let device = browser.cookie(DEVICE).unwrap();
    Browser::new(&other).sign_up(&browser.email).await;
    assert!(!is_known(&other, &browser.email, &device).await);
    assert!(is_known(&one, &browser.email, &device).await);
    // The secret is stored: after a restart, the browser is known and the operator signed in.
    let operator = with_token(&one).await;
    let one = TestGateway::start_in(one.stop().await, "").await;
    assert!(is_known(&one, &browser.email, &device).await);
    let operator = moved(&operator, &one);
    operator.get("/portal/console").await.assert_page();
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_rotation_ends_what_the_previous_secret_has_signed() {
    let gateway = TestGateway::start().await;
    let (browser, operator) = (
        Browser::signed_in(&gateway).await,
        with_token(&gateway).await,
    );
    let device = browser.cookie(DEVICE).unwrap();
    rotate(&gateway).await;
    assert_eq!(operator.get("/portal/console").await.status, 303);
    with_token(&gateway)
        .await
        .get("/portal/console")
        .await
        .assert_page();
    // Sessions of people are random numbers in the store, which nothing signs.
    browser.get("/portal/settings").await.assert_page();
    assert!(!is_known(&gateway, &browser.email, &device).await);
    let action = &actions(&gateway, None).await[0];
    assert_eq!(
        (&*action.what, &*action.subject),
        ("secret.rotate", "cookies")
    );
    assert_eq!((&action.before, &action.after), (&None, &None));
    gateway.stop().await;
}

#[tokio::test]
async fn gateways_with_one_database_share_the_secret() {
    if !stores::are_shared() {
        return;
    }
    let folders = (TempDir::new().unwrap(), TempDir::new().unwrap());
    stores::remember(folders.1.path(), &stores::database(folders.0.path()));
    let one = TestGateway::start_in(folders.0, "").await;
    let other = TestGateway::start_in(folders.1, "").await;
    let browser = Browser::signed_in(&one).await;
    let device = browser.cookie(DEVICE).unwrap();
    assert!(is_known(&other, &browser.email, &device).await);
    let operator = with_token(&one).await;
    let elsewhere = moved(&operator, &other);
    elsewhere.get("/portal/console").await.assert_page();
    rotate(&one).await;
    assert_eq!(operator.get("/portal/console").await.status, 303);
    // The other gateway reads the secret again within seconds.
    let mut polls = 0;
    while elsewhere.get("/portal/console").await.status == 200 {
        polls += 1;
        assert!(
            polls < 600,
            "the other gateway goes on with the previous secret"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let operator = moved(&with_token(&one).await, &other);
    operator.get("/portal/console").await.assert_page();
    one.stop().await;
    other.stop().await;
}
