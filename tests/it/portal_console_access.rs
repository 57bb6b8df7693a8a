//! Access to the console.

use reqwest::Method;
use tollgate::backoffice::Role;

use crate::support::{
    TestGateway,
    console::{PAGES, give_token, person, set_role, with_token},
    gateway::{OPERATOR_TOKEN, hello},
    portal::{Browser, FORM, PASSWORD, encoded},
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn strangers_are_sent_to_sign_in_and_customers_find_nothing() {
    let gateway = TestGateway::start().await;
    let (stranger, customer) = (Browser::new(&gateway), Browser::signed_in(&gateway).await);
    let account = format!("/portal/console/accounts/{}", gateway.account_id);
    for page in PAGES.into_iter().chain([account.as_str()]) {
        let to = page.replace('/', "%2F").replace('_', "%5F");
        let sent = stranger.get(page).await;
        sent.assert_sent_to(&format!("/portal/console/sign-in?to={to}"));
        assert_eq!(customer.get(page).await.status, 404, "{page}");
    }
    assert_eq!(customer.get("/portal/console/sign-in").await.status, 404);
    assert_eq!(customer.get("/portal/console/live").await.status, 404);
    // Without a session, htmx is told to reload the page, which redirects to the sign-in page.
    let part = stranger.get("/portal/console/live").await;
    assert_eq!((part.status, part.header("hx-refresh")), (204, "true"));
    let overview = customer.get("/portal").await;
    assert!(!overview.assert_page().contains("/portal/console"));

    let close = format!("{account}/state");
    let fields = [("state", "closed")];
    assert_eq!(customer.post(&close, &fields).await.status, 404);
    let sent = stranger.post(&close, &fields).await;
    sent.assert_sent_to("/portal/console/sign-in?to=%2Fportal%2Fconsole");
    gateway.chat(&hello(MODEL)).await.assert_ok();
    gateway.stop().await;
}

#[tokio::test]
async fn the_operator_token_opens_the_console_and_nothing_else() {
    let gateway = TestGateway::start().await;
    let browser = Browser::new(&gateway);
    let wrong = give_token(&browser, &OPERATOR_TOKEN[1..]).await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text.contains("Wrong operator token."));
    assert_eq!(browser.cookie("tollgate-session"), None);

    let page = "/portal/console/sign-in?to=%2Fportal%2Fconsole%2Flimits";
    browser.get(page).await.assert_page();
    let fields = [("secret", OPERATOR_TOKEN), ("to", "/portal/console/limits")];
    let signed_in = browser.post("/portal/console/sign-in", &fields).await;
    signed_in.assert_sent_to("/portal/console/limits");
    for page in PAGES {
        let seen = browser.get(page).await;
        let text = seen.assert_page();
        assert_eq!(text.matches("<h1").count(), 1, "{page}");
        assert_eq!(seen.header("cache-control"), "no-store", "{page}");
        for not in [
            "<style",
            "style=\"",
            " onclick",
            "<script>",
            "href=\"/portal\"",
        ] {
            assert!(!text.contains(not), "{page} has {not}");
        }
    }
    // The operator token has no account, so the portal's own pages redirect to sign in.
    assert_eq!(browser.get("/portal").await.status, 303);
    browser
        .get("/portal/console/sign-in")
        .await
        .assert_sent_to("/portal/console");

    browser.get("/portal/console").await.assert_page();
    let stolen = browser.cookie("tollgate-session").unwrap();
    let out = browser.post("/portal/console/sign-out", &[]).await;
    out.assert_sent_to("/portal/console/sign-in");
    let thief = Browser::new(&gateway);
    thief.set_cookie("tollgate-session", &stolen);
    assert_eq!(thief.get("/portal/console").await.status, 303);
    gateway.stop().await;
}

#[tokio::test]
async fn guessing_at_the_operator_token_is_slowed_down() {
    let gateway = TestGateway::start().await;
    let guesser = Browser::new(&gateway);
    let mut statuses = Vec::new();
    for guess in 0..10 {
        let answer = give_token(&guesser, &format!("guess {guess}")).await;
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [[401; 8].as_slice(), &[429; 2]].concat());
    assert_eq!(give_token(&guesser, OPERATOR_TOKEN).await.status, 429);
    gateway.stop().await;
}

#[tokio::test]
async fn an_operator_with_an_account_uses_portal_and_console_until_the_role_is_removed() {
    let gateway = TestGateway::start().await;
    let browser = person(&gateway).await;
    let portal = browser.get("/portal").await;
    assert!(portal.assert_page().contains("href=\"/portal/console\""));
    let console = browser.get("/portal/console").await;
    assert!(console.assert_page().contains("href=\"/portal\""));
    assert!(console.text.contains(&browser.email));
    set_role(&gateway, &browser, Role::Customer).await;
    assert_eq!(browser.get("/portal/console").await.status, 404);

    // Signing in with an email address redirects to the requested page of the console.
    set_role(&gateway, &browser, Role::Operator).await;
    browser.get("/portal").await;
    browser.post("/portal/sign-out", &[]).await;
    browser.get("/portal/sign-in").await.assert_page();
    let fields = [
        ("email", browser.email.as_str()),
        ("password", PASSWORD),
        ("to", "/portal/console"),
    ];
    let signed_in = browser.post("/portal/sign-in", &fields).await;
    signed_in.assert_sent_to("/portal/console");
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_of_the_console_needs_its_token_and_our_own_origin() {
    let gateway = TestGateway::start().await;
    let (browser, other) = (with_token(&gateway).await, with_token(&gateway).await);
    other.get("/portal/console").await;
    browser.get("/portal/console").await;
    let path = format!("/portal/console/accounts/{}/state", gateway.account_id);
    let post = |origin: Option<&str>, token: &str| {
        let mut request = browser.request(Method::POST, &path);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let body = encoded(&[("token", token), ("state", "closed")]);
        browser.send(request.header("content-type", FORM).body(body))
    };
    let (own, right) = (browser.origin().to_owned(), browser.token());
    assert_eq!(post(Some("https://evil.example"), &right).await.status, 403);
    assert_eq!(post(None, &right).await.status, 403);
    assert_eq!(post(Some(&own), "").await.status, 403);
    assert_eq!(post(Some(&own), &other.token()).await.status, 403);
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(post(Some(&own), &right).await.status, 303);
    assert_eq!(gateway.chat(&hello(MODEL)).await.status, 402);
    gateway.stop().await;
}

#[tokio::test]
async fn the_console_can_be_switched_off_for_operators_too() {
    let gateway = TestGateway::start_set(&[("PORTAL__CONSOLE", "false")]).await;
    let (stranger, operator) = (Browser::new(&gateway), person(&gateway).await);
    let portal = operator.get("/portal").await;
    assert!(!portal.assert_page().contains("/portal/console"));
    let unknown = operator.get("/portal/nothing-here").await;
    let more = ["/portal/console/sign-in", "/portal/console/live"];
    for page in PAGES.into_iter().chain(more) {
        for browser in [&stranger, &operator] {
            let seen = browser.get(page).await;
            assert_eq!((seen.status, &seen.text), (404, &unknown.text), "{page}");
        }
    }
    let fields = [("secret", OPERATOR_TOKEN)];
    let refused = operator.post("/portal/console/sign-in", &fields).await;
    assert_eq!(refused.status, 404);
    gateway.stop().await;
}
