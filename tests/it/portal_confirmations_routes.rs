//! Every form of the portal and the console asks before it changes something, or its confirmation undoes it.

use std::collections::BTreeSet;

use crate::{
    portal_confirmations::{done, undo},
    support::{
        TestGateway,
        console::{actions, person},
        issuer::{CLIENT, FakeIssuer, NAME},
        ledger_view::MODEL,
        portal::Browser,
        routes::posted_in_portal,
        second_factor::App,
        stripe::FakeStripe,
    },
};

type Fields = &'static [(&'static str, &'static str)];

enum Rule {
    /// The page with this path and query asks, and its form leads here.
    Question(&'static str),
    /// Sent with these fields, the form asks and changes nothing.
    Asks(Fields),
    /// Sent with these fields, the next page can undo it.
    Undone(Fields),
    /// The form wants the password and the code of two-factor authentication, beside these fields.
    Password(Fields),
    /// It does neither, for this reason.
    Neither(&'static str),
}

use Rule::{Asks, Neither, Password, Question, Undone};

/// The forms that the owner of an account sends, or a visitor.
const PORTAL: &[(&str, Rule)] = &[
    ("/portal/sign-in", Neither("signing out ends it")),
    ("/portal/sign-in/code", Neither("signing out ends it")),
    ("/portal/sign-out", Neither("signing in again undoes it")),
    ("/portal/sign-up", Neither("deleting the account ends it")),
    (
        "/portal/forgotten",
        Neither("sends a link; using it changes something"),
    ),
    (
        "/portal/welcome",
        Neither("the page of a link, which says what follows"),
    ),
    (
        "/portal/keys",
        Neither("shows a key once; the list disables and deletes it"),
    ),
    (
        "/portal/keys/{id}",
        Undone(&[("name", "another"), ("rpm", "7")]),
    ),
    // With a grace the present secret goes on, and nothing ends.
    ("/portal/keys/{id}/rotate", Asks(&[("grace", "0")])),
    ("/portal/keys/{id}/disable", Undone(&[])),
    ("/portal/keys/{id}/enable", Undone(&[])),
    ("/portal/keys/{id}/delete", Question("")),
    ("/portal/projects", Undone(&[("name", "Another")])),
    (
        "/portal/projects/{id}/rename",
        Undone(&[("name", "Renamed")]),
    ),
    ("/portal/projects/{id}/archive", Question("")),
    (
        "/portal/budgets",
        Undone(&[("place", "account"), ("amount", "9"), ("period", "day")]),
    ),
    ("/portal/budgets/{id}/remove", Question("")),
    (
        "/portal/playground",
        Neither("sends a message; the page says that it is charged"),
    ),
    (
        "/portal/playground/run",
        Neither("sends a message; the page says that it is charged"),
    ),
    (
        "/portal/billing/details",
        Undone(&[("bill_to", "Ada Ltd.")]),
    ),
    (
        "/portal/billing/checkout",
        Neither("the provider's page asks before it charges"),
    ),
    (
        "/portal/billing/test-payment/{checkout}",
        Neither("is the page that asks"),
    ),
    (
        "/portal/billing/top-up",
        Neither("wants the consent; portal_top_ups undoes it"),
    ),
    ("/portal/billing/top-up/off", Question("")),
    ("/portal/members/leave", Question("")),
    (
        "/portal/members/invitations",
        Neither("makes a link; the list withdraws it"),
    ),
    (
        "/portal/members/invitations/withdraw",
        Question("?email=new@example.com"),
    ),
    ("/portal/members/{id}/role", Undone(&[("role", "billing")])),
    ("/portal/members/{id}/remove", Question("")),
    ("/portal/settings/profile", Undone(&[("name", "Ada")])),
    (
        "/portal/settings/email",
        Password(&[("email", "other@example.com")]),
    ),
    (
        "/portal/settings/email/confirm",
        Neither("the page of a link, which asks"),
    ),
    (
        "/portal/settings/password",
        Password(&[("new", "another password")]),
    ),
    ("/portal/settings/sessions", Question("")),
    (
        "/portal/settings/two-factor/begin",
        Neither("wants the password; changes nothing yet"),
    ),
    (
        "/portal/settings/two-factor/confirm",
        Neither("the last step of a set-up, with a code"),
    ),
    ("/portal/settings/two-factor/codes", Password(&[])),
    ("/portal/settings/two-factor/off", Password(&[])),
    ("/portal/settings/delete", Question("")),
    ("/portal/oidc/connect", Password(&[])),
    ("/portal/oidc/disconnect", Question("")),
];

/// The forms that an operator sends.
const CONSOLE: &[(&str, Rule)] = &[
    (
        "/portal/console/accounts",
        Undone(&[("email", "new@example.com"), ("plan", "business/flex")]),
    ),
    (
        "/portal/console/accounts/{id}/plan",
        Undone(&[("plan", "personal/pro")]),
    ),
    (
        "/portal/console/accounts/{id}/state",
        Undone(&[("state", "closed")]),
    ),
    (
        "/portal/console/accounts/{id}/grants",
        Asks(&[
            ("amount", "5"),
            ("reason", "a gift"),
            ("reference", "console_1"),
        ]),
    ),
    (
        "/portal/console/accounts/{id}/keys",
        Neither("shows a key once; the list disables and deletes it"),
    ),
    (
        "/portal/console/keys/{id}/state",
        Undone(&[("state", "disabled")]),
    ),
    (
        "/portal/console/accounts/{id}/invitations",
        Neither("makes a link; the list withdraws it"),
    ),
    (
        "/portal/console/accounts/{id}/invitations/withdraw",
        Question("?email=new@example.com"),
    ),
    (
        "/portal/console/people/{id}/role",
        Undone(&[("role", "operator")]),
    ),
    (
        "/portal/console/people/{id}/reset",
        Neither("makes a link; the password stays until it is used"),
    ),
    ("/portal/console/people/{id}/second-factor", Question("")),
    ("/portal/console/people/{id}/remove", Question("")),
    (
        "/portal/console/models",
        Undone(&[("model", MODEL), ("unlisted", "true")]),
    ),
    (
        "/portal/console/limits",
        Undone(&[("model", MODEL), ("rpm", "7")]),
    ),
    (
        "/portal/console/alerts/test",
        Neither("sends a message; there are no channels here"),
    ),
    (
        "/portal/console/config/{kind}",
        Asks(&[
            ("name", "second"),
            ("new", "yes"),
            ("f.model", MODEL),
            ("based_on", "1"),
        ]),
    ),
    (
        "/portal/console/config/rollback",
        Undone(&[("to", "0"), ("based_on", "1")]),
    ),
    ("/portal/console/sign-in", Neither("signing out ends it")),
    (
        "/portal/console/sign-out",
        Neither("signing in again undoes it"),
    ),
    (
        "/portal/console/audit",
        Neither("reads and changes nothing"),
    ),
];

/// What the forms are about.
struct Things {
    account: String,
    key: String,
    project: String,
    budget: String,
    member: String,
}

impl Things {
    /// Of an owner, whose pages list one of each.
    async fn of(gateway: &TestGateway, owner: &Browser) -> Self {
        let (key, _) = owner.new_key("one").await;
        let project = [("name", "One")];
        owner.post("/portal/projects", &project).await;
        let projects = owner.get("/portal/projects").await;
        let budget = [("place", "account"), ("amount", "20"), ("period", "month")];
        owner.post("/portal/budgets", &budget).await;
        let budgets = owner.get("/portal/budgets").await;
        let member = owner.member(gateway, "developer").await;
        let person = gateway.inside().backoffice.person_by_email(&member.email);
        Self {
            account: owner.account_id.clone(),
            key,
            project: format!("proj_{}", projects.between("/portal/projects/proj_", "/")),
            budget: budgets.between("/portal/budgets/", "/").to_owned(),
            member: person.await.unwrap().unwrap().id,
        }
    }

    fn path(&self, route: &str) -> String {
        let id = match route
            .trim_start_matches("/portal/console/")
            .trim_start_matches("/portal/")
        {
            it if it.starts_with("keys/") => &self.key,
            it if it.starts_with("projects/") => &self.project,
            it if it.starts_with("budgets/") => &self.budget,
            it if it.starts_with("accounts/") => &self.account,
            _ => &self.member,
        };
        route.replace("{id}", id).replace("{kind}", "aliases")
    }
}

/// Whether the page asks: it has a form that leads to this path, and a way back.
fn asks(page: &str, path: &str) -> bool {
    let page = page.replace("%5F", "_");
    page.contains(&format!("method=\"post\" action=\"{path}\"")) && page.contains(">Cancel</a>")
}

/// Sends each form with `browser`, those that want a password with `guarded`.
async fn check(
    gateway: &TestGateway,
    things: &Things,
    rules: &[(&str, Rule)],
    browser: &Browser,
    guarded: &Browser,
) {
    for (route, rule) in rules {
        let path = things.path(route);
        let before = actions(gateway, None).await.len();
        match rule {
            Undone(fields) => {
                let sent = browser.post(&path, fields).await;
                let confirmed = done(browser, &sent).await;
                assert!(confirmed.undo.is_some(), "{route}: {}", confirmed.text);
                let undone = undo(browser, confirmed).await;
                done(browser, &undone).await;
                continue;
            }
            Question(query) => {
                let page = browser.get(&format!("{path}{query}")).await;
                assert!(asks(page.assert_page(), &path), "{route}: {}", page.text);
            }
            Asks(fields) => {
                let page = browser.post(&path, fields).await;
                assert!(asks(page.assert_page(), &path), "{route}: {}", page.text);
            }
            Password(fields) => {
                let refused = guarded.post(&path, fields).await;
                assert_eq!(refused.status, 400, "{route}: {}", refused.text);
                assert!(
                    refused.text.contains("password is wrong"),
                    "{route}: {}",
                    refused.text
                );
            }
            Neither(reason) => assert!(!reason.is_empty(), "{route}"),
        }
        assert_eq!(actions(gateway, None).await.len(), before, "{route}");
    }
}

#[tokio::test]
async fn every_form_asks_first_or_can_be_undone() {
    let listed: Vec<_> = PORTAL
        .iter()
        .chain(CONSOLE)
        .map(|(route, _)| *route)
        .collect();
    let known: BTreeSet<_> = listed.iter().map(|route| (*route).to_owned()).collect();
    assert_eq!(known.len(), listed.len(), "each route is listed once");
    assert_eq!(known, posted_in_portal(), "a new form needs a line here");

    let (issuer, stripe) = (FakeIssuer::start().await, FakeStripe::start().await);
    let url = issuer.url();
    let settings = [
        ("PORTAL__OIDC__ISSUER", url.as_str()),
        ("PORTAL__OIDC__CLIENT_ID", CLIENT),
        ("PORTAL__OIDC__CLIENT_SECRET_ENV", "PROVIDER_KEY"),
        ("PORTAL__OIDC__NAME", NAME),
    ];
    let gateway = TestGateway::start_with_settings(&stripe.section(), &settings).await;
    let owner = Browser::signed_in(&gateway).await;
    let guarded = Browser::signed_in(&gateway).await;
    App::set_up(&guarded).await;
    let things = Things::of(&gateway, &owner).await;
    check(&gateway, &things, PORTAL, &owner, &guarded).await;

    let operator = person(&gateway).await;
    operator.get("/portal/console").await.assert_page();
    let first = [
        ("name", "first"),
        ("new", "yes"),
        ("f.model", MODEL),
        ("based_on", "0"),
        ("do", "apply"),
    ];
    let applied = operator
        .post("/portal/console/config/aliases", &first)
        .await;
    assert!(done(&operator, &applied).await.undo.is_some());
    check(&gateway, &things, CONSOLE, &operator, &guarded).await;
    // A model is disabled for all accounts, so its page asks although it can be undone.
    let question = operator
        .get(&format!("/portal/console/models/disable?model={MODEL}"))
        .await;
    assert!(
        asks(question.assert_page(), "/portal/console/models"),
        "{}",
        question.text
    );
    gateway.stop().await;
}
