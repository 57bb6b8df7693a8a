//! Identities and people: known ones, new ones, and connecting an identity to a person with a password.

use serde_json::json;

use crate::support::{
    issuer::{AuthorizationRequest, FakeIssuer, Signed, return_with},
    portal::{Browser, PASSWORD, Seen},
    stores,
};

/// Connects an identity of the issuer to the signed-in person, as the settings page does.
async fn connect(issuer: &FakeIssuer, browser: &Browser, subject: &str) -> Seen {
    let settings = browser.get("/portal/settings").await;
    assert!(settings.assert_page().contains("Connect Example ID"));
    let guessed = [("present", "not the password")];
    let refused = browser.post("/portal/oidc/connect", &guessed).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let present = [("present", PASSWORD)];
    let away = browser.post("/portal/oidc/connect", &present).await;
    away.assert_page();
    // The content security policy forbids redirecting a form to another site, so the response is a page with a
    // refresh.
    let to = away
        .between("content=\"0; url=", "\"")
        .replace("&amp;", "&");
    let request = AuthorizationRequest::read(&to);
    let code = issuer.grant(&request, &json!({ "sub": subject }), Signed::Valid);
    return_with(browser, &code, request.field("state")).await
}

#[tokio::test]
async fn an_identity_is_connected_to_an_existing_person_only_by_themselves() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let (owner, stranger) = (Browser::signed_in(&gateway).await, Browser::new(&gateway));
    for email in [owner.email.clone(), owner.email.to_uppercase()] {
        let seen = issuer.sign_in(&stranger, &json!({ "email": email })).await;
        assert_eq!(seen.status, 409, "{email}");
        assert!(seen.text.contains("connect Example ID under Settings"));
        assert_eq!(stranger.cookie("tollgate-session"), None);
    }
    let connected = connect(&issuer, &owner, "subject-1").await;
    assert!(connected.assert_page().contains("url=/portal/settings"));
    let settings = owner.get("/portal/settings").await;
    assert!(settings.assert_page().contains("Disconnect Example ID"));
    issuer.sign_in(&stranger, &json!({})).await.assert_page();
    let settings = stranger.get("/portal/settings").await;
    assert!(settings.text.contains(&owner.account_id));

    // An identity that is connected to one person cannot be connected to another.
    let other = Browser::signed_in(&gateway).await;
    let taken = connect(&issuer, &other, "subject-1").await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    // A person who signed out before the callback connects nothing.
    other.get("/portal/settings").await;
    let present = [("present", PASSWORD)];
    let away = other.post("/portal/oidc/connect", &present).await;
    let to = away
        .between("content=\"0; url=", "\"")
        .replace("&amp;", "&");
    let request = AuthorizationRequest::read(&to);
    other.get("/portal").await;
    let out = other.post("/portal/sign-out", &[]).await;
    out.assert_sent_to("/portal/sign-in");
    let code = issuer.grant(&request, &json!({ "sub": "subject-2" }), Signed::Valid);
    let seen = return_with(&other, &code, request.field("state")).await;
    assert_eq!(seen.status, 403);

    // After disconnecting, the identity does not sign anyone in.
    owner.get("/portal/settings").await;
    let gone = owner.post("/portal/oidc/disconnect", &[]).await;
    gone.assert_sent_to("/portal/settings");
    let claims = json!({ "email": owner.email });
    assert_eq!(issuer.sign_in(&stranger, &claims).await.status, 409);
    gateway.stop().await;
}

