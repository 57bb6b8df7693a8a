//! People: invitations, roles, password resets and removal by operators.

use reqwest::Method;
use serde_json::{Value, json};
use tollgate::backoffice::{Role, TeamRole};

use crate::support::{
    TestGateway,
    admin::{links, rows},
    console::{self, actions, with_token},
    gateway::OPERATOR_TOKEN,
    portal::{Browser, PASSWORD, SCRIPT, Seen},
    process::{run, text},
    smtp::FakeSmtp,
    stores,
};

const ALL: &str = "Members, oldest first";

/// The path and query of a link.
fn path(link: &str) -> String {
    let at = link.find("/portal/").unwrap();
    link[at..].to_owned()
}

fn secret(link: &str) -> &str {
    link.split_once("?link=").unwrap().1
}

/// Opens the page of a link and sets a password there.
async fn follow(browser: &Browser, link: &str, name: &str, password: &str) -> Seen {
    let page = browser.get(&path(link)).await;
    assert_eq!(page.status, 200, "{}", page.text);
    send(browser, link, name, password).await
}

async fn send(browser: &Browser, link: &str, name: &str, password: &str) -> Seen {
    let fields = [
        ("link", secret(link)),
        ("name", name),
        ("password", password),
    ];
    browser.post("/portal/welcome", &fields).await
}

async fn invite(gateway: &TestGateway, account_id: &str, body: Value) -> String {
    let path = format!("/operator/accounts/{account_id}/invitations");
    let made = gateway.operate(Method::POST, &path, Some(body)).await;
    made.assert_ok()["link"].as_str().unwrap().to_owned()
}

