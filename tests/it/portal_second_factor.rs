//! Two-factor authentication: signing in with a code, and attempts to get around it.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    console::{self, actions},
    portal::{Browser, PASSWORD},
    second_factor::{App, asked, enter},
    smtp::FakeSmtp,
};

const PAGE: &str = "/portal/settings/two-factor";

#[tokio::test]
async fn signing_in_needs_a_code_that_was_not_used() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let elsewhere = Browser::new(&gateway);
    elsewhere
        .sign_in(&browser.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    let mut app = App::set_up(&browser).await;
    browser.get("/portal").await.assert_page();
    assert_eq!(elsewhere.get("/portal").await.status, 303, "it has ended");

    asked(&elsewhere, &browser.email).await;
    let before = elsewhere.cookie("tollgate-session");
    for wrong in ["", "000000", &app.wrong(), &app.last(), PASSWORD] {
        let refused = enter(&elsewhere, wrong).await;
        assert_eq!(refused.status, 401, "{wrong}");
        assert_eq!(elsewhere.cookie("tollgate-session"), before);
    }
    let code = app.code();
    enter(&elsewhere, &code).await.assert_sent_to("/portal");
    elsewhere.get("/portal").await.assert_page();
    assert_eq!(elsewhere.cookie("tollgate-code"), None);

    // The code is used up, and so is the pending sign-in.
    let third = Browser::new(&gateway);
    asked(&third, &browser.email).await;
    let pending = third.cookie("tollgate-code").unwrap();
    let visit = third.cookie("tollgate-visit").unwrap();
    assert_eq!(enter(&third, &code).await.status, 401);
    let recovery = &app.recovery;
    let spaced = recovery[0].to_uppercase().replace('-', " ");
    enter(&third, &spaced).await.assert_sent_to("/portal");
    let welcome = third.get("/portal").await;
    assert!(welcome.assert_page().contains("You have 9 left."));
    let again = Browser::new(&gateway);
    again.set_cookie("tollgate-code", &pending);
    again.set_cookie("tollgate-visit", &visit);
    let replayed = enter(&again, &recovery[1]).await;
    replayed.assert_sent_to("/portal/sign-in");
    assert_eq!(again.cookie("tollgate-session"), None);
    // A recovery code works once.
    asked(&again, &browser.email).await;
    assert_eq!(enter(&again, &recovery[0]).await.status, 401);
    let last = app.code();
    enter(&again, &last).await.assert_sent_to("/portal");
    gateway.stop().await;
}

#[tokio::test]
async fn a_pending_sign_in_is_of_one_browser_and_one_password() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let mut app = App::set_up(&browser).await;
    let first = Browser::new(&gateway);
    asked(&first, &browser.email).await;
    // Another browser that got hold of the cookie.
    let thief = Browser::new(&gateway);
    thief.get("/portal/sign-in").await.assert_page();
    thief.set_cookie("tollgate-code", &first.cookie("tollgate-code").unwrap());
    let page = thief.get("/portal/sign-in/code").await;
    page.assert_sent_to("/portal/sign-in");
    let code = app.code();
    let fields = [("code", code.as_str())];
    let refused = thief.post("/portal/sign-in/code", &fields).await;
    refused.assert_sent_to("/portal/sign-in");
    // A forged one, none, and one without the token of its form.
    let sealed = first.cookie("tollgate-code").unwrap();
    thief.set_cookie("tollgate-code", &format!("x{sealed}"));
    let forged = thief.post("/portal/sign-in/code", &fields).await;
    forged.assert_sent_to("/portal/sign-in");
    let none = Browser::new(&gateway);
    let page = none.get("/portal/sign-in/code").await;
    page.assert_sent_to("/portal/sign-in");
    first.get("/portal/sign-in/code").await.assert_page();
    let request = first
        .request(Method::POST, "/portal/sign-in/code")
        .header("origin", first.origin())
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("token=forged&code={code}"));
    assert_eq!(first.send(request).await.status, 403);
    // The password is changed meanwhile: the pending sign-in has ended, and the code is not used up.
    browser.get("/portal/settings").await.assert_page();
    let change = [
        ("present", PASSWORD),
        ("code", app.recovery[0].as_str()),
        ("new", "another password"),
    ];
    let changed = browser.post("/portal/settings/password", &change).await;
    changed.assert_sent_to("/portal/settings");
    let late = enter(&first, &code).await;
    late.assert_sent_to("/portal/sign-in");
    let signed_in = first.sign_in(&browser.email, "another password").await;
    signed_in.assert_sent_to("/portal/sign-in/code");
    enter(&first, &code).await.assert_sent_to("/portal");
    gateway.stop().await;
}

