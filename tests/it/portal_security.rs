//! Security of the portal: access, forms, sessions, throttling and response headers.

use futures_util::future::join_all;
use reqwest::Method;

use crate::support::{
    TestGateway,
    portal::{Browser, FORM, PASSWORD, encoded},
    stripe::FakeStripe,
};

const PAGES: [&str; 11] = [
    "/portal",
    "/portal/keys",
    "/portal/playground",
    "/portal/usage",
    "/portal/requests",
    "/portal/requests/refused",
    "/portal/billing",
    "/portal/plan",
    "/portal/models",
    "/portal/members",
    "/portal/settings",
];

#[tokio::test]
async fn pages_need_a_session() {
    let gateway = TestGateway::start().await;
    let nobody = Browser::new(&gateway);
    for page in PAGES {
        let seen = nobody.get(page).await;
        let to = format!("/portal/sign-in?to={}", page.replace('/', "%2F"));
        seen.assert_sent_to(&to);
    }
    let somebody = Browser::signed_in(&gateway).await;
    for page in PAGES {
        let seen = somebody.get(page).await;
        seen.assert_page();
        assert_eq!(seen.header("cache-control"), "no-store", "{page}");
        assert_eq!(seen.text.matches("<h1").count(), 1, "{page}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    for page in ["/portal", "/portal/sign-in", "/portal/nothing-here"] {
        let seen = browser.get(page).await;
        let policy = seen.header("content-security-policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(seen.header("x-frame-options"), "DENY");
        assert_eq!(seen.header("x-content-type-options"), "nosniff");
        assert_eq!(seen.header("referrer-policy"), "same-origin");
        for inline in ["<style", "style=\"", " onclick", "<script>"] {
            assert!(!seen.text.contains(inline), "{page} has {inline}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_needs_its_token_and_our_own_origin() {
    let gateway = TestGateway::start().await;
    let (browser, other) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    other.get("/portal/keys").await;
    browser.get("/portal/keys").await;
    let post = |origin: Option<&str>, token: &str| {
        let mut request = browser.request(Method::POST, "/portal/keys");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let body = encoded(&[("token", token), ("name", "forged")]);
        browser.send(request.header("content-type", FORM).body(body))
    };
    let (own, right) = (browser.origin().to_owned(), browser.token());
    assert_eq!(post(Some("https://evil.example"), &right).await.status, 403);
    assert_eq!(post(Some("null"), &right).await.status, 403);
    assert_eq!(post(None, &right).await.status, 403);
    assert_eq!(post(Some(&own), "").await.status, 403);
    assert_eq!(post(Some(&own), &other.token()).await.status, 403);
    let list = browser.get("/portal/keys").await;
    assert!(!list.text.contains("forged"), "nothing was done");
    post(Some(&own), &right).await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn forms_are_taken_by_http2_and_under_any_name_too() {
    let gateway = TestGateway::start().await;
    let email = Browser::signed_in(&gateway).await.email;
    let browser = Browser::over_http2(&gateway);
    let signed_in = browser.sign_in(&email, PASSWORD).await;
    signed_in.assert_sent_to("/portal");
    browser.new_key("by HTTP/2").await;
    let forged = browser.request(Method::POST, "/portal/sign-out");
    let forged = forged.header("origin", "http://evil.example");
    let body = encoded(&[("token", &browser.token())]);
    let forged = forged.header("content-type", FORM).body(body);
    assert_eq!(browser.send(forged).await.status, 403);
    gateway.stop().await;
}

#[tokio::test]
async fn signing_in_is_a_new_session_and_signing_out_is_its_end() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let first = browser.cookie("tollgate-session").unwrap();
    browser
        .sign_in(&browser.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    let second = browser.cookie("tollgate-session").unwrap();
    assert_ne!(first, second);
    browser.get("/portal").await.assert_page();

    let thief = Browser::new(&gateway);
    thief.set_cookie("tollgate-session", &first);
    assert_eq!(
        thief.get("/portal").await.status,
        303,
        "the first one is over"
    );
    browser
        .post("/portal/sign-out", &[])
        .await
        .assert_sent_to("/portal/sign-in");
    assert_eq!(browser.cookie("tollgate-session"), None);
    thief.set_cookie("tollgate-session", &second);
    assert_eq!(
        thief.get("/portal").await.status,
        303,
        "and so is the second"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_cannot_be_chosen_from_outside() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let (victim, chosen) = (Browser::new(&gateway), "x".repeat(43));
    victim.set_cookie("tollgate-session", &chosen);
    victim
        .sign_in(&browser.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    assert_ne!(victim.cookie("tollgate-session").unwrap(), chosen);
    gateway.stop().await;
}

#[tokio::test]
async fn sign_in_does_not_reveal_which_addresses_have_accounts() {
    let gateway = TestGateway::start().await;
    let known = Browser::signed_in(&gateway).await.email;
    let mut answers = Vec::new();
    for email in [known.as_str(), "nobody@example.com"] {
        let stranger = Browser::new(&gateway);
        let refused = stranger.sign_in(email, "not the password").await;
        assert_eq!(refused.status, 401);
        answers.push(
            refused
                .text
                .replace(email, "")
                .replace(&stranger.token(), ""),
        );
    }
    assert_eq!(answers[0], answers[1]);
    gateway.stop().await;
}

#[tokio::test]
async fn guessing_is_slowed_down_and_the_owner_is_not() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let guesser = Browser::new(&gateway);
    let mut statuses = Vec::new();
    for guess in 0..10 {
        let answer = guesser
            .sign_in(&owner.email, &format!("a wrong guess {guess}"))
            .await;
        statuses.push(answer.status);
        if answer.status == 429 {
            assert!(!answer.header("retry-after").is_empty());
        }
    }
    assert_eq!(statuses, [[401; 8].as_slice(), &[429; 2]].concat());
    // The throttled client is refused even with the right password; the owner's known device is not.
    assert_eq!(guesser.sign_in(&owner.email, PASSWORD).await.status, 429);
    owner.post("/portal/sign-out", &[]).await;
    owner
        .sign_in(&owner.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    gateway.stop().await;
}

#[tokio::test]
async fn a_changed_password_ends_every_other_session() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let elsewhere = Browser::new(&gateway);
    elsewhere
        .sign_in(&browser.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    browser.get("/portal/settings").await.assert_page();
    let wrong = [("present", "not the password"), ("new", "another password")];
    let refused = browser.post("/portal/settings/password", &wrong).await;
    assert_eq!(refused.status, 400);
    let short = [("present", PASSWORD), ("new", "short")];
    assert_eq!(
        browser
            .post("/portal/settings/password", &short)
            .await
            .status,
        400
    );
    let before = browser.cookie("tollgate-session");
    let right = [("present", PASSWORD), ("new", "another password")];
    let changed = browser.post("/portal/settings/password", &right).await;
    changed.assert_sent_to("/portal/settings");
    assert_ne!(browser.cookie("tollgate-session"), before, "it was rotated");
    browser.get("/portal").await.assert_page();
    assert_eq!(elsewhere.get("/portal").await.status, 303);
    assert_eq!(
        elsewhere.sign_in(&browser.email, PASSWORD).await.status,
        401
    );
    elsewhere
        .sign_in(&browser.email, "another password")
        .await
        .assert_sent_to("/portal");
    browser.get("/portal/settings").await;
    browser
        .post("/portal/settings/sessions", &[])
        .await
        .assert_sent_to("/portal/settings");
    assert_eq!(elsewhere.get("/portal").await.status, 303);
    gateway.stop().await;
}

#[tokio::test]
async fn an_address_is_used_once_and_must_be_one() {
    let gateway = TestGateway::start().await;
    let email = Browser::signed_in(&gateway).await.email;
    let other = Browser::new(&gateway);
    for taken in [email.clone(), email.to_uppercase()] {
        let refused = other.sign_up(&taken).await;
        assert_eq!(refused.status, 400, "{taken}");
    }
    for wrong in ["", "me", "@example.com", "me@", "a b@example.com"] {
        assert_eq!(other.sign_up(wrong).await.status, 400, "{wrong}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn sign_up_can_be_closed_and_the_portal_switched_off() {
    let closed = TestGateway::start_set(&[("PORTAL__SIGN_UP", "closed")]).await;
    let browser = Browser::new(&closed);
    assert_eq!(browser.get("/portal/sign-up").await.status, 403);
    let page = browser.get("/portal/sign-in").await;
    assert!(!page.assert_page().contains("/portal/sign-up"));
    let fields = [("email", "new@example.com"), ("password", PASSWORD)];
    assert_eq!(browser.post("/portal/sign-up", &fields).await.status, 403);
    closed.stop().await;

    let off = TestGateway::start_set(&[("PORTAL__ENABLED", "false")]).await;
    let seen = off.get("/portal").await;
    seen.assert_error(404, "not_found", Some("route_not_found"), None);
    off.stop().await;
}

#[tokio::test]
async fn a_link_from_another_site_reaches_its_page_with_a_session() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    // Following a link from another site, the browser sends no `SameSite=Strict` cookies at first.
    let stranger = Browser::new(&gateway);
    let link = stranger
        .request(Method::GET, "/portal/billing")
        .header("sec-fetch-site", "cross-site");
    let sent = stranger.send(link).await;
    let to = "/portal/sign-in?to=%2Fportal%2Fbilling";
    sent.assert_sent_to(to);
    let next = stranger
        .request(Method::GET, to)
        .header("sec-fetch-site", "cross-site");
    let bounced = stranger.send(next).await;
    assert!(bounced.text.contains("content=\"0; url=/portal/billing\""));
    browser.get("/portal/billing").await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn assets_are_cached_and_unknown_paths_not_found() {
    let gateway = TestGateway::start().await;
    let browser = Browser::new(&gateway);
    let page = browser.get("/portal/sign-in").await;
    let style = format!(
        "/portal/assets/portal-{}",
        page.between("/portal/assets/portal-", "\"")
    );
    let seen = browser.get(&style).await;
    assert_eq!(seen.status, 200);
    assert!(seen.header("cache-control").contains("immutable"));
    for missing in [
        "/portal/assets/portal.css",
        "/portal/assets/..%2f..%2fCargo.toml",
    ] {
        assert_eq!(browser.get(missing).await.status, 404);
    }
    gateway.stop().await;
}

/// Recorded changes are kept for good, so customers cannot make them without end.
#[tokio::test]
async fn changes_of_a_day_are_bounded() {
    const DETAILS: &str = "/portal/billing/details";
    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let browser = Browser::signed_in(&gateway).await;
    let (key, _) = browser.new_key("laptop").await;
    let member = browser.member(&gateway, "developer").await.email;
    browser.get(DETAILS).await.assert_page();
    let ada = [("bill_to", "Ada")];
    // The key, the invitation and these are 300.
    for together in [[13; 22].as_slice(), &[12]].concat() {
        let forms = (0..together).map(|_| browser.post(DETAILS, &ada));
        for saved in join_all(forms).await {
            saved.assert_sent_to("/portal/billing");
        }
    }
    for (path, field) in [
        (DETAILS, ("bill_to", "Eve")),
        ("/portal/settings/profile", ("name", "Eve")),
        ("/portal/keys", ("name", "another")),
    ] {
        let refused = browser.post(path, &[field]).await;
        assert_eq!(refused.status, 429, "{path}");
        assert!(refused.text.contains("<h1>Too many changes</h1>"));
        assert!(refused.text.contains("wait 24 hours and try again"));
        let seconds: u64 = refused.header("retry-after").parse().unwrap();
        assert!((80_000..=86_401).contains(&seconds), "{seconds}");
    }
    assert!(
        browser
            .get(DETAILS)
            .await
            .assert_page()
            .contains(">Ada</textarea>")
    );
    // What protects the account works on.
    let backoffice = &gateway.inside().backoffice;
    let found = backoffice.person_by_email(&member).await.unwrap();
    let id = found.unwrap().id;
    browser.get("/portal/keys").await.assert_page();
    for path in [
        format!("/portal/keys/{key}/disable"),
        format!("/portal/keys/{key}/delete"),
        format!("/portal/members/{id}/remove"),
        "/portal/billing/top-up/off".to_owned(),
    ] {
        let ended = browser.post(&path, &[]).await;
        assert_eq!(ended.status, 303, "{path}: {}", ended.text);
    }
    let found = backoffice.person_by_email(&member).await.unwrap();
    assert!(found.is_none(), "{member}");
    let enable = format!("/portal/keys/{key}/enable");
    assert_eq!(
        browser.post(&enable, &[]).await.status,
        429,
        "it is counted"
    );
    let other = Browser::signed_in(&gateway).await;
    other.get(DETAILS).await.assert_page();
    other
        .post(DETAILS, &ada)
        .await
        .assert_sent_to("/portal/billing");
    gateway.stop().await;
}