async fn people(gateway: &TestGateway, account_id: &str) -> Vec<Value> {
    let path = format!("/operator/accounts/{account_id}/people");
    let list = gateway.operate(Method::GET, &path, None).await;
    list.assert_ok()["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_invited_person_signs_in_to_the_account() {
    let gateway = TestGateway::start().await;
    let operator = with_token(&gateway).await;
    let page = format!("/portal/console/accounts/{}", gateway.account_id);
    let seen = operator.get(&page).await;
    assert!(seen.assert_page().contains("No members yet."));

    let wrong = [("email", "ada@example.com"), ("role", "emperor")];
    let invitations = format!("{page}/invitations");
    assert_eq!(operator.post(&invitations, &wrong).await.status, 400);
    let fields = [("email", " Ada@example.com "), ("role", "customer")];
    let made = operator.post(&invitations, &fields).await;
    assert!(made.assert_page().contains("send it yourself"));
    let link = made.between("id=\"new-link\">", "<").to_owned();
    assert!(link.starts_with(&format!("http://{}/portal/welcome?link=", gateway.public)));

    // Opening a link does not redeem it, because mail scanners open links too.
    let ada = Browser::new(&gateway);
    for _ in 0..2 {
        let seen = ada.get(&path(&link)).await;
        assert!(seen.assert_page().contains("Ada@example.com"));
        assert!(seen.text.contains("dev@example.com"), "which account it is");
        assert_eq!(seen.header("referrer-policy"), "same-origin");
        assert_eq!(seen.header("cache-control"), "no-store");
    }
    let short = send(&ada, &link, "Ada", "short").await;
    assert_eq!(short.status, 400);
    assert!(short.text.contains("too short") && short.text.contains("value=\"Ada\""));
    let joined = send(&ada, &link, SCRIPT, PASSWORD).await;
    joined.assert_sent_to("/portal");
    let settings = ada.get("/portal/settings").await;
    assert!(settings.assert_page().contains(&gateway.account_id));
    let again = Browser::new(&gateway);
    let signed_in = again.sign_in("ada@example.com", PASSWORD).await;
    signed_in.assert_sent_to("/portal");

    // A redeemed link and an unknown link give identical pages.
    let mut gone = Vec::new();
    for dead in [link.clone(), link.replace(secret(&link), &"x".repeat(43))] {
        let seen = ada.get(&path(&dead)).await;
        assert_eq!(seen.status, 410);
        assert!(seen.text.contains("/portal/sign-in"));
        gone.push(seen.text);
    }
    assert_eq!(gone[0], gone[1]);
    assert_eq!(ada.get("/portal/welcome").await.status, 410);

    let seen = operator.get(&page).await;
    let listed = &rows(&seen.text, ALL)[1];
    assert_eq!(listed[0], "Ada@example.com");
    assert_eq!(listed[2], "customer");
    assert!(!seen.text.contains(SCRIPT) && seen.text.contains("&lt;script&gt;"));
    let all = operator.get("/portal/console/people?text=ADA%40").await;
    let its_people = format!("{}#people", page.replace('_', "%5F"));
    assert_eq!(links(&all.text, "/portal/console/accounts/"), [its_people]);
    for nobody in ["%25", "_", "ada@example.org"] {
        let none = format!("/portal/console/people?text={nobody}");
        let none = operator.get(&none).await;
        assert!(
            none.assert_page().contains("No matching people."),
            "{nobody}"
        );
    }
    assert_eq!(
        operator.get("/portal/console/people?before=x").await.status,
        400
    );

    // The address has an account now.
    let taken = operator.post(&invitations, &fields).await;
    assert_eq!(taken.status, 400);
    assert!(taken.text.contains("This email address is already in use"));

    // The action is recorded, without the secret of the link.
    let done = actions(&gateway, Some(&gateway.account_id)).await;
    let invited = &done[0];
    assert_eq!(
        (invited.what.as_str(), invited.actor.as_str()),
        ("person.invite", "operator token")
    );
    let after = invited.after.as_ref().unwrap();
    assert!(after.contains("Ada@example.com") && after.contains("customer"));
    let all = actions(&gateway, None).await;
    assert!(!format!("{all:?}").contains(secret(&link)));
    let stored = stores::bytes(gateway.data.path()).await;
    let holds = |text: &str| stored.windows(text.len()).any(|at| at == text.as_bytes());
    assert!(holds("Ada@example.com") && !holds(secret(&link)));
    gateway.stop().await;
}

#[tokio::test]
async fn of_two_concurrent_uses_of_a_link_one_succeeds() {
    let gateway = TestGateway::start().await;
    let account = gateway.account_id.clone();
    let link = invite(&gateway, &account, json!({ "email": "eve@example.com" })).await;
    let browsers = [Browser::new(&gateway), Browser::new(&gateway)];
    for browser in &browsers {
        browser.get(&path(&link)).await.assert_page();
    }
    let (one, other) = tokio::join!(
        send(&browsers[0], &link, "One", "the password of one"),
        send(&browsers[1], &link, "Other", "the password of the other"),
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 303, "{one:?} {other:?}");
    assert!([409, 410].contains(&statuses[1]), "{one:?} {other:?}");
    assert_eq!(people(&gateway, &account).await.len(), 1);

    // A newer invitation replaces an older one. If the address was taken meanwhile, the page says so.
    let first = invite(&gateway, &account, json!({ "email": "new@example.com" })).await;
    let body = json!({ "email": "NEW@example.com", "role": "operator" });
    let second = invite(&gateway, &account, body).await;
    let browser = Browser::new(&gateway);
    assert_eq!(browser.get(&path(&first)).await.status, 410);
    let page = browser.get(&path(&second)).await;
    assert!(page.assert_page().contains("to be an operator"));
    browser
        .sign_up("new@example.com")
        .await
        .assert_sent_to("/portal");
    let holder = Browser::new(&gateway);
    let taken = holder.get(&path(&second)).await;
    assert_eq!(taken.status, 409);
    assert!(taken.text.contains("already has an account here"));
    holder.get("/portal/sign-in").await;
    assert_eq!(send(&holder, &second, "", PASSWORD).await.status, 409);
    gateway.stop().await;
}

#[tokio::test]
async fn the_operator_api_invites_lists_changes_resets_and_removes() {
    let gateway = TestGateway::start().await;
    let account = gateway.account_id.clone();
    let invitations = format!("/operator/accounts/{account}/invitations");
    for (body, param) in [
        (json!({ "email": "nobody" }), "email"),
        (json!({ "email": "a@example.com", "role": "admin" }), "role"),
    ] {
        let refused = gateway
            .operate(Method::POST, &invitations, Some(body))
            .await;
        refused.assert_error(400, "invalid_request_error", None, Some(param));
    }
    let nowhere = "/operator/accounts/acct_none/invitations";
    let body = json!({ "email": "grace@example.com", "role": "operator" });
    let refused = gateway
        .operate(Method::POST, nowhere, Some(body.clone()))
        .await;
    refused.assert_error(404, "not_found", None, None);
    let made = gateway
        .operate(Method::POST, &invitations, Some(body.clone()))
        .await;
    let made = made.assert_ok().clone();
    assert_eq!(made["mailed"], false);
    assert!(made["expires_at"].as_str().unwrap().ends_with('Z'));
    let grace = Browser::new(&gateway);
    let joined = follow(&grace, made["link"].as_str().unwrap(), "Grace", PASSWORD).await;
    joined.assert_sent_to("/portal");
    grace.get("/portal/console/people").await.assert_page();
    let refused = gateway
        .operate(Method::POST, &invitations, Some(body))
        .await;
    refused.assert_error(
        409,
        "invalid_request_error",
        Some("email_taken"),
        Some("email"),
    );

    let listed = people(&gateway, &account).await;
    assert_eq!(listed.len(), 1);
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed[0]["name"], "Grace");
    assert_eq!(listed[0]["role"], "operator");

    // Removing the operator role also revokes the invitations that the operator has made.
    let theirs = format!("/portal/console/accounts/{account}");
    grace.get(&theirs).await.assert_page();
    let fields = [("email", "back@example.com"), ("role", "operator")];
    let back = grace.post(&format!("{theirs}/invitations"), &fields).await;
    let back = back.between("id=\"new-link\">", "<").to_owned();
    let stranger = Browser::new(&gateway);
    stranger.get(&path(&back)).await.assert_page();
    let one = format!("/operator/people/{id}");
    let body = Some(json!({ "role": "customer" }));
    let changed = gateway.operate(Method::POST, &one, body.clone()).await;
    assert_eq!(changed.assert_ok()["role"], "customer");
    gateway.operate(Method::POST, &one, body).await.assert_ok();
    assert_eq!(grace.get("/portal/console").await.status, 404, "at once");
    assert_eq!(stranger.get(&path(&back)).await.status, 410);

    // A newer reset link replaces an older one, and setting the password ends all sessions.
    let reset = format!("{one}/reset");
    let mut links = Vec::new();
    for _ in 0..2 {
        let made = gateway.operate(Method::POST, &reset, None).await;
        links.push(made.assert_ok()["link"].as_str().unwrap().to_owned());
    }
    assert_eq!(stranger.get(&path(&links[0])).await.status, 410);
    grace.get("/portal").await.assert_page();
    let set = follow(&stranger, &links[1], "", "another password").await;
    set.assert_sent_to("/portal");
    assert_eq!(grace.get("/portal").await.status, 303);
    let old = grace.sign_in("grace@example.com", PASSWORD).await;
    assert_eq!(old.status, 401);
    let new = grace.sign_in("grace@example.com", "another password").await;
    new.assert_sent_to("/portal");

    let removed = gateway.operate(Method::DELETE, &one, None).await;
    assert_eq!(removed.assert_ok()["email"], "grace@example.com");
    assert_eq!(grace.get("/portal").await.status, 303);
    let refused = gateway.operate(Method::DELETE, &one, None).await;
    refused.assert_error(404, "not_found", None, None);
    assert!(people(&gateway, &account).await.is_empty());
    let done: Vec<_> = actions(&gateway, Some(&id)).await;
    let what: Vec<_> = done.iter().map(|action| action.what.as_str()).collect();
    let expected = [
        "person.remove",
        "person.reset",
        "person.reset",
        "person.change",
    ];
    assert_eq!(what, expected);
    assert!(done[3].before.as_ref().unwrap().contains("operator"));
    assert!(done[3].after.as_ref().unwrap().contains("customer"));
    gateway.stop().await;
}

