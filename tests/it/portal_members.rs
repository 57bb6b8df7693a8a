//! Which pages and forms each role in an account may use.

use std::collections::BTreeSet;

use reqwest::Method;
use tollgate::portal::rights;

use crate::support::{
    TestGateway,
    admin::links,
    portal::{Browser, FORM, Seen},
    stripe::FakeStripe,
};

const ROLES: [&str; 4] = ["owner", "billing", "developer", "viewer"];

const ALL: &[&str] = &ROLES;
const KEYS: &[&str] = &["owner", "developer"];
const MONEY: &[&str] = &["owner", "billing"];
const OWNERS: &[&str] = &["owner"];

/// Every route of signed-in people, the methods that it has, and the roles that may use it.
const ROUTES: [(&str, &str, &[&str]); 57] = [
    ("/portal", "GET", ALL),
    ("/portal/sign-out", "POST", ALL),
    ("/portal/keys", "GET POST", KEYS),
    ("/portal/keys/deleted", "GET", KEYS),
    ("/portal/keys/{id}", "GET POST", KEYS),
    ("/portal/keys/{id}/rotate", "POST", KEYS),
    ("/portal/keys/{id}/disable", "POST", KEYS),
    ("/portal/keys/{id}/enable", "POST", KEYS),
    ("/portal/keys/{id}/delete", "GET POST", KEYS),
    ("/portal/projects", "GET POST", OWNERS),
    ("/portal/projects/{id}/rename", "POST", OWNERS),
    ("/portal/projects/{id}/archive", "GET POST", OWNERS),
    ("/portal/budgets", "GET POST", MONEY),
    ("/portal/budgets/{id}/remove", "GET POST", MONEY),
    ("/portal/playground", "GET POST", KEYS),
    ("/portal/playground/run", "POST", KEYS),
    ("/portal/playground/charge", "GET", KEYS),
    ("/portal/usage", "GET", ALL),
    ("/portal/usage.csv", "GET", ALL),
    ("/portal/requests", "GET", KEYS),
    ("/portal/requests.csv", "GET", KEYS),
    ("/portal/requests/{id}", "GET", KEYS),
    ("/portal/requests/find", "GET", KEYS),
    ("/portal/requests/refused", "GET", KEYS),
    ("/portal/billing", "GET", MONEY),
    ("/portal/billing.csv", "GET", MONEY),
    ("/portal/billing/checkout", "POST", MONEY),
    ("/portal/billing/details", "GET POST", MONEY),
    ("/portal/billing/payments", "GET", MONEY),
    ("/portal/billing/statements", "GET", MONEY),
    ("/portal/billing/statements/{month}", "GET", MONEY),
    ("/portal/billing/receipts/{number}", "GET", MONEY),
    ("/portal/billing/top-up", "GET POST", MONEY),
    ("/portal/billing/top-up/off", "GET POST", MONEY),
    ("/portal/billing/test-payment/{checkout}", "", MONEY),
    ("/portal/plan", "GET", ALL),
    ("/portal/models", "GET", ALL),
    ("/portal/members", "GET", ALL),
    ("/portal/members/leave", "GET POST", ALL),
    ("/portal/members/invitations", "POST", OWNERS),
    ("/portal/members/invitations/withdraw", "GET POST", OWNERS),
    ("/portal/members/{id}/role", "POST", OWNERS),
    ("/portal/members/{id}/remove", "GET POST", OWNERS),
    ("/portal/settings", "GET", ALL),
    ("/portal/settings/profile", "POST", ALL),
    ("/portal/settings/email", "POST", ALL),
    // Without a link it is 410.
    ("/portal/settings/email/confirm", "POST", ALL),
    ("/portal/settings/password", "POST", ALL),
    ("/portal/settings/sessions", "GET POST", ALL),
    ("/portal/settings/two-factor", "GET", ALL),
    ("/portal/settings/two-factor/begin", "POST", ALL),
    ("/portal/settings/two-factor/confirm", "POST", ALL),
    ("/portal/settings/two-factor/codes", "POST", ALL),
    ("/portal/settings/two-factor/off", "POST", ALL),
    ("/portal/settings/delete", "GET POST", OWNERS),
    // They exist with an issuer only.
    ("/portal/oidc/connect", "", ALL),
    ("/portal/oidc/disconnect", "", ALL),
];

fn is_refused(seen: &Seen) -> bool {
    let refused = seen.text.contains("<h1>Not for your role</h1>");
    assert!(!refused || seen.status == 403, "{seen:?}");
    refused
}

