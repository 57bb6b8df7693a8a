//! Signing in through an OpenID Connect issuer: which callbacks are accepted and which are refused.

use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Process,
    issuer::{
        AuthorizationRequest, CLIENT, FakeIssuer, Fault, NAME, SECRET, Signed, return_with,
        start_sign_in,
    },
    portal::{Browser, PASSWORD, encoded},
    stores,
};

const SESSION: &str = "tollgate-session";
const ATTEMPT: &str = "tollgate-oidc";

#[tokio::test]
async fn a_new_identity_creates_a_person_and_signs_them_in_later() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let browser = Browser::new(&gateway);
    for page in ["/portal/sign-in?to=%2Fportal%2Fkeys", "/portal/sign-up"] {
        let seen = browser.get(page).await;
        assert!(seen.assert_page().contains("Sign in with Example ID"));
        assert!(seen.text.contains("href=\"/portal/oidc/start?to="));
    }
    assert_eq!(issuer.requests(), [""; 0], "nothing before it is needed");

    let start = browser.get("/portal/oidc/start?to=%2Fportal%2Fkeys").await;
    let cookie = start.header("set-cookie").to_owned();
    for part in ["; HttpOnly", "; SameSite=Lax", "; Path=/", "; Max-Age=600"] {
        assert!(cookie.contains(part), "{cookie} has no {part}");
    }
    let request = AuthorizationRequest::read(start.header("location"));
    let redirect_uri = format!("http://{}/portal/oidc/callback", gateway.public);
    for (name, value) in [
        ("kept", "1"),
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", &redirect_uri),
        ("scope", "openid email profile"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(request.field(name), value, "{name}");
    }
    let random = ["state", "nonce", "code_challenge"].map(|name| request.field(name));
    assert!(random.iter().all(|text| text.len() == 43), "{random:?}");

    let code = issuer.grant(&request, &json!({}), Signed::Valid);
    let seen = return_with(&browser, &code, request.field("state")).await;
    // The callback is a page that refreshes instead of a redirect, because the browser does not send
    // `SameSite=Strict` cookies when it comes from another site.
    let next = seen.assert_page();
    assert!(next.contains("content=\"0; url=/portal/keys\""), "{next}");
    assert_eq!(browser.cookie(ATTEMPT), None, "it is over");
    let first = browser.cookie(SESSION).unwrap();
    let settings = browser.get("/portal/settings").await;
    assert!(settings.assert_page().contains("ada@example.com"));
    assert!(settings.text.contains("your only way to sign in"));
    assert!(!settings.text.contains("Current password"));
    let account = settings.between(">acct_", "<").to_owned();
    browser.post("/portal/oidc/disconnect", &[]).await;

    // The identity is matched by `sub`: another or unverified address does not create another person.
    let claims = json!({ "email": "ada@example.net", "email_verified": false });
    issuer.sign_in(&browser, &claims).await.assert_page();
    assert_ne!(browser.cookie(SESSION).unwrap(), first, "it was rotated");
    let thief = Browser::new(&gateway);
    thief.set_cookie(SESSION, &first);
    assert_eq!(thief.get("/portal").await.status, 303, "and is over");
    let settings = browser.get("/portal/settings").await;
    assert_eq!(settings.between(">acct_", "<"), account);

    // With a password there are two ways to sign in, so the issuer can be disconnected.
    let password = [("new", PASSWORD)];
    let set = browser.post("/portal/settings/password", &password).await;
    set.assert_sent_to("/portal/settings");
    let elsewhere = Browser::new(&gateway);
    let signed_in = elsewhere.sign_in("ada@example.com", PASSWORD).await;
    signed_in.assert_sent_to("/portal");
    elsewhere.get("/portal/settings").await.assert_page();
    let forgotten = elsewhere.post("/portal/oidc/disconnect", &[]).await;
    forgotten.assert_sent_to("/portal/settings");
    assert_eq!(issuer.sign_in(&browser, &json!({})).await.status, 409);
    gateway.stop().await;
}

