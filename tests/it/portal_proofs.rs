//! Codes that were used, proofs that lack one, and cookies of other people.

use serde_json::json;

use crate::support::{
    TestGateway,
    console::with_token,
    issuer::FakeIssuer,
    portal::{Browser, PASSWORD},
    second_factor::{App, asked, enter},
};

const PAGE: &str = "/portal/settings/two-factor";

#[tokio::test]
async fn a_code_that_has_signed_in_proves_nothing_later() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let mut app = App::set_up(&browser).await;
    let elsewhere = Browser::new(&gateway);
    asked(&elsewhere, &browser.email).await;
    let code = app.code();
    enter(&elsewhere, &code).await.assert_sent_to("/portal");
    // In the same step, at another form; and for another sign-in.
    let codes = "/portal/settings/two-factor/codes";
    browser.get(PAGE).await.assert_page();
    let used = [("present", PASSWORD), ("code", code.as_str())];
    assert_eq!(browser.post(codes, &used).await.status, 400);
    let again = Browser::new(&gateway);
    asked(&again, &browser.email).await;
    assert_eq!(enter(&again, &code).await.status, 401);

    // A recovery code likewise, in both directions.
    let [first, second] = [0, 1].map(|at| app.recovery[at].clone());
    enter(&again, &first).await.assert_sent_to("/portal");
    let off = "/portal/settings/two-factor/off";
    let used = [("present", PASSWORD), ("code", first.as_str())];
    assert_eq!(browser.post(off, &used).await.status, 400);
    let name = [
        ("present", PASSWORD),
        ("code", second.as_str()),
        ("new", "another password"),
    ];
    browser.get("/portal/settings").await.assert_page();
    let changed = browser.post("/portal/settings/password", &name).await;
    changed.assert_sent_to("/portal/settings");
    let third = Browser::new(&gateway);
    let sent = third.sign_in(&browser.email, "another password").await;
    sent.assert_sent_to("/portal/sign-in/code");
    for used in [&first, &second] {
        assert_eq!(enter(&third, used).await.status, 401);
    }
    enter(&third, &app.recovery[2])
        .await
        .assert_sent_to("/portal");
    gateway.stop().await;
}

#[tokio::test]
async fn connecting_an_issuer_needs_a_code_too() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let browser = Browser::signed_in(&gateway).await;
    let mut app = App::set_up(&browser).await;
    browser.get("/portal/settings").await.assert_page();
    let code = app.code();
    for code in ["", "000000", &app.wrong()] {
        let fields = [("present", PASSWORD), ("code", code)];
        let refused = browser.post("/portal/oidc/connect", &fields).await;
        assert_eq!(refused.status, 400, "{code}");
        assert!(!refused.text.contains("http-equiv=\"refresh\""), "{code}");
    }
    let fields = [("present", PASSWORD), ("code", code.as_str())];
    let away = browser.post("/portal/oidc/connect", &fields).await;
    assert!(away.assert_page().contains("http-equiv=\"refresh\""));
    gateway.stop().await;
}