#[tokio::test]
async fn codes_cannot_be_guessed_or_used_in_parallel() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let browser = gateway_person(&gateway, &smtp).await;
    let mut app = App::set_up(&browser).await;
    assert!(smtp.next_mail().await.text.contains("turned on"));
    // One code at eight browsers at once.
    let browsers: Vec<_> = (0..6).map(|_| Browser::new(&gateway)).collect();
    for one in &browsers {
        asked(one, &browser.email).await;
        one.get("/portal/sign-in/code").await.assert_page();
    }
    let code = app.code();
    let fields = [("code", code.as_str())];
    let tries = browsers
        .iter()
        .map(|one| one.post("/portal/sign-in/code", &fields));
    let tries = join_all(tries).await;
    let accepted = tries.iter().filter(|seen| seen.status == 303).count();
    assert_eq!(accepted, 1);

    // Guesses are limited for the person, whatever browser they come from.
    let guesser = Browser::new(&gateway);
    asked(&guesser, &browser.email).await;
    let mut statuses = Vec::new();
    for guess in 1..=9 {
        guesser.get("/portal/sign-in/code").await.assert_page();
        let wrong = app.wrong();
        let fields = [("code", wrong.as_str())];
        let seen = guesser.post("/portal/sign-in/code", &fields).await;
        statuses.push(seen.status);
        // The person is told while the guesses go on, and once.
        if guess == 4 {
            let mail = smtp.next_mail().await;
            assert_eq!(mail.to, browser.email);
            assert!(mail.text.contains("known to others"));
        }
    }
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    assert!(statuses[0] == 401, "{statuses:?}");
    let code = app.code();
    let other = Browser::new(&gateway);
    asked(&other, &browser.email).await;
    assert_eq!(enter(&other, &code).await.status, 429, "the right one too");
    gateway.idle().await;
    assert!(smtp.is_empty(), "told again");
    // The emails that they request themselves are not fewer for it.
    let visitor = Browser::new(&gateway);
    for _ in 0..5 {
        visitor.get("/portal/forgotten").await.assert_page();
        let fields = [("email", browser.email.as_str())];
        visitor
            .post("/portal/forgotten", &fields)
            .await
            .assert_page();
        assert!(smtp.next_mail().await.text.contains("new password"));
    }
    // Sessions that are open go on.
    browser.get("/portal").await.assert_page();
    gateway.stop().await;
}

/// Who knows the password uses up the attempts with codes of the app. A recovery code still leads in.
#[tokio::test]
async fn wrong_codes_from_elsewhere_do_not_refuse_recovery_codes() {
    const CODE: &str = "/portal/sign-in/code";
    const THIEF: &str = "203.0.113.7";
    const OWNER: &str = "198.51.100.1";
    let gateway = TestGateway::start_set(&[("SERVER__TRUSTED_PROXIES", "127.0.0.0/8")]).await;
    let browser = Browser::signed_in(&gateway).await;
    let mut app = App::set_up(&browser).await;
    let (thief, owner) = (Browser::new(&gateway), Browser::new(&gateway));
    for one in [&thief, &owner] {
        asked(one, &browser.email).await;
        one.get(CODE).await.assert_page();
    }
    let wrong = app.wrong();
    let guesses = [wrong.as_str(), "aaaa-bbbb-cccc-dddd"];
    for guess in guesses {
        // A recovery code is one by its form, whatever the page says.
        for field in [("", ""), ("recovery", "1")] {
            for _ in 0..4 {
                let fields = [("code", guess), field];
                let refused = thief.post_from(THIEF, CODE, &fields).await;
                assert_eq!(refused.status, 401, "{guess}");
            }
        }
        let refused = thief.post_from(THIEF, CODE, &[("code", guess)]).await;
        assert_eq!(refused.status, 429, "{guess}");
    }
    let code = app.code();
    let refused = owner.post_from(OWNER, CODE, &[("code", &code)]).await;
    assert_eq!(
        refused.status, 429,
        "codes of the app are counted everywhere"
    );
    let recovery = [("code", app.recovery[0].as_str()), ("recovery", "1")];
    let refused = thief.post_from(THIEF, CODE, &recovery).await;
    assert_eq!(refused.status, 429, "the right one too");
    let signed_in = owner.post_from(OWNER, CODE, &recovery).await;
    signed_in.assert_sent_to("/portal");
    owner.get("/portal").await.assert_page();
    gateway.stop().await;
}