#[tokio::test]
async fn invalid_claims_and_signatures_are_refused() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let now = tollgate::base::timestamp::now();
    for (claims, signed) in [
        (json!({ "nonce": "another" }), Signed::Valid),
        (json!({ "nonce": null }), Signed::Valid),
        (json!({ "aud": "another" }), Signed::Valid),
        (json!({ "aud": [CLIENT, "another"] }), Signed::Valid),
        (json!({ "azp": "another" }), Signed::Valid),
        (json!({ "iss": "https://evil.example" }), Signed::Valid),
        (json!({ "exp": now - 61 }), Signed::Valid),
        (json!({ "iat": now + 300 }), Signed::Valid),
        (json!({ "sub": null }), Signed::Valid),
        (json!({}), Signed::OtherPayload),
        (json!({}), Signed::Unsigned),
        (json!({}), Signed::WithPublicKey),
        (json!({}), Signed::WithUnknownKey),
    ] {
        let browser = Browser::new(&gateway);
        let request = start_sign_in(&browser, "").await;
        let code = issuer.grant(&request, &claims, signed);
        let seen = return_with(&browser, &code, request.field("state")).await;
        assert_eq!(seen.status, 400, "{claims} {signed:?}");
        assert!(seen.text.contains("could not tell us who you are"));
        assert_eq!(browser.cookie(SESSION), None, "{claims} {signed:?}");
    }
    // Valid claims with a right signature are accepted, so each refusal above had its intended cause.
    let browser = Browser::new(&gateway);
    issuer.sign_in(&browser, &json!({})).await.assert_page();
    browser.get("/portal").await.assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn an_attempt_is_bound_to_its_browser_and_used_once() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let (browser, other) = (Browser::new(&gateway), Browser::new(&gateway));
    let request = start_sign_in(&browser, "").await;
    let (state, code) = (
        request.field("state"),
        issuer.grant(&request, &json!({}), Signed::Valid),
    );
    // A callback is refused in another browser, with or without an attempt of its own, and with a wrong or
    // missing state.
    assert_eq!(return_with(&other, &code, state).await.status, 400);
    start_sign_in(&other, "").await;
    assert_eq!(return_with(&other, &code, state).await.status, 400);
    for wrong in ["", &state[1..]] {
        let seen = return_with(&browser, &code, wrong).await;
        assert_eq!(seen.status, 400, "{wrong}");
        assert!(seen.text.contains("another browser"), "{}", seen.text);
    }
    let query = encoded(&[
        ("code", &code),
        ("state", state),
        ("iss", "https://e.example"),
    ]);
    let attempt = browser.cookie(ATTEMPT).expect("it is still on its way");
    let mixed_up = browser.get(&format!("/portal/oidc/callback?{query}")).await;
    assert_eq!(mixed_up.status, 400);
    assert!(
        !issuer.requests().contains(&"token"),
        "no code was shown around"
    );

    browser.set_cookie(ATTEMPT, &attempt);
    return_with(&browser, &code, state).await.assert_page();
    browser.get("/portal").await.assert_page();
    assert_eq!(return_with(&browser, &code, state).await.status, 400);
    // A replayed attempt cookie is refused with the used code and with a new one.
    let again = issuer.grant(&request, &json!({}), Signed::Valid);
    for code in [code, again] {
        let thief = Browser::new(&gateway);
        thief.set_cookie(ATTEMPT, &attempt);
        let seen = return_with(&thief, &code, state).await;
        assert_eq!((seen.status, thief.cookie(SESSION)), (400, None), "{code}");
    }
    // A forged cookie is refused.
    let forged = Browser::new(&gateway);
    forged.set_cookie(ATTEMPT, &format!("x{attempt}"));
    assert_eq!(return_with(&forged, "code", state).await.status, 400);

    // A user who declines at the issuer gets a page that says so.
    let request = start_sign_in(&other, "").await;
    let query = encoded(&[
        ("error", "access_denied"),
        ("state", request.field("state")),
    ]);
    let declined = other.get(&format!("/portal/oidc/callback?{query}")).await;
    assert_eq!(declined.status, 403);
    assert!(
        declined
            .text
            .contains("The sign-in at Example ID was declined")
    );
    assert_eq!(other.cookie(ATTEMPT), None);
    gateway.stop().await;
}