#[tokio::test]
async fn a_pending_sign_in_of_another_person_signs_neither_of_them_in() {
    let gateway = TestGateway::start().await;
    let (ada, bob) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    let mut adas = App::set_up(&ada).await;
    let mut bobs = App::set_up(&bob).await;
    let (at_ada, at_bob) = (Browser::new(&gateway), Browser::new(&gateway));
    asked(&at_ada, &ada.email).await;
    asked(&at_bob, &bob.email).await;
    let cookie = |browser: &Browser, name| browser.cookie(name).unwrap();

    // Bob knows Ada's password and has her pending sign-in in full. His own code is not hers.
    let thief = Browser::new(&gateway);
    for name in ["tollgate-code", "tollgate-visit"] {
        thief.set_cookie(name, &cookie(&at_ada, name));
    }
    for code in [bobs.code(), bobs.recovery[0].clone()] {
        assert_eq!(enter(&thief, &code).await.status, 401);
        assert_eq!(thief.cookie("tollgate-session"), None);
    }
    // Her pending sign-in in his browser is none.
    let his = cookie(&at_bob, "tollgate-code");
    at_bob.set_cookie("tollgate-code", &cookie(&at_ada, "tollgate-code"));
    let page = at_bob.get("/portal/sign-in/code").await;
    page.assert_sent_to("/portal/sign-in");
    let code = adas.code();
    let fields = [("code", code.as_str())];
    let refused = at_bob.post("/portal/sign-in/code", &fields).await;
    refused.assert_sent_to("/portal/sign-in");
    assert_eq!(at_bob.cookie("tollgate-session"), None);
    // Her code was not used up by that, and each signs in alone.
    enter(&at_ada, &code).await.assert_sent_to("/portal");
    let settings = at_ada.get("/portal/settings").await;
    assert!(settings.assert_page().contains(&ada.account_id));
    at_bob.set_cookie("tollgate-code", &his);
    enter(&at_bob, &bobs.code()).await.assert_sent_to("/portal");
    let settings = at_bob.get("/portal/settings").await;
    assert!(settings.assert_page().contains(&bob.account_id));
    gateway.stop().await;
}

#[tokio::test]
async fn a_second_factor_that_is_required_of_everyone_is_asked_of_everyone_with_a_password() {
    let issuer = FakeIssuer::start().await;
    let required = [("PORTAL__REQUIRE_SECOND_FACTOR", "everyone")];
    let gateway = issuer.gateway(&required).await;
    let customer = Browser::new(&gateway);
    customer
        .sign_up("customer@example.com")
        .await
        .assert_sent_to("/portal");
    for path in ["/portal", "/portal/keys", "/portal/settings"] {
        customer.get(path).await.assert_sent_to(PAGE);
    }
    let made = customer.post("/portal/projects", &[("name", "p")]).await;
    made.assert_sent_to(PAGE);
    App::set_up(&customer).await;
    customer.get("/portal").await.assert_page();
    // It is asked for again when it is gone.
    let backoffice = &gateway.inside().backoffice;
    let person = backoffice.person_by_email("customer@example.com").await;
    let reset = format!(
        "/operator/people/{}/second-factor",
        person.unwrap().unwrap().id
    );
    let reset = gateway.operate(reqwest::Method::DELETE, &reset, None).await;
    reset.assert_ok();
    customer.get("/portal").await.assert_sent_to(PAGE);
    // Without a password the issuer decides, and the operator token has none.
    let known = Browser::new(&gateway);
    issuer.sign_in(&known, &json!({})).await.assert_page();
    known.get("/portal").await.assert_page();
    let token = with_token(&gateway).await;
    token.get("/portal/console").await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn what_one_person_has_done_is_not_for_another_to_undo() {
    let gateway = TestGateway::start().await;
    let (ada, bob) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    let (id, _) = ada.new_key("hers").await;
    ada.get("/portal/keys").await.assert_page();
    let disabled = ada.post(&format!("/portal/keys/{id}/disable"), &[]).await;
    disabled.assert_sent_to("/portal/keys");
    let undo = ada.cookie("tollgate-done").unwrap();
    // In the browser of another person, and in another one of her own.
    let elsewhere = Browser::new(&gateway);
    elsewhere
        .sign_in(&ada.email, PASSWORD)
        .await
        .assert_sent_to("/portal");
    for other in [&bob, &elsewhere] {
        other.set_cookie("tollgate-done", &undo);
        let page = other.get("/portal/keys").await;
        let page = page.assert_page();
        assert!(!page.contains("notice done") && !page.contains(">Undo<"));
    }
    let enable = format!("/portal/keys/{id}/enable");
    assert_eq!(bob.post(&enable, &[]).await.status, 404);
    let hers = ada.get("/portal/keys").await;
    assert!(hers.assert_page().contains("notice done"));
    assert!(hers.text.contains(">Undo<"));
    ada.post(&enable, &[]).await.assert_sent_to("/portal/keys");
    gateway.stop().await;
}