/// A person who was invited by email, signed in.
async fn gateway_person(gateway: &TestGateway, smtp: &FakeSmtp) -> Browser {
    let mut browser = Browser::new(gateway);
    browser.email = "ada@example.com".into();
    let path = format!("/operator/accounts/{}/invitations", gateway.account_id);
    let body = json!({ "email": browser.email });
    let made = gateway.operate(Method::POST, &path, Some(body)).await;
    made.assert_ok();
    let link = smtp.next_mail().await.link();
    browser.join(&link).await.assert_sent_to("/portal");
    browser
}

#[tokio::test]
async fn a_password_reset_does_not_get_around_the_code() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let mut app = App::set_up(&browser).await;
    let backoffice = &gateway.inside().backoffice;
    let person = backoffice.person_by_email(&browser.email).await.unwrap();
    let person = person.unwrap().id;
    let path = format!("/operator/people/{person}/reset");
    let made = gateway.operate(Method::POST, &path, None).await;
    let link = made.assert_ok()["link"].as_str().unwrap().to_owned();
    let other = Browser::new(&gateway);
    let reset = other.join(&link).await;
    reset.assert_sent_to("/portal/sign-in/code");
    assert_eq!(other.get("/portal").await.status, 303);
    assert_eq!(browser.get("/portal").await.status, 303, "it has ended");
    enter(&other, &app.code()).await.assert_sent_to("/portal");

    // An operator resets it, which is recorded, by the API and in the console; not their own.
    let path = format!("/operator/people/{person}/second-factor");
    let people = format!("/operator/accounts/{}/people", browser.account_id);
    let listed = gateway.operate(Method::GET, &people, None).await;
    assert_eq!(listed.assert_ok()["data"][0]["second_factor"], true);
    let reset = gateway.operate(Method::DELETE, &path, None).await;
    assert_eq!(reset.assert_ok()["second_factor"], false);
    let recorded = actions(&gateway, Some(&person)).await;
    assert_eq!(recorded[0].what, "person.second_factor");
    assert_eq!(recorded[0].actor, "operator token");
    assert_eq!(
        recorded[0].after.as_deref(),
        Some(r#"{"second_factor":false}"#)
    );
    let mut recorded = recorded.iter().rev();
    let turned_on = recorded.find(|action| action.what == "person.second_factor");
    assert_eq!(turned_on.unwrap().actor, browser.email);
    let signed_in = Browser::new(&gateway)
        .sign_in(&browser.email, PASSWORD)
        .await;
    signed_in.assert_sent_to("/portal");
    let unknown = "/operator/people/person_1/second-factor";
    let unknown = gateway.operate(Method::DELETE, unknown, None).await;
    assert_eq!(unknown.status, 404);

    App::set_up(&other).await;
    let operator = console::person(&gateway).await;
    let page = format!("/portal/console/people/{person}/second-factor");
    let asks = operator.get(&page).await;
    assert!(asks.assert_page().contains(&browser.email));
    assert_eq!(other.get(&page).await.status, 404, "a customer");
    let done = operator.post(&page, &[]).await;
    assert_eq!(done.status, 303, "{}", done.text);
    App::set_up(&operator).await;
    let own = backoffice.person_by_email(&operator.email).await.unwrap();
    let own = format!("/portal/console/people/{}/second-factor", own.unwrap().id);
    operator.get(&own).await.assert_page();
    assert_eq!(operator.post(&own, &[]).await.status, 400);
    gateway.stop().await;
}