#[tokio::test]
async fn operators_change_others_in_the_console_and_never_themselves() {
    let gateway = TestGateway::start().await;
    let operator = console::person(&gateway).await;
    let customer = Browser::signed_in(&gateway).await;
    let backoffice = &gateway.inside().backoffice;
    let id = async |browser: &Browser| {
        let person = backoffice.person_by_email(&browser.email).await.unwrap();
        let id = person.unwrap().id.replace('_', "%5F");
        format!("/portal/console/people/{id}")
    };
    let (mine, theirs) = (id(&operator).await, id(&customer).await);
    let own_page = format!("/portal/console/accounts/{}", operator.account_id);
    let page = operator.get(&own_page).await;
    assert!(page.assert_page().contains(&format!("{mine}/reset")));
    assert!(!page.text.contains(&format!("{mine}/role")));
    assert!(!page.text.contains(&format!("{mine}/remove")));
    let role = [("role", "customer")];
    for (path, fields) in [("role", &role[..]), ("remove", &[])] {
        let refused = operator.post(&format!("{mine}/{path}"), fields).await;
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.text.contains("You cannot remove yourself"));
    }

    // For a customer these pages do not exist.
    customer.get("/portal").await;
    let invitations = format!("{own_page}/invitations");
    for path in [
        &format!("{theirs}/role"),
        &format!("{theirs}/reset"),
        &format!("{theirs}/remove"),
        &invitations,
    ] {
        assert_eq!(customer.post(path, &role).await.status, 404, "{path}");
    }
    assert_eq!(customer.get(&format!("{theirs}/remove")).await.status, 404);

    let account = format!("/portal/console/accounts/{}", customer.account_id).replace('_', "%5F");
    let promoted = [("role", "operator")];
    let changed = operator.post(&format!("{theirs}/role"), &promoted).await;
    changed.assert_sent_to(&account);
    customer.get("/portal/console").await.assert_page();
    let reset = operator.post(&format!("{theirs}/reset"), &[]).await;
    let link = reset.between("id=\"new-link\">", "<").to_owned();
    let confirmation = operator.get(&format!("{theirs}/remove")).await;
    assert!(confirmation.assert_page().contains(&customer.email));
    customer.get("/portal").await.assert_page();
    let removed = operator.post(&format!("{theirs}/remove"), &[]).await;
    removed.assert_sent_to(&account);
    assert_eq!(customer.get("/portal").await.status, 303, "signed out");
    assert_eq!(customer.get(&path(&link)).await.status, 410);
    let done = actions(&gateway, None).await;
    assert!(done[..3].iter().all(|done| done.actor == operator.email));
    assert_eq!(operator.get(&format!("{theirs}/remove")).await.status, 404);
    gateway.stop().await;
}