/// The change happens at the moment at which the session begins: after the person was found.
#[tokio::test]
async fn what_is_deleted_while_a_person_signs_in_ends_the_sign_in() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let owner = Browser::signed_in(&gateway).await;
    connect(&issuer, &owner, "subject-1").await.assert_page();
    let elsewhere = Browser::new(&gateway);
    issuer.sign_in(&elsewhere, &json!({})).await.assert_page();
    elsewhere.get("/portal").await.assert_page();
    for gone in [
        "DELETE FROM backoffice_identities WHERE subject = 'subject-1'",
        "DELETE FROM backoffice_people",
    ] {
        let sqlite = format!(
            "CREATE TRIGGER meanwhile AFTER INSERT ON backoffice_sessions BEGIN {gone}; END"
        );
        let postgres = format!(
            "CREATE FUNCTION meanwhile() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN {gone}; RETURN NULL; END $$;
             CREATE TRIGGER meanwhile AFTER INSERT ON backoffice_sessions
                 FOR EACH ROW EXECUTE FUNCTION meanwhile()"
        );
        stores::execute_in_portal(gateway.data.path(), [&sqlite, &postgres]).await;
        let late = Browser::new(&gateway);
        let refused = issuer.sign_in(&late, &json!({})).await;
        assert_eq!(refused.status, 409, "{gone}: {}", refused.text);
        assert!(refused.text.contains("changed or deleted"), "{gone}");
        assert_eq!(late.cookie("tollgate-session"), None, "{gone}");
        let end = "DROP TRIGGER meanwhile";
        let postgres = format!("{end} ON backoffice_sessions; DROP FUNCTION meanwhile");
        stores::execute_in_portal(gateway.data.path(), [end, &postgres]).await;
        // The identity is theirs again for the second round.
        if gone.contains("identities") {
            assert_eq!(elsewhere.get("/portal").await.status, 303, "it has ended");
            owner.sign_in(&owner.email, PASSWORD).await;
            connect(&issuer, &owner, "subject-1").await.assert_page();
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_address_must_be_verified_and_of_an_allowed_domain() {
    let issuer = FakeIssuer::start().await;
    let domains = ("PORTAL__OIDC__ALLOWED_DOMAINS", "Example.com, example.org");
    let gateway = issuer.gateway(&[domains]).await;
    let browser = Browser::new(&gateway);
    for (claims, words) in [
        (
            json!({ "email": "a@example.net" }),
            "is not allowed to sign in here",
        ),
        (
            json!({ "email": "a@sub.example.com" }),
            "is not allowed to sign in here",
        ),
        (
            json!({ "email": "a@example.com@example.net" }),
            "is not allowed to sign in here",
        ),
        (
            json!({ "email_verified": false }),
            "is not allowed to sign in here",
        ),
        (
            json!({ "email": "two words@example.com" }),
            "has not verified",
        ),
    ] {
        let seen = issuer.sign_in(&browser, &claims).await;
        assert_eq!(seen.status, 403, "{claims}");
        assert!(seen.text.contains(words), "{}", seen.text);
        assert_eq!(browser.cookie("tollgate-session"), None, "{claims}");
    }
    let claims = json!({ "email": "a@EXAMPLE.org", "email_verified": "true" });
    issuer.sign_in(&browser, &claims).await.assert_page();
    // The allowed domains are checked on every sign-in, so a known person with another address is refused.
    let claims = json!({ "email": "a@example.net" });
    assert_eq!(issuer.sign_in(&browser, &claims).await.status, 403);
    gateway.stop().await;

    let gateway = issuer.gateway(&[]).await;
    let browser = Browser::new(&gateway);
    for claims in [
        json!({ "email_verified": false }),
        json!({ "email_verified": null }),
        json!({ "email_verified": "yes" }),
    ] {
        let seen = issuer.sign_in(&browser, &claims).await;
        assert_eq!(seen.status, 403, "{claims}");
        assert!(seen.text.contains("has not verified"), "{}", seen.text);
    }
    // Some issuers return the address from the userinfo endpoint only. It counts only if its `sub` is the same.
    issuer
        .set_userinfo(json!({ "sub": "other", "email": "b@example.com", "email_verified": true }));
    let claims = json!({ "email": null, "email_verified": null });
    assert_eq!(issuer.sign_in(&browser, &claims).await.status, 400);
    issuer.set_userinfo(
        json!({ "sub": "subject-1", "email": "b@example.com", "email_verified": true }),
    );
    issuer.sign_in(&browser, &claims).await.assert_page();
    let settings = browser.get("/portal/settings").await;
    assert!(settings.assert_page().contains("b@example.com"));
    gateway.stop().await;
}

#[tokio::test]
async fn with_sign_up_closed_only_known_people_sign_in() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[("PORTAL__SIGN_UP", "closed")]).await;
    let browser = Browser::new(&gateway);
    let seen = issuer.sign_in(&browser, &json!({})).await;
    assert_eq!(seen.status, 403);
    assert!(seen.text.contains("Ask them for one"), "{}", seen.text);
    let nobody = gateway
        .inside()
        .backoffice
        .person_by_email("ada@example.com");
    assert_eq!(nobody.await.unwrap(), None);

    let email = "grace@example.com";
    let role = tollgate::backoffice::Role::Customer;
    let enrolled = tollgate::portal::enrol(gateway.inside(), email, None, PASSWORD, role).await;
    assert!(enrolled.is_ok());
    let signed_in = browser.sign_in(email, PASSWORD).await;
    signed_in.assert_sent_to("/portal");
    connect(&issuer, &browser, "subject-1").await.assert_page();
    let elsewhere = Browser::new(&gateway);
    issuer.sign_in(&elsewhere, &json!({})).await.assert_page();
    elsewhere.get("/portal").await.assert_page();
    gateway.stop().await;
}