#[tokio::test]
async fn changes_of_how_one_signs_in_need_the_password_and_a_code() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    // The set-up itself needs the password.
    browser.get(PAGE).await.assert_page();
    let wrong = [("present", "not the password")];
    let begun = browser
        .post("/portal/settings/two-factor/begin", &wrong)
        .await;
    assert_eq!(begun.status, 400);
    assert!(!browser.get(PAGE).await.text.contains("factor-secret"));
    let mut app = App::begun(&browser).await;
    // Another session of the person does not see the secret, nor can it confirm it.
    let other = Browser::new(&gateway);
    other
        .sign_in(&browser.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    assert!(
        !other
            .get(PAGE)
            .await
            .assert_page()
            .contains("factor-secret")
    );
    let code = app.code();
    let confirm = "/portal/settings/two-factor/confirm";
    let refused = other.post(confirm, &[("code", &code)]).await;
    assert_eq!(refused.status, 400);
    browser.get(PAGE).await.assert_page();
    let refused = browser.post(confirm, &[("code", &app.wrong())]).await;
    assert_eq!(refused.status, 400);
    let on = browser.post(confirm, &[("code", &code)]).await;
    let codes = on.between("id=\"recovery-codes\">", "<").to_owned();
    let codes: Vec<_> = codes.lines().collect();

    let right = [("present", PASSWORD), ("code", codes[0])];
    let forms = [
        ("/portal/settings/email", ("email", "new@example.com")),
        ("/portal/settings/password", ("new", "another password")),
        ("/portal/settings/two-factor/codes", ("", "")),
        ("/portal/settings/two-factor/off", ("", "")),
        ("/portal/settings/delete", ("email", browser.email.as_str())),
    ];
    browser.get("/portal/settings").await.assert_page();
    for (path, field) in forms {
        for proof in [&right[..1], &right[1..]] {
            let fields = [&[field][..], proof].concat();
            let refused = browser.post(path, &fields).await;
            assert_eq!(refused.status, 400, "{path} {fields:?}");
        }
    }
    // None of that has used the code, because the password comes first.
    let renewed = browser
        .post("/portal/settings/two-factor/codes", &right)
        .await;
    renewed.assert_page();
    let fresh = renewed.between("id=\"recovery-codes\">", "<").to_owned();
    let fresh = fresh.lines().next().unwrap();
    browser.get(PAGE).await.assert_page();
    let old = [("present", PASSWORD), ("code", codes[1])];
    let off = browser.post("/portal/settings/two-factor/off", &old).await;
    assert_eq!(off.status, 400, "replaced");
    let right = [("present", PASSWORD), ("code", fresh)];
    let off = browser
        .post("/portal/settings/two-factor/off", &right)
        .await;
    off.assert_sent_to("/portal/settings");
    let settings = browser.get("/portal/settings").await;
    let settings = settings.assert_page();
    assert!(settings.contains("Two-factor authentication turned off."));
    let signed_in = Browser::new(&gateway)
        .sign_in(&browser.email, PASSWORD)
        .await;
    signed_in.assert_sent_to("/portal");
    gateway.stop().await;
}

#[tokio::test]
async fn a_required_second_factor_is_set_up_before_anything_else() {
    let required = [("PORTAL__REQUIRE_SECOND_FACTOR", "operators")];
    let gateway = TestGateway::start_set(&required).await;
    let customer = Browser::signed_in(&gateway).await;
    customer.get("/portal").await.assert_page();
    let operator = console::person(&gateway).await;
    for path in [
        "/portal",
        "/portal/console",
        "/portal/settings",
        "/portal/keys",
    ] {
        operator.get(path).await.assert_sent_to(PAGE);
    }
    let page = operator.get(PAGE).await;
    assert!(page.assert_page().contains("requires two-factor"));
    let made = operator.post("/portal/keys", &[("name", "k")]).await;
    made.assert_sent_to(PAGE);
    let keys = format!("/operator/accounts/{}/keys", operator.account_id);
    let keys = gateway.operate(Method::GET, &keys, None).await;
    assert_eq!(keys.assert_ok()["data"], json!([]));
    App::set_up(&operator).await;
    for path in ["/portal", "/portal/console", "/portal/settings"] {
        operator.get(path).await.assert_page();
    }
    let token = console::with_token(&gateway).await;
    token.get("/portal/console").await.assert_page();
    gateway.stop().await;
}