/// A form that can be read, with a wrong token, which changes nothing: a role that may use the route is told to reload the page.
async fn post(browser: &Browser, path: &str) -> Seen {
    let request = browser.request(Method::POST, path);
    let request = request.header("origin", browser.origin());
    let request = request
        .header("content-type", FORM)
        .body("token=forged&new=forged");
    browser.send(request).await
}

#[tokio::test]
async fn each_role_may_use_its_routes_and_no_others() {
    let listed: BTreeSet<_> = rights::ROUTES.iter().map(|(route, _)| *route).collect();
    let tested: BTreeSet<_> = ROUTES.iter().map(|(route, ..)| *route).collect();
    assert_eq!(listed, tested, "a new route needs a line here");

    let stripe = FakeStripe::start().await;
    let gateway = TestGateway::start_with(&stripe.section()).await;
    let owner = Browser::signed_in(&gateway).await;
    for role in ROLES {
        let browser = owner.member(&gateway, role).await;
        for (route, methods, roles) in ROUTES {
            let may = roles.contains(&role);
            let path = route.replace("{id}", "call_0000000000000");
            for method in methods.split_whitespace() {
                let seen = match method {
                    "GET" => browser.get(&path).await,
                    _ => post(&browser, &path).await,
                };
                let what = format!("{role}: {method} {route}: {} {}", seen.status, seen.text);
                assert_eq!(is_refused(&seen), !may, "{what}");
                if !may {
                    assert!(
                        seen.text.contains(&format!("Your role is {role};")),
                        "{what}"
                    );
                } else if method == "POST" {
                    assert!(seen.text.contains("has expired"), "{what}");
                } else if route.contains('{') {
                    assert_eq!(seen.status, 404, "{what}");
                } else if route != "/portal/playground/charge" {
                    assert_eq!(seen.status, 200, "{what}");
                }
            }
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_navigation_and_every_link_lead_where_the_role_may_go() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let (_, key) = owner.new_key("laptop").await;
    let hello = crate::support::gateway::hello("svc-standard");
    gateway.chat_as(&key, &hello).await.assert_ok();
    for role in ROLES {
        let browser = owner.member(&gateway, role).await;
        let pages = ROUTES.iter().filter(|(route, methods, roles)| {
            methods.contains("GET") && roles.contains(&role) && !route.contains('{')
        });
        for (page, ..) in pages.filter(|(page, ..)| !page.ends_with("/charge")) {
            let seen = browser.get(page).await;
            for link in links(&seen.text, "/portal") {
                let link = link.split('#').next().unwrap();
                let target = browser.get(link).await;
                assert_eq!(target.status, 200, "{role}: {page} links to {link}");
            }
        }
        let overview = browser.get("/portal").await;
        assert_eq!(
            overview.text.contains("<h2>Balance</h2>"),
            MONEY.contains(&role),
            "{role}"
        );
        assert_eq!(
            overview.text.contains("Latest requests"),
            role == "owner",
            "{role}"
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_changed_role_counts_for_the_next_request() {
    let gateway = TestGateway::start().await;
    let owner = Browser::signed_in(&gateway).await;
    let member = owner.member(&gateway, "developer").await;
    member.get("/portal/keys").await.assert_page();
    let page = owner.get("/portal/members").await;
    let ids: BTreeSet<_> = page
        .text
        .match_indices("/portal/members/person_")
        .map(|(at, _)| page.text[at..].split('/').nth(3).unwrap())
        .collect();
    let people = &gateway.inside().backoffice;
    let id = people.person_by_email(&member.email).await.unwrap();
    let id = id.unwrap().id;
    assert!(ids.contains(id.as_str()), "{ids:?}");
    let role = [("role", "viewer")];
    let changed = owner
        .post(&format!("/portal/members/{id}/role"), &role)
        .await;
    changed.assert_sent_to("/portal/members");
    // The form was loaded before.
    let refused = member.post("/portal/keys", &[("name", "late")]).await;
    assert!(is_refused(&refused), "{refused:?}");
    assert!(is_refused(&member.get("/portal/keys").await));
    for (role, status) in [("emperor", 400), ("", 400), ("operator", 400)] {
        let path = format!("/portal/members/{id}/role");
        owner.get("/portal/members").await;
        let refused = owner.post(&path, &[("role", role)]).await;
        assert_eq!(refused.status, status, "{role}");
    }
    gateway.stop().await;
}