#[tokio::test]
async fn a_broken_issuer_breaks_nothing_else_and_heals() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let elsewhere = FakeIssuer::start().await;
    let document = format!("{}.well-known/openid-configuration", elsewhere.url());
    let faults = [
        Fault::Status(500),
        Fault::Redirect(document),
        Fault::Body("<html>"),
        Fault::Huge,
        Fault::OtherIssuer("https://evil.example"),
    ];
    let browser = Browser::new(&gateway);
    for fault in faults {
        issuer.break_with(fault.clone());
        let seen = browser.get("/portal/oidc/start").await;
        assert_eq!(seen.status, 503, "{fault:?}");
        assert!(
            seen.text.contains("sign in with your password"),
            "{}",
            seen.text
        );
        assert_eq!(browser.cookie(ATTEMPT), None);
    }
    assert_eq!(elsewhere.requests(), [""; 0], "no redirect is followed");
    let email = "grace@example.com";
    browser.sign_up(email).await.assert_sent_to("/portal");
    let signed_in = browser.sign_in(email, PASSWORD).await;
    signed_in.assert_sent_to("/portal");
    issuer.break_with(None);
    issuer.sign_in(&browser, &json!({})).await.assert_page();
    gateway.stop().await;

    let off = crate::support::TestGateway::start().await;
    let browser = Browser::new(&off);
    for path in ["/portal/oidc/start", "/portal/oidc/callback"] {
        assert_eq!(browser.get(path).await.status, 404);
    }
    off.stop().await;
}

#[tokio::test]
async fn new_keys_are_fetched_when_one_is_not_known() {
    let issuer = FakeIssuer::start().await;
    let gateway = issuer.gateway(&[]).await;
    let browser = Browser::new(&gateway);
    issuer.sign_in(&browser, &json!({})).await.assert_page();
    assert_eq!(issuer.requests(), ["document", "token", "keys"]);
    issuer.sign_in(&browser, &json!({})).await.assert_page();
    assert_eq!(issuer.requests(), ["token"], "the rest is known");
    issuer.rotate("second");
    issuer.sign_in(&browser, &json!({})).await.assert_page();
    assert_eq!(issuer.requests(), ["token", "keys"]);
    // Keys are fetched at most once a minute.
    issuer.rotate("third");
    assert_eq!(issuer.sign_in(&browser, &json!({})).await.status, 400);
    assert_eq!(issuer.requests(), ["token"]);
    gateway.stop().await;
}

#[tokio::test]
async fn refusals_are_logged_without_secrets() {
    let (folder, issuer) = (TempDir::new().unwrap(), FakeIssuer::start().await);
    let config = folder.path().join("tollgate.toml");
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         {}log = {{ format = \"json\", level = \"trace\" }}\nportal.sign_up = \"open\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         [providers.play]\nkind = \"simulator\"\n\
         [portal.oidc]\nissuer = \"{}\"\nclient_id = \"{CLIENT}\"\n\
         client_secret_env = \"OIDC_SECRET\"\nname = \"{NAME}\"\n",
        stores::lines(folder.path()),
        issuer.url(),
    );
    std::fs::write(&config, text).unwrap();
    let token = "operator-token-canary-9c41e07ab35df826c01b7e94";
    let environment = [("TOLLGATE_OPERATOR_TOKEN", token), ("OIDC_SECRET", SECRET)];
    let (process, public, _) = Process::serve(&config, &environment).await;
    let browser = Browser::at(public);
    let mut secrets = vec![SECRET.to_owned(), "access-canary".into(), "eyJ".into()];
    let (wrong, right) = (json!({ "aud": "another" }), json!({}));
    for (claims, status) in [(&wrong, 400), (&right, 200)] {
        let request = start_sign_in(&browser, "").await;
        let code = issuer.grant(&request, claims, Signed::Valid);
        let seen = return_with(&browser, &code, request.field("state")).await;
        assert_eq!(seen.status, status, "{}", seen.text);
        secrets.extend([
            code,
            request.field("state").into(),
            request.field("nonce").into(),
        ]);
    }
    let request = start_sign_in(&browser, "").await;
    let seen = return_with(&browser, "code-canary/unknown", request.field("state")).await;
    assert_eq!(seen.status, 400);
    let ended = process.terminated().await;
    for reason in [
        "the ID token is for another client",
        "refuses: invalid_grant",
    ] {
        assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    }
    secrets.push("code-canary".into());
    for secret in secrets {
        let found = ended.stderr.lines().find(|line| line.contains(&secret));
        assert_eq!(found, None, "{secret} is not for the log");
    }
}