/// Links are stored as a week old, to expire them.
#[tokio::test]
async fn an_expired_link_is_refused_and_pruned() {
    let gateway = TestGateway::start().await;
    let backoffice = &gateway.inside().backoffice;
    let account = gateway.account_id.clone();
    let now = tollgate::base::timestamp::now();
    let made = async |age: i64, email: &str| {
        let purpose = tollgate::backoffice::Purpose::Invitation {
            account_id: account.clone(),
            role: Role::Customer,
            team_role: TeamRole::Viewer,
        };
        let new = tollgate::backoffice::NewLink {
            email: email.into(),
            purpose,
            made_by: None,
            now: now - age,
        };
        let made = backoffice.make_link(new).await.unwrap();
        format!("/portal/welcome?link={}", made.secret.reveal())
    };
    let week = 7 * 86_400;
    let (late, with_deadline) = (
        made(week, "late@example.com").await,
        made(week - 600, "soon@example.com").await,
    );
    let browser = Browser::new(&gateway);
    assert_eq!(browser.get(&late).await.status, 410);
    browser.get("/portal/sign-in").await;
    assert_eq!(send(&browser, &late, "", PASSWORD).await.status, 410);
    backoffice.prune(now).await.unwrap();
    follow(&browser, &with_deadline, "", PASSWORD)
        .await
        .assert_sent_to("/portal");
    assert_eq!(people(&gateway, &account).await.len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_person_without_a_password_sets_one_without_a_current_one() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let backoffice = &gateway.inside().backoffice;
    let person = backoffice
        .person_by_email(&browser.email)
        .await
        .unwrap()
        .unwrap();
    let page = browser.get("/portal/settings").await;
    assert!(page.assert_page().contains("Current password"));
    let missing = [("new", "a fresh password")];
    let refused = browser.post("/portal/settings/password", &missing).await;
    assert_eq!(refused.status, 400, "the current password is required");

    // A person without a password, as created through an issuer.
    let new = tollgate::backoffice::NewPerson {
        email: "other@example.com".into(),
        name: None,
        password: None,
        role: Role::Customer,
        account_id: person.account_id,
        team_role: TeamRole::Developer,
        now: 1,
    };
    let other = backoffice.add_person(new).await.unwrap();
    let path = format!("/operator/people/{}/reset", other.id);
    let made = gateway.operate(Method::POST, &path, None).await;
    let link = made.assert_ok()["link"].as_str().unwrap().to_owned();
    let theirs = Browser::new(&gateway);
    let session = tollgate::backoffice::NewSession {
        digest: digest_of("s".repeat(43).as_str()),
        person_id: Some(other.id.clone()),
        role: Role::Customer,
        agent: String::new(),
        now: tollgate::base::timestamp::now(),
        expires_at: i64::MAX,
    };
    backoffice.begin_session(session).await.unwrap();
    theirs.set_cookie("tollgate-session", &"s".repeat(43));
    let page = theirs.get("/portal/settings").await;
    assert!(!page.assert_page().contains("Current password"));
    let set = theirs.post("/portal/settings/password", &missing).await;
    set.assert_sent_to("/portal/settings");
    let refused = theirs.post("/portal/settings/password", &missing).await;
    assert_ne!(refused.status, 303, "from now on there is one");
    let signed_in = Browser::new(&gateway)
        .sign_in("other@example.com", "a fresh password")
        .await;
    signed_in.assert_sent_to("/portal");
    // Setting a password revokes open reset links.
    assert_eq!(browser.get(&self::path(&link)).await.status, 410);
    gateway.stop().await;
}

fn digest_of(secret: &str) -> tollgate::backoffice::Digest {
    tollgate::backoffice::MadeLink::digest(secret).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_invites_and_sends_an_email() {
    let smtp = FakeSmtp::start().await;
    let gateway = TestGateway::start_with(&smtp.section()).await;
    let url = format!("http://{}", gateway.operator);
    let command = |arguments: &[&str]| {
        let environment = [
            ("TOLLGATE_OPERATOR_URL", url.as_str()),
            ("TOLLGATE_OPERATOR_TOKEN", OPERATOR_TOKEN),
        ];
        let arguments = [&["account"], arguments].concat();
        let output = tokio::task::block_in_place(|| run(&arguments, &environment));
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let account = gateway.account_id.clone();
    let said = command(&["invite", &account, "ada@example.com", "--operator"]);
    assert!(said.contains("only time the link is shown"), "{said}");
    let mail = smtp.next_mail().await;
    assert_eq!(mail.to, "ada@example.com");
    assert!(mail.text.contains("<gate@example.org>"), "{}", mail.text);
    let link = mail.link();
    assert!(said.contains(&link), "{said}");
    let browser = Browser::new(&gateway);
    follow(&browser, &link, "Ada", PASSWORD)
        .await
        .assert_sent_to("/portal");
    browser.get("/portal/console").await.assert_page();
    let said = command(&["people", &account]);
    assert!(said.contains("ada@example.com") && said.contains("operator"));

    // If the mail server refuses the email, the link is created all the same.
    smtp.refuse(true);
    let said = command(&["invite", &account, "bob@example.com", "--json"]);
    let made: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(made["mailed"], false);
    browser
        .get(&path(made["link"].as_str().unwrap()))
        .await
        .assert_page();
    gateway.stop().await;
}

#[tokio::test]
async fn a_withdrawn_invitation_cannot_be_used() {
    let gateway = TestGateway::start().await;
    let operator = with_token(&gateway).await;
    let page = format!("/portal/console/accounts/{}", gateway.account_id);
    let api = format!("/operator/accounts/{}/invitations", gateway.account_id);
    let open = async || {
        let listed = gateway.operate(Method::GET, &api, None).await;
        listed.assert_ok()["data"].as_array().unwrap().clone()
    };
    let mut links = Vec::new();
    for email in ["ada@example.com", "eve@example.com"] {
        operator.get(&page).await.assert_page();
        let fields = [("email", email), ("role", "operator")];
        let made = operator.post(&format!("{page}/invitations"), &fields).await;
        links.push(made.between("id=\"new-link\">", "<").to_owned());
    }
    let listed = open().await;
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["role"], "operator");
    assert!(operator.get(&page).await.text.contains("Withdraw"));
    let withdraw = format!("{page}/invitations/withdraw");
    let ada = [("email", "ada@example.com")];
    assert_eq!(operator.post(&withdraw, &ada).await.status, 303);
    let eve = format!("{api}/eve@example.com");
    let withdrawn = gateway.operate(Method::DELETE, &eve, None).await;
    assert_eq!(withdrawn.assert_ok()["withdrawn"], true);
    let again = gateway.operate(Method::DELETE, &eve, None).await;
    again.assert_error(404, "not_found", None, None);
    assert!(open().await.is_empty());
    for link in links {
        let seen = Browser::new(&gateway).get(&path(&link)).await;
        assert_eq!(seen.status, 410, "{}", seen.text);
    }
}
